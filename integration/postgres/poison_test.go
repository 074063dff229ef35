package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

// raw makes records of (id, name) without asking the sink.
func raw(ids ...string) [][]byte {
	var recs [][]byte
	for _, id := range ids {
		recs = append(recs, []byte(id+"\tx\n"))
	}
	return recs
}

// badNumbers returns the numbers of the bad records of an error.
func badNumbers(e *sinks.Error) (numbers []uint64) {
	for _, b := range e.Bad {
		numbers = append(numbers, b.Number)
	}
	return numbers
}

func TestE21BadRecordIsNamed(t *testing.T) {
	d := newDB(t, "create table t (id bigint not null, name text)")
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	recs := rowsOf(t, s, 0, 100)
	recs[57] = []byte("\\N\tx\n") // a null that came past the encoder
	lane.seal(recs...)
	l, m := acquire(t, s, lane.id)
	for range 2 { // the same answer each time
		e := refuse(t, l, lane.step(m, 1), sinks.Poison)
		if len(e.Bad) != 1 || e.Bad[0].Number != 57 || e.Bad[0].Field != "id" || e.Bad[0].Code != "23502" {
			t.Fatalf("bad records %+v", e.Bad)
		}
	}
	wantIDs(d, 0, 0)
	flush(t, l, lane.step(m, 1, sinks.Reject{Number: 57}))
	refuse(t, l, lane.step(m, 1, sinks.Reject{Number: 57}), sinks.Moved)
	if n := one[int](d, "select count(*) from t"); n != 99 {
		t.Errorf("%d rows", n)
	}
	if n := one[int](d, "select count(*) from walsink.dead_letter where number = 57"); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

func TestE16E10ConflictsAreRecordErrors(t *testing.T) {
	d := newDB(t, "create table t (id bigint primary key, name text)", "insert into t values (2, 'theirs')")
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(raw("1", "2", "3", "3")...) // 2 is in the table, the second 3 in the batch
	l, m := acquire(t, s, lane.id)
	e := refuse(t, l, lane.step(m, 1), sinks.Poison)
	if got := fmt.Sprint(badNumbers(e)); got != "[1 3]" {
		t.Fatalf("bad records %+v", e.Bad)
	}
	for _, b := range e.Bad {
		if b.Code != "23505" || !strings.Contains(b.Reason, `"t_pkey"`) {
			t.Errorf("reject %+v", b)
		}
	}
	if n := one[int](d, "select count(*) from t"); n != 1 {
		t.Errorf("%d rows after the refusal", n)
	}
	m = flush(t, l, lane.step(m, 1, e.Bad...))
	if m.Records != 2 || m.Dead != 2 {
		t.Errorf("mark %+v", m)
	}
	refuse(t, l, lane.step(sinks.Mark{Chain: lane.id.Genesis()}, 1), sinks.Moved) // a replay is no conflict
}

func TestManyBadRecordsAreFoundAtOnce(t *testing.T) {
	d := newDB(t, "create table t (id int check (id <> 13), name varchar(3))")
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	const n, every = 20_000, 10
	recs := make([][]byte, n)
	for i := range recs {
		switch {
		case i%(3*every) == 0:
			recs[i] = fmt.Appendf(nil, "x%d\tab\n", i) // not a number
		case i%(3*every) == every:
			recs[i] = []byte("13\tab\n") // check
		case i%(3*every) == 2*every:
			recs[i] = []byte("1\tabcd\n") // too long
		default:
			recs[i] = fmt.Appendf(nil, "%d\tab\n", i+100)
		}
	}
	lane.seal(recs...)
	l, m := acquire(t, s, lane.id)
	began := time.Now()
	e := refuse(t, l, lane.step(m, 1), sinks.Poison)
	t.Logf("%d bad of %d found in %v", len(e.Bad), n, time.Since(began))
	if len(e.Bad) != n/every {
		t.Fatalf("%d bad records, want %d", len(e.Bad), n/every)
	}
	want := []sinks.Reject{{Field: "id", Code: "22P02"}, {Code: "23514"}, {Code: "22001"}}
	for i, b := range e.Bad {
		w := want[i%3]
		if b.Number != uint64(i*every) || b.Code != w.Code || w.Field != "" && b.Field != w.Field {
			t.Fatalf("bad record %d: %+v", i, b)
		}
	}
	flush(t, l, lane.step(m, 1, e.Bad...))
	if got := one[int](d, "select count(*) from t"); got != n-n/every {
		t.Errorf("%d rows", got)
	}
}

func TestBadRecordsWithoutTemporaryTables(t *testing.T) {
	d := newDB(t, plainTable)
	d.exec("do $$ begin execute format('revoke temp on database %I from public', current_database()); end $$")
	s := d.openAt(d.role("limited", "t"), postgres.Options{Table: "t", NoCreateLedger: true})
	lane := newTape("orders", "0")
	lane.seal(raw("1", "a", "2", "b")...)
	l, m := acquire(t, s, lane.id)
	e := refuse(t, l, lane.step(m, 1), sinks.Poison)
	if len(e.Bad) != 1 || e.Bad[0].Number != 1 || e.Bad[0].Field != "id" {
		t.Errorf("bad records %+v", e.Bad)
	}
}

func TestDeferredConstraintAtCommit(t *testing.T) {
	d := newDB(t, "create table p (id bigint primary key)", "insert into p values (1), (2)",
		"create table t (id bigint references p deferrable initially deferred, name text)")
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(raw("1", "9", "2", "8")...)
	l, m := acquire(t, s, lane.id)
	e := refuse(t, l, lane.step(m, 1), sinks.Poison)
	if got := fmt.Sprint(badNumbers(e)); got != "[1 3]" || e.Bad[0].Code != "23503" {
		t.Errorf("bad records %+v", e.Bad)
	}
	flush(t, l, lane.step(m, 1, e.Bad...))
}

func TestTriggerThatRaises(t *testing.T) {
	d := newDB(t, plainTable,
		`create function f() returns trigger language plpgsql as $$ begin if new.id = 3 then raise 'no % here', new.name; end if; return new; end $$`,
		`create trigger r before insert on t for each row execute function f()`)
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 5)...)
	l, m := acquire(t, s, lane.id)
	e := refuse(t, l, lane.step(m, 1), sinks.Poison)
	if len(e.Bad) != 1 || e.Bad[0].Number != 3 || e.Bad[0].Code != "P0001" {
		t.Errorf("bad records %+v", e.Bad)
	}
	if strings.Contains(e.Error(), "name 3") {
		t.Errorf("error tells what is in the record: %v", e)
	}
}

func TestErrorsHoldNoContents(t *testing.T) {
	const secret = "s3cr3t-contents"
	d := newDB(t, "create type mood as enum ('ok')", "create table t (id bigint primary key, m mood, n int check (n < 5))",
		"insert into t values (1)")
	s := d.open(postgres.Options{Table: "t"})
	for _, rec := range []string{secret + "\tok\t1\n", "2\t" + secret + "\t1\n", "1\tok\t1\n", "3\tok\t" + secret + "\n", "4\tok\t7\n"} {
		lane := newTape("orders", "0")
		lane.seal([]byte(rec))
		l, m := acquire(t, s, lane.id)
		_, err := l.Flush(testContext(t), lane.step(m, 1))
		for e := err; e != nil; e = errors.Unwrap(e) {
			if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(text, secret) || strings.Contains(text, "(1, ") {
				t.Errorf("error tells what is in the record: %s", text)
			}
		}
		if sinks.KindOf(err) != sinks.Poison {
			t.Errorf("%q: %v", rec, err)
		}
	}
}
