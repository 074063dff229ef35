package postgres_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

func TestSchemaChangedBetweenAppendAndFlush(t *testing.T) {
	dsn := servers.Postgres(t)
	for name, c := range map[string]struct {
		change string
		kind   sinks.Kind // 0: passes
		names  string     // that the error must hold
	}{
		"column added":         {change: "alter table t add extra int"},
		"column with default":  {change: "alter table t add extra int not null default 7"},
		"type widened":         {change: "alter table t alter id type numeric"},
		"type to text":         {change: "alter table t alter id type text"},
		"type of other bits":   {change: "alter table t alter id type double precision"},
		"index added":          {change: "create unique index on t (id)"},
		"column dropped":       {"alter table t drop name", sinks.Permanent, `"name"`},
		"column renamed":       {"alter table t rename name to title", sinks.Permanent, `"name"`},
		"type narrowed":        {"alter table t alter name type int using 0", sinks.Permanent, `"name"`},
		"not null, no default": {"alter table t add extra int not null", sinks.Permanent, `"extra"`},
		"table dropped":        {"drop table t", sinks.Permanent, `"public.t"`},
	} {
		t.Run(name, func(t *testing.T) {
			d := dbAt(t, dsn, fresh, plainTable)
			s := d.open(postgres.Options{Table: "t"})
			lane := newTape("orders", "0")
			lane.seal(rowsOf(t, s, 1, 10)...)
			l, m := acquire(t, s, lane.id)
			d.exec(c.change)
			if c.kind == 0 {
				flush(t, l, lane.step(m, 1))
				if got := one[string](d, "select string_agg(id::text || name, ' ' order by id::text) from t"); !strings.HasPrefix(got, "1name 1 2name 2 ") {
					t.Errorf("rows %q", got)
				}
				return
			}
			if e := refuse(t, l, lane.step(m, 1), c.kind); !strings.Contains(e.Error(), c.names) {
				t.Errorf("error does not name %s: %v", c.names, e)
			}
		})
	}
}

func TestE13TableGoneLedgerThere(t *testing.T) {
	create := postgres.Options{Table: "t", Create: true, Define: []postgres.Column{{Name: "id", Type: "bigint"}, {Name: "name", Type: "text"}}}
	fill := func(t *testing.T, opts postgres.Options, ddl ...string) *db {
		d := newDB(t, ddl...)
		s := d.open(opts)
		lane := newTape("orders", "0")
		lane.seal(rowsOf(t, s, 0, 10)...)
		l, m := acquire(t, s, lane.id)
		flush(t, l, lane.step(m, 1))
		return d
	}
	wantMissing := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, postgres.ErrTableMissing) || sinks.KindOf(err) != sinks.Permanent {
			t.Fatalf("error %v", err)
		}
		if !strings.Contains(err.Error(), "to send everything again") {
			t.Errorf("error does not say how to reset: %v", err)
		}
	}
	t.Run("dropped, to be created", func(t *testing.T) {
		d := fill(t, create)
		d.exec("drop table t")
		_, err := postgres.Open(testContext(t), d.pool(d.dsn), create)
		wantMissing(t, err)
		d.exec("delete from walsink.lane where sink = 'orders'") // the documented reset
		s := d.open(create)
		lane := newTape("orders", "0")
		lane.seal(rowsOf(t, s, 0, 10)...)
		l, m := acquire(t, s, lane.id)
		flush(t, l, lane.step(m, 1))
		wantIDs(d, 0, 10)
	})
	t.Run("made anew by hand", func(t *testing.T) {
		d := fill(t, postgres.Options{Table: "t"}, plainTable)
		d.exec("drop table t")
		d.exec(plainTable)
		_, _, err := d.open(postgres.Options{Table: "t"}).Acquire(testContext(t), sinks.LaneID{Sink: "orders", Lane: "0"})
		wantMissing(t, err)
	})
	t.Run("dropped", func(t *testing.T) {
		d := fill(t, postgres.Options{Table: "t"}, plainTable)
		d.exec("drop table t")
		if _, err := postgres.Open(testContext(t), d.pool(d.dsn), postgres.Options{Table: "t"}); !errors.Is(err, postgres.ErrTableMissing) {
			t.Errorf("error %v", err)
		}
	})
}

