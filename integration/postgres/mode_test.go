package postgres_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

func upsert(table string) postgres.Options {
	return postgres.Options{Table: table, Mode: postgres.Upsert, Key: []string{"k"}}
}

const keyedTable = "create table kv (k text primary key, v bigint, n text default 'theirs')"

// contents returns kv as a map.
func contents(d *db) map[string]int64 {
	d.t.Helper()
	rows, err := d.own.Query(d.t.Context(), "select k, v from kv")
	if err != nil {
		d.t.Fatal(err)
	}
	defer rows.Close()
	got := make(map[string]int64)
	for rows.Next() {
		var k string
		var v int64
		if err := rows.Scan(&k, &v); err != nil {
			d.t.Fatal(err)
		}
		got[k] = v
	}
	return got
}

// write makes a record that sets k, or deletes it if v is negative.
func write(t testing.TB, s *postgres.Sink, k string, v int64) []byte {
	t.Helper()
	var rec []byte
	var err error
	if v < 0 {
		rec, err = s.AppendDelete(nil, k)
	} else {
		rec, err = s.AppendRow(nil, []any{k, v})
	}
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestC115LastWriteOfAKeyWins(t *testing.T) {
	d := newDB(t, keyedTable, "insert into kv values ('old', 1), ('gone', 2)")
	s := d.open(upsert("kv"))
	lane := newTape("state", "0")
	lane.seal(write(t, s, "a", 1), write(t, s, "a", 2), write(t, s, "a", -1), write(t, s, "a", 4),
		write(t, s, "b", 1), write(t, s, "b", -1), write(t, s, "old", 7), write(t, s, "gone", -1), write(t, s, "never", -1))
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 1))
	if got := contents(d); !maps.Equal(got, map[string]int64{"a": 4, "old": 7}) {
		t.Errorf("table holds %v", got)
	}
}

// Random writes, cut into batches and steps at random, against a map.
func TestC115RandomWritesAgainstAMap(t *testing.T) {
	d := newDB(t, keyedTable)
	s := d.open(upsert("kv"))
	for seed := range uint64(5) {
		d.exec("truncate kv")
		rnd := rand.New(rand.NewPCG(seed, 1))
		want := make(map[string]int64)
		lane := newTape("state", fmt.Sprint(seed))
		for range 10 {
			var recs [][]byte
			for range rnd.IntN(60) {
				k, v := fmt.Sprint(rnd.IntN(20)), rnd.Int64N(100)-30
				recs = append(recs, write(t, s, k, v))
				if want[k] = v; v < 0 {
					delete(want, k)
				}
			}
			lane.seal(recs...)
		}
		l, m := acquire(t, s, lane.id)
		for m.Seq < 10 {
			m = flush(t, l, lane.step(m, min(10, m.Seq+1+rnd.Uint64N(3))))
		}
		if got := contents(d); !maps.Equal(got, want) {
			t.Errorf("seed %d: table holds %v, want %v", seed, got, want)
		}
	}
}

func TestE11ReplayLeavesLaterChangesAlone(t *testing.T) {
	d := newDB(t, keyedTable)
	s := d.open(upsert("kv"))
	lane := newTape("state", "0")
	for i := range 4 {
		lane.seal(write(t, s, fmt.Sprint(i), int64(i)))
	}
	l, m0 := acquire(t, s, lane.id)
	m := flush(t, l, lane.step(m0, 3))
	flush(t, l, lane.step(m, 4))
	d.exec("update kv set v = 100 + v")
	refuse(t, l, lane.step(m0, 4), sinks.Moved)
	if got := contents(d); got["3"] != 103 || got["0"] != 100 {
		t.Errorf("table holds %v", got)
	}
}

