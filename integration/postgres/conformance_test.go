package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink/faults"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
	"github.com/walsink/walsink/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	for name, opts := range map[string]postgres.Options{
		"insert":  {},
		"chunked": {Chunked: true, StepBytes: 100_000},
		"upsert":  {Mode: postgres.Upsert, Key: []string{"lane", "payload"}},
	} {
		t.Run(name, func(t *testing.T) { sinktest.Run(t, conformance(t, opts)) })
	}
}

func BenchmarkConformance(b *testing.B) { sinktest.Bench(b, conformance(b, postgres.Options{})) }

// conformance keeps records in a table with a column for the lane and one that tells
// the order. Its sinks reach the server through a proxy.
func conformance(t testing.TB, opts postgres.Options) sinktest.Harness {
	d := newDB(t, `create table t (n bigint generated always as identity, lane text, payload bytea,
		check (substr(payload, 1, 4) <> 'bad '))`)
	if opts.Key != nil {
		d.exec("alter table t add primary key (lane, payload)")
	}
	cutter, dsn := d.through()
	opts.Table, opts.Columns, opts.Takeover = "t", []string{"lane", "payload"}, 100*time.Millisecond
	pool := d.pool(dsn, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.ConnectTimeout = 20, time.Second })
	open := func(t testing.TB) sinks.Sink {
		s, err := postgres.Open(testContext(t), pool, opts)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	encoder := open(t).(*postgres.Sink)
	encode := func(id sinks.LaneID, payload []byte) []byte {
		rec, err := encoder.AppendRow(nil, []any{id.String(), payload})
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	return sinktest.Harness{
		Open: open,
		Visible: func(_ testing.TB, id sinks.LaneID) [][]byte {
			return column[[]byte](d, "select payload from t where lane = $1 order by n", id.String())
		},
		Encode: encode,
		Binary: len(opts.Key) == 0, // an index does not take a megabyte
		Bad: func(id sinks.LaneID, payload []byte) []byte {
			return encode(id, slices.Concat([]byte("bad "), payload))
		},
		DeadLetters: d.letters,
		Snapshot: func(testing.TB) func() {
			return d.snapshot("t", "walsink.lane", "walsink.audit", "walsink.dead_letter")
		},
		Break: func(t testing.TB) func() {
			cutter.Refuse()
			cutter.ResetAll()
			return func() { mend(t, cutter) }
		},
		LoseAnswers: func(t testing.TB) func() {
			tripped := cutter.Arm(faults.Cut{Dir: faults.ToServer, Match: "commit\x00", Do: faults.LoseAnswer})
			return func() {
				select {
				case <-tripped:
				default:
					t.Error("no answer was lost")
				}
				mend(t, cutter)
			}
		},
	}
}

func mend(t testing.TB, cutter *faults.Cutter) {
	if err := cutter.Heal(); err != nil {
		t.Fatal(err)
	}
}

func (d *db) letters(t testing.TB, id sinks.LaneID) []sinks.DeadLetter {
	t.Helper()
	rows, err := d.own.Query(testContext(t), `select checkpoint, number, record from walsink.dead_letter
		where sink = $1 and lane = $2 order by seq, number`, id.Sink, id.Lane)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l sinks.DeadLetter, err error) {
		err = row.Scan(&l.Checkpoint, &l.Number, &l.Record)
		return l, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// snapshot remembers the contents of the tables.
func (d *db) snapshot(tables ...string) (restore func()) {
	d.exec("drop schema if exists backup cascade; create schema backup")
	name := func(table string) string { return pgx.Identifier{"backup", table}.Sanitize() }
	for _, table := range tables {
		d.exec("create table " + name(table) + " as table " + table)
	}
	return func() {
		for _, table := range tables {
			d.exec("truncate " + table)
			d.exec("insert into " + table + " overriding system value table " + name(table))
		}
	}
}