func TestLedgerDropped(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	lane.seal(rowsOf(t, s, 10, 20)...)
	l, m := acquire(t, s, lane.id)
	m = flush(t, l, lane.step(m, 1))
	d.exec("delete from walsink.lane")
	if e := refuse(t, l, lane.step(m, 2), sinks.Permanent); !strings.Contains(e.Error(), "entry") {
		t.Errorf("error %v", e)
	}
	if _, err := l.Mark(testContext(t)); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("mark: %v", err)
	}
	d.exec("drop schema walsink cascade")
	refuse(t, l, lane.step(m, 2), sinks.Permanent)
	if _, err := l.Mark(testContext(t)); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("mark: %v", err)
	}
	wantIDs(d, 0, 10)
}

func TestLedgerOfAnotherVersion(t *testing.T) {
	d := newDB(t, plainTable)
	d.open(postgres.Options{Table: "t"})
	d.exec("insert into walsink.version values (99)")
	_, err := postgres.Open(testContext(t), d.pool(d.dsn), postgres.Options{Table: "t"})
	if sinks.KindOf(err) != sinks.Permanent || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("open: %v", err)
	}
}

func TestEditedLedgerEntryIsRefused(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 1))
	d.exec("update walsink.lane set chain = '\\x00'::bytea || substr(chain, 2)")
	if _, err := l.Mark(testContext(t)); sinks.KindOf(err) != sinks.Permanent || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("mark: %v", err)
	}
}

func TestRoleWithPrintedPrivilegesOnly(t *testing.T) {
	d := newDB(t, plainTable)
	dsn := d.role("limited", "t")
	if _, err := postgres.Open(testContext(t), d.pool(dsn), postgres.Options{Table: "t", Ledger: "elsewhere"}); sinks.KindOf(err) != sinks.Permanent || !strings.Contains(err.Error(), "let another role make it") {
		t.Errorf("open without the right to create: %v", err)
	}
	if _, err := postgres.Open(testContext(t), d.pool(dsn), postgres.Options{Table: "t", Ledger: "elsewhere", NoCreateLedger: true}); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("open without ledger: %v", err)
	}
	s := d.openAt(dsn, postgres.Options{Table: "t", AuditRows: 1})
	lane := newTape("orders", "0")
	for i := range 70 {
		lane.seal(rowsOf(t, s, i, i+1)...)
	}
	l, m := acquire(t, s, lane.id)
	for m.Seq < 70 {
		m = flush(t, l, lane.step(m, m.Seq+1))
	}
	wantIDs(d, 0, 70)
	if _, err := s.Marks(testContext(t), "orders"); err != nil {
		t.Error(err)
	}
	d.exec("revoke insert on t from " + pgx.Identifier{one[string](d, "select rolname::text from pg_roles where rolname like 'limited%' limit 1")}.Sanitize())
	lane.seal(rowsOf(t, s, 70, 71)...)
	refuse(t, l, lane.step(m, 71), sinks.Permanent)
}

func TestP13Names(t *testing.T) {
	long := strings.Repeat("x", 63)
	dsn := servers.Postgres(t)
	for i, name := range []string{"plain", "a3.user", "Mixed Case", `quo"te`, "back\\slash", "emoji 🎉", "select", "it's", "$walsink$", long} {
		t.Run(name, func(t *testing.T) {
			schema := fmt.Sprintf("s %d.%s", i, name[:min(len(name), 20)])
			id := func(n ...string) string { return pgx.Identifier(n).Sanitize() }
			col := "col " + name[:min(len(name), 40)]
			d := dbAt(t, dsn, "create schema "+id(schema), fmt.Sprintf("create table %s (%s text, n int check (n <> 13))", id(schema, name), id(col)))
			for _, opts := range []postgres.Options{
				{Schema: schema, Table: name, Ledger: "led " + schema},
				{Schema: schema, Table: name, Ledger: "led " + schema, Mode: postgres.Upsert, Key: []string{col}},
			} {
				if opts.Mode == postgres.Upsert {
					d.exec(fmt.Sprintf("truncate %s", id(schema, name)))
					d.exec(fmt.Sprintf("alter table %s add primary key (%s)", id(schema, name), id(col)))
				}
				s := d.open(opts)
				lane := newTape("names-"+opts.Mode.String(), "0")
				for _, v := range []int{1, 13} {
					rec, err := s.AppendRow(nil, []any{"x", v})
					if err != nil {
						t.Fatal(err)
					}
					lane.seal(rec)
				}
				l, m := acquire(t, s, lane.id)
				m = flush(t, l, lane.step(m, 1))
				e := refuse(t, l, lane.step(m, 2), sinks.Poison)
				flush(t, l, lane.step(m, 2, e.Bad...))
				if n := one[int](d, "select count(*) from "+id(schema, name)); n != 1 {
					t.Errorf("%s: %d rows", opts.Mode, n)
				}
			}
		})
	}
	d := dbAt(t, dsn)
	for _, name := range []string{"", strings.Repeat("x", 64), "a\x00b"} {
		if _, err := postgres.Open(testContext(t), d.pool(d.dsn), postgres.Options{Table: name}); sinks.KindOf(err) != sinks.Permanent {
			t.Errorf("table %q: %v", name, err)
		}
	}
	d.exec(`create schema a3; create table a3."user" (id bigint)`)
	if _, err := postgres.Open(testContext(t), d.pool(d.dsn), postgres.Options{Table: "a3.user"}); !errors.Is(err, postgres.ErrTableMissing) {
		t.Errorf("a3.user as one name: %v", err)
	}
}

