package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

const testTimeout = 60 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// A db is a database with a connection pool that the sink does not use.
type db struct {
	t   testing.TB
	dsn string
	own *pgxpool.Pool
}

// newDB returns a fresh database in which ddl was run.
func newDB(t testing.TB, ddl ...string) *db {
	t.Helper()
	return dbAt(t, servers.Postgres(t), ddl...)
}

func dbAt(t testing.TB, dsn string, ddl ...string) *db {
	t.Helper()
	d := &db{t: t, dsn: dsn}
	d.own = d.pool(dsn)
	for _, text := range ddl {
		d.exec(text)
	}
	return d
}

func (d *db) pool(dsn string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	d.t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range change {
		c(cfg)
	}
	p, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(p.Close)
	return p
}

func (d *db) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.own.Exec(context.Background(), sql, args...); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

// one returns the single value of a query.
func one[T any](d *db, sql string, args ...any) T {
	d.t.Helper()
	var v T
	if err := d.own.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// column returns all rows of a query of one column.
func column[T any](d *db, sql string, args ...any) []T {
	d.t.Helper()
	rows, err := d.own.Query(context.Background(), sql, args...)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// open opens a sink on a pool of its own.
func (d *db) open(opts postgres.Options) *postgres.Sink {
	d.t.Helper()
	return d.openAt(d.dsn, opts)
}

func (d *db) openAt(dsn string, opts postgres.Options) *postgres.Sink {
	d.t.Helper()
	s, err := postgres.Open(testContext(d.t), d.pool(dsn), opts)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { s.Close() })
	return s
}

// A tape is the log of one lane: batches in order, with their records.
type tape struct {
	id      sinks.LaneID
	format  string
	head    record.Head
	batches []record.Batch
	records [][][]byte
}

func newTape(sink, lane string) *tape {
	id := sinks.LaneID{Sink: sink, Lane: lane}
	return &tape{id: id, format: "test", head: record.Head{Chain: id.Genesis()}}
}

// seal adds a batch.
func (l *tape) seal(recs ...[]byte) {
	h := record.NewHasher()
	h.Add(record.BlockOf(recs...))
	b := record.Batch{
		Seq: l.head.Seq + 1, Checkpoint: l.head.Checkpoint + 1, Prev: l.head.Chain,
		Records: h.Records(), Bytes: h.Bytes(), Digest: h.Sum(),
		Position: fmt.Appendf(nil, "position %d", l.head.Seq+1), Format: l.format, SealedAt: 1,
	}
	l.batches, l.records = append(l.batches, b), append(l.records, recs)
	l.head = b.Head()
}

// step makes the step that takes the batches after prev up to, and with, the one
// of seq last. Records whose coordinates are in dead go to the dead letters.
func (l *tape) step(prev sinks.Mark, last uint64, dead ...sinks.Reject) *sinks.Step {
	s := &sinks.Step{ID: l.id, Prev: prev, Next: prev}
	s.Next.Partial = nil
	isDead := func(batch int, n uint64) bool {
		for _, d := range dead {
			if d.Batch == batch && d.Number == n {
				return true
			}
		}
		return false
	}
	type part struct {
		batch int
		first uint64
		recs  [][]byte
	}
	var parts []part
	for seq := prev.Seq + 1; seq <= last; seq++ {
		b, i := l.batches[seq-1], len(s.Batches)
		a := sinks.Audit{Batch: b}
		from := uint64(0)
		if prev.Partial != nil && seq == prev.Seq+1 {
			from = prev.Partial.Done
			a.Dead = uint64(len(prev.Partial.Dead))
		}
		p := part{batch: i, first: from}
		for n := from; n < b.Records; n++ {
			rec := l.records[seq-1][n]
			if isDead(i, n) {
				a.Dead++
				s.Next.Dead++
				s.Dead = append(s.Dead, sinks.DeadLetter{Reject: sinks.Reject{Batch: i, Number: n, Code: "X", Reason: "bad", Field: "f"}, Checkpoint: b.Checkpoint, Record: rec})
				if len(p.recs) > 0 {
					parts = append(parts, p)
				}
				p = part{batch: i, first: n + 1}
				continue
			}
			p.recs = append(p.recs, rec)
			s.Records++
			s.Bytes += int64(len(rec))
		}
		if len(p.recs) > 0 {
			parts = append(parts, p)
		}
		s.Batches = append(s.Batches, a)
		h := b.Head()
		s.Next.Seq, s.Next.Chain, s.Next.Checkpoint, s.Next.Position = h.Seq, h.Chain, h.Checkpoint, h.Position
	}
	s.Next.Records += uint64(s.Records)
	s.Runs = func(yield func(sinks.Run, error) bool) {
		for _, p := range parts {
			if !yield(sinks.Run{Batch: p.batch, First: p.first, Block: record.BlockOf(p.recs...)}, nil) {
				return
			}
		}
	}
	return s
}

// chunk makes the step of records [from, to) of the batch after prev, which does
// not end in it.
func (l *tape) chunk(prev sinks.Mark, to uint64) *sinks.Step {
	b := l.batches[prev.Seq]
	from := uint64(0)
	if prev.Partial != nil {
		from = prev.Partial.Done
	}
	recs := l.records[prev.Seq][from:to]
	s := &sinks.Step{ID: l.id, Prev: prev, Next: prev, Batches: []sinks.Audit{{Batch: b}}, Records: int64(len(recs))}
	s.Next.Partial = &sinks.Partial{Batch: b, Done: to}
	s.Next.Records += uint64(len(recs))
	s.Runs = runsOf(sinks.Run{First: from, Block: record.BlockOf(recs...)})
	return s
}

func runsOf(runs ...sinks.Run) iter.Seq2[sinks.Run, error] {
	return func(yield func(sinks.Run, error) bool) {
		for _, r := range runs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func acquire(t testing.TB, s *postgres.Sink, id sinks.LaneID) (sinks.Lane, sinks.Mark) {
	t.Helper()
	l, m, err := s.Acquire(testContext(t), id)
	if err != nil {
		t.Fatal(err)
	}
	return l, m
}

// flush flushes and wants success.
func flush(t testing.TB, l sinks.Lane, s *sinks.Step) sinks.Mark {
	t.Helper()
	if _, err := l.Flush(testContext(t), s); err != nil {
		t.Fatal(err)
	}
	m := mark(t, l)
	if m.Tip() != s.Next.Tip() {
		t.Fatalf("mark after flush is %+v, want %+v", m, s.Next)
	}
	return m
}

func mark(t testing.TB, l sinks.Lane) sinks.Mark {
	t.Helper()
	m, err := l.Mark(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// refuse flushes and wants an error of the kind.
func refuse(t testing.TB, l sinks.Lane, s *sinks.Step, want sinks.Kind) *sinks.Error {
	t.Helper()
	_, err := l.Flush(testContext(t), s)
	e, ok := errors.AsType[*sinks.Error](err)
	if !ok || e.Kind != want {
		t.Fatalf("flush: %v, want kind %v", err, want)
	}
	return e
}

// rowsOf encodes ids from a range as records of a table (id bigint, name text).
func rowsOf(t testing.TB, s *postgres.Sink, from, to int) [][]byte {
	t.Helper()
	var recs [][]byte
	for id := from; id < to; id++ {
		rec, err := s.AppendRow(nil, []any{id, fmt.Sprintf("name %d", id)})
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, rec)
	}
	return recs
}

// fresh empties a database that several subtests share.
const fresh = "drop schema if exists walsink cascade; drop schema public cascade; create schema public"

const plainTable = "create table t (id bigint, name text)"

// wantIDs checks that t holds exactly the ids of [from, to), each once.
func wantIDs(d *db, from, to int) {
	d.t.Helper()
	ids := column[int64](d, "select id from t order by id")
	if lost, twice := compareIDs(ids, from, to); lost+twice > 0 {
		campaign.Figures{Lost: lost, Duplicated: twice}.Report(d.t)
	}
	if len(ids) != to-from {
		d.t.Fatalf("%d rows, want %d", len(ids), to-from)
	}
	for i, id := range ids {
		if id != int64(from+i) {
			d.t.Fatalf("row %d has id %d, want %d", i, id, from+i)
		}
	}
}

// compareIDs counts the numbers that are not among ids, and those that are there
// more than once.
func compareIDs(ids []int64, from, to int) (lost, twice int) {
	seen := make(map[int64]int, len(ids))
	for _, id := range ids {
		if seen[id]++; seen[id] > 1 {
			twice++
		}
	}
	for n := from; n < to; n++ {
		if seen[int64(n)] == 0 {
			lost++
		}
	}
	return lost, twice
}

const rolePassword = "canary-7b21"

// role makes a role that has only what the script of the ledger grants, and
// insert and select on the tables. It returns the role's connection string.
func (d *db) role(name string, tables ...string) string {
	d.t.Helper()
	role := fmt.Sprintf("%s_%s", name, one[string](d, "select current_database()"))
	d.exec("create role " + role + " login password '" + rolePassword + "'")
	d.t.Cleanup(func() { d.exec("drop owned by " + role); d.exec("drop role " + role) })
	d.exec(postgres.Script("", role))
	for _, table := range tables {
		d.exec("grant insert, select on " + table + " to " + role)
	}
	cfg, err := pgx.ParseConfig(d.dsn)
	if err != nil {
		d.t.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s:%s@%s:%d/%s?sslmode=disable", role, rolePassword, cfg.Host, cfg.Port, cfg.Database)
}
