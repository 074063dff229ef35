package postgres_test

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks/postgres"
)

// A table of the benchmarks has three columns of about 100 bytes. The second
// column is what differs: the server reads a number quickly and a time slowly.
type benchTable struct {
	name, ddl string
	second    func(n int) any
}

var benchTables = []benchTable{
	{"bigint", "create table t (id bigint, v bigint, name text)", func(n int) any { return int64(n) << 20 }},
	{"timestamptz", "create table t (id bigint, v timestamptz, name text)", func(n int) any { return time.UnixMicro(1_700_000_000_000_000 + int64(n)) }},
}

var benchName = strings.Repeat("some text of no meaning ", 4)[:80]

func (t benchTable) row(n int) []any { return []any{int64(n), t.second(n), benchName} }

// direct copies n rows by pgx in one transaction.
func direct(b *testing.B, d *db, t benchTable, n int) time.Duration {
	b.Helper()
	began := time.Now()
	i := -1
	src := pgx.CopyFromFunc(func() ([]any, error) {
		if i++; i == n {
			return nil, nil
		}
		return t.row(i), nil
	})
	err := pgx.BeginFunc(b.Context(), d.own, func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(b.Context(), pgx.Identifier{"t"}, []string{"id", "v", "name"}, src)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// throughSink appends n rows with a checkpoint every second, and drains. It
// returns the time from the first append to the last row visible.
func throughSink(b *testing.B, d *db, t benchTable, n int) (took, latency time.Duration) {
	b.Helper()
	ctx := context.Background()
	s, err := postgres.Open(ctx, d.own, postgres.Options{Table: "t"})
	if err != nil {
		b.Fatal(err)
	}
	out, err := walsink.Open(ctx, s, walsink.Options{Dir: b.TempDir(), ID: "bench" + strconv.Itoa(os.Getpid()), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	began := time.Now()
	due := began.Add(time.Second)
	buf := make([]byte, 0, 1024)
	for i := range n {
		if buf, err = s.AppendRow(buf[:0], t.row(i)); err != nil {
			b.Fatal(err)
		}
		if err := out.Append(ctx, buf); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 0 && time.Now().After(due) {
			if _, err := out.Checkpoint(ctx, nil); err != nil {
				b.Fatal(err)
			}
			due = due.Add(time.Second)
		}
	}
	sealed := time.Now()
	if _, err := out.Checkpoint(ctx, nil); err != nil {
		b.Fatal(err)
	}
	if err := out.Drain(ctx); err != nil {
		b.Fatal(err)
	}
	return time.Since(began), time.Since(sealed)
}

// BenchmarkLoad puts the same rows into the same server by COPY of pgx in one
// transaction and through walsink, by turns, and reports both.
func BenchmarkLoad(b *testing.B) {
	for _, t := range benchTables {
		b.Run(t.name, func(b *testing.B) { load(b, t) })
	}
}

func load(b *testing.B, t benchTable) {
	d := newDB(b, t.ddl)
	const rows = 2_000_000
	var plain, sink, last time.Duration
	var peak uint64
	for b.Loop() {
		d.exec("truncate t")
		plain += direct(b, d, t, rows)
		d.exec("truncate t; drop schema if exists walsink cascade")
		took, latency := throughSink(b, d, t, rows)
		sink += took
		last += latency
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.Sys)
		if n := one[int](d, "select count(distinct id) from t"); n != rows {
			b.Fatalf("%d rows", n)
		}
	}
	n := float64(b.N)
	b.ReportMetric(float64(sink)/float64(plain), "x-direct")
	b.ReportMetric(rows*n/plain.Seconds(), "direct-rows/s")
	b.ReportMetric(rows*n/sink.Seconds(), "walsink-rows/s")
	b.ReportMetric(float64(last.Milliseconds())/n, "seal-to-visible-ms")
	b.ReportMetric(float64(peak)/(1<<20), "MB")
	b.ReportMetric(0, "ns/op")
}