func TestP30DefaultsGeneratedAndIdentityColumns(t *testing.T) {
	d := newDB(t, `create table t (id bigint generated always as identity, at timestamptz not null default now(),
		name text, size int, twice int generated always as (2 * size) stored, serial bigserial)`)
	s := d.open(postgres.Options{Table: "t"})
	if got := s.Columns(); !slices.Equal(got, []string{"name", "size"}) {
		t.Fatalf("columns %v", got)
	}
	lane := newTape("orders", "0")
	for i := range 3 {
		rec, err := s.AppendJSON(nil, fmt.Appendf(nil, `{"name":"n","size":%d}`, i))
		if err != nil {
			t.Fatal(err)
		}
		lane.seal(rec)
	}
	if _, err := s.AppendJSON(nil, []byte(`{"name":"n","twice":3}`)); err == nil || !strings.Contains(err.Error(), "generated") {
		t.Errorf("generated column: %v", err)
	}
	if _, err := s.AppendJSON(nil, []byte(`{"name":"n","id":3}`)); err == nil || !strings.Contains(err.Error(), "Columns") {
		t.Errorf("identity column: %v", err)
	}
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 3))
	if n := one[int](d, "select count(*) from t where twice = 2 * size and at is not null and id = serial"); n != 3 {
		t.Errorf("%d rows", n)
	}
	named := d.open(postgres.Options{Table: "t", Columns: []string{"id", "name"}})
	lane = newTape("orders", "1")
	rec, err := named.AppendJSON(nil, []byte(`{"name":"n","id":77}`))
	if err != nil {
		t.Fatal(err)
	}
	lane.seal(rec)
	l, m = acquire(t, named, lane.id)
	flush(t, l, lane.step(m, 1))
	if n := one[int](d, "select count(*) from t where id = 77"); n != 1 {
		t.Errorf("%d rows", n)
	}
	if _, err := postgres.Open(testContext(t), d.pool(d.dsn), postgres.Options{Table: "t", Columns: []string{"twice"}}); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("generated column named: %v", err)
	}
}

func TestPartitionedTable(t *testing.T) {
	d := newDB(t, "create table t (id bigint, name text) partition by range (id)",
		"create table t1 partition of t for values from (0) to (10)", "create table t2 partition of t for values from (10) to (20)")
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 5, 15)...)
	lane.seal(rowsOf(t, s, 18, 22)...)
	l, m := acquire(t, s, lane.id)
	m = flush(t, l, lane.step(m, 1))
	wantIDs(d, 5, 15)
	e := refuse(t, l, lane.step(m, 2), sinks.Poison) // no partition for 20 and 21
	if got := fmt.Sprint(badNumbers(e)); got != "[2 3]" {
		t.Errorf("bad records %+v", e.Bad)
	}
}