func TestUpsertBadRecords(t *testing.T) {
	d := newDB(t, "create table kv (k text primary key, v bigint check (v <> 13))")
	s := d.open(upsert("kv"))
	lane := newTape("state", "0")
	lane.seal(write(t, s, "a", 1), write(t, s, "b", 13), []byte("U\tc\tx\n"), write(t, s, "d", 2), write(t, s, "e", 13))
	l, m := acquire(t, s, lane.id)
	e := refuse(t, l, lane.step(m, 1), sinks.Poison)
	if got := fmt.Sprint(badNumbers(e)); got != "[1 2 4]" || e.Bad[1].Field != "v" {
		t.Fatalf("bad records %+v", e.Bad)
	}
	flush(t, l, lane.step(m, 1, e.Bad...))
	if got := contents(d); !maps.Equal(got, map[string]int64{"a": 1, "d": 2}) {
		t.Errorf("table holds %v", got)
	}
}

func TestUpsertWithoutConstraintSaysSo(t *testing.T) {
	d := newDB(t, "create table kv (k text, v bigint)")
	s := d.open(upsert("kv"))
	lane := newTape("state", "0")
	lane.seal(write(t, s, "a", 1))
	l, m := acquire(t, s, lane.id)
	if e := refuse(t, l, lane.step(m, 1), sinks.Permanent); e.Err == nil {
		t.Error("no cause")
	}
}

func TestP34WritersOfTheSameKeys(t *testing.T) {
	d := newDB(t, keyedTable)
	s := d.open(upsert("kv"))
	const writers, batches, keys = 8, 15, 30
	var wg sync.WaitGroup
	var mu sync.Mutex
	retries := 0
	for w := range writers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 2))
			lane := newTape("state", fmt.Sprint(w))
			for range batches {
				var recs [][]byte
				for range keys {
					v := int64(w)
					if rnd.IntN(4) == 0 {
						v = -1
					}
					recs = append(recs, write(t, s, fmt.Sprint(rnd.IntN(keys)), v))
				}
				lane.seal(recs...)
			}
			l, m, err := s.Acquire(testContext(t), lane.id)
			for err == nil && m.Seq < batches {
				if _, flushErr := l.Flush(testContext(t), lane.step(m, m.Seq+1)); flushErr != nil {
					if k := sinks.KindOf(flushErr); k != sinks.Transient {
						t.Errorf("flush: %v", flushErr)
						return
					}
					mu.Lock()
					retries++
					mu.Unlock()
				}
				m, err = l.Mark(testContext(t))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d deadlocks in %d flushes", retries, writers*batches)
	if n := one[int](d, "select count(*) from walsink.lane where seq = $1", batches); n != writers {
		t.Errorf("%d lanes done", n)
	}
}

func TestStatementPerStep(t *testing.T) {
	d := newDB(t, "create table totals (name text primary key, n bigint)")
	opts := postgres.Options{Mode: postgres.Statement,
		Define:    []postgres.Column{{Name: "name", Type: "text not null"}, {Name: "n", Type: "int"}},
		Statement: `insert into totals select name, sum(n) from walsink_batch group by name on conflict (name) do update set n = totals.n + excluded.n`}
	s := d.open(opts)
	lane := newTape("sums", "0")
	row := func(name string, n int) []byte {
		rec, err := s.AppendRow(nil, []any{name, n})
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	lane.seal(row("a", 1), row("b", 2), row("a", 3))
	lane.seal(row("a", 10), []byte("b\tx\n"))
	l, m0 := acquire(t, s, lane.id)
	m := flush(t, l, lane.step(m0, 1))
	refuse(t, l, lane.step(m0, 1), sinks.Moved) // a sum is not idempotent; the mark makes it so
	e := refuse(t, l, lane.step(m, 2), sinks.Poison)
	if len(e.Bad) != 1 || e.Bad[0].Number != 1 || e.Bad[0].Field != "n" {
		t.Fatalf("bad records %+v", e.Bad)
	}
	flush(t, l, lane.step(m, 2, e.Bad...))
	if got := column[string](d, "select name || n from totals order by name"); fmt.Sprint(got) != "[a14 b2]" {
		t.Errorf("totals %v", got)
	}
	opts.Statement = "insert into totals select name, n / 0 from walsink_batch"
	broken := d.open(opts)
	lane.seal(row("a", 1))
	l, m = acquire(t, broken, lane.id)
	refuse(t, l, lane.step(m, 3), sinks.Permanent)
}