func TestEmptySearchPathAndHostileSettings(t *testing.T) {
	d := newDB(t, plainTable)
	d.exec("do $$ begin execute format('alter database %I set search_path = ''''', current_database()); end $$")
	for _, setting := range []string{"bytea_output = 'escape'", "datestyle = 'German'", "timezone = 'Asia/Tokyo'", "standard_conforming_strings = off",
		"default_transaction_isolation = 'serializable'", "client_encoding = 'LATIN1'", "extra_float_digits = -5", "intervalstyle = 'sql_standard'", "default_transaction_read_only = on"} {
		if !strings.Contains(setting, "read_only") { // needed to create the ledger
			d.exec("do $$ begin execute format('alter database %I set " + strings.ReplaceAll(setting, "'", "''") + "', current_database()); end $$")
		}
	}
	s := d.open(postgres.Options{Schema: "public", Table: "t"})
	lane := newTape("orders", "0")
	recs := rowsOf(t, s, 0, 10)
	rec, err := s.AppendRow(nil, []any{10, "ä 🎉"})
	if err != nil {
		t.Fatal(err)
	}
	lane.seal(append(recs, rec)...)
	lane.seal(raw("a", "11")...)
	l, m := acquire(t, s, lane.id)
	m = flush(t, l, lane.step(m, 1))
	if e := refuse(t, l, lane.step(m, 2), sinks.Poison); len(e.Bad) != 1 || e.Bad[0].Field != "id" {
		t.Errorf("bad records %+v", e.Bad)
	}
	if got := one[string](d, "select name from public.t where id = 10"); got != "ä 🎉" {
		t.Errorf("text %q", got)
	}
	for a, err := range s.Audit(testContext(t), lane.id, 0) {
		if err != nil || a.Chain() != lane.batches[0].Chain() {
			t.Errorf("audit %+v %v", a, err)
		}
	}
}

func TestCreateRace(t *testing.T) {
	d := newDB(t)
	opts := postgres.Options{Table: "t", Create: true, Define: []postgres.Column{{Name: "id", Type: "bigint"}}}
	errs := make(chan error)
	for range 8 {
		go func() {
			_, err := postgres.Open(testContext(t), d.own, opts)
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestC117AuditRowsStayBounded(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.open(postgres.Options{Table: "t", AuditRows: 20})
	lane := newTape("orders", "0")
	l, m := acquire(t, s, lane.id)
	m0 := m
	for range 300 {
		lane.seal(raw("1")...)
		m = flush(t, l, lane.step(m, m.Seq+1))
		if n := one[int](d, "select count(*) from walsink.audit"); n > 20+64 {
			t.Fatalf("%d audit rows at batch %d", n, m.Seq)
		}
	}
	refuse(t, l, lane.step(m0, 1), sinks.Moved) // long pruned, still known to be in
	if n := one[int](d, "select count(*) from t"); n != 300 {
		t.Errorf("%d rows", n)
	}
}

// TestCreateFromSamples makes a table out of real data and loads all of it.
func TestCreateFromSamples(t *testing.T) {
	data, err := os.ReadFile("../../examples/data/earthquakes.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	columns, err := postgres.Infer(bytes.Lines(data))
	if err != nil {
		t.Fatal(err)
	}
	d := newDB(t)
	s := d.open(postgres.Options{Table: "quakes", Create: true, Define: columns})
	lane := newTape("quakes", "0")
	var recs [][]byte
	for line := range bytes.Lines(data) {
		rec, err := s.AppendJSON(nil, line)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, rec)
	}
	lane.seal(recs...)
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 1))
	if n := one[int](d, "select count(*) from quakes"); n != 1707 {
		t.Errorf("%d rows", n)
	}
	types := column[string](d, "select format('%s %s', attname, format_type(atttypid, atttypmod)) from pg_attribute where attrelid = 'quakes'::regclass and attname in ('id', 'mag', 'time', 'latitude', 'tsunami') order by 1")
	if got := fmt.Sprint(types); got != "[id text latitude double precision mag double precision time bigint tsunami bigint]" {
		t.Errorf("types %v", got)
	}
	var want float64
	for line := range bytes.Lines(data) {
		var q struct{ Mag float64 }
		if err := json.Unmarshal(line, &q); err != nil {
			t.Fatal(err)
		}
		want += q.Mag
	}
	if got := one[float64](d, "select sum(mag) from quakes"); math.Abs(got-want) > 1e-6 {
		t.Errorf("sum of magnitudes %v, want %v", got, want)
	}
}

// TestEntryHeldByAnotherRole locks a lane's row in a session that the sink's role
// may not end.
func TestEntryHeldByAnotherRole(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.openAt(d.role("limited", "t"), postgres.Options{Table: "t", Takeover: 50 * time.Millisecond})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	l, m := acquire(t, s, lane.id)
	release := d.hold("select from walsink.lane for update")
	if _, err := l.Mark(testContext(t)); sinks.KindOf(err) != sinks.Transient || !strings.Contains(err.Error(), "another role") {
		t.Errorf("mark: %v", err)
	}
	if _, _, err := s.Acquire(testContext(t), lane.id); sinks.KindOf(err) != sinks.Transient {
		t.Errorf("acquire: %v", err)
	}
	release()
	flush(t, l, lane.step(m, 1))
}
