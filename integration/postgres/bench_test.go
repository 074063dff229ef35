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

const benchTable = "create table t (id bigint, at timestamptz, name text)"

var benchName = strings.Repeat("some text of no meaning ", 4)[:80]

// benchRow is row n: three columns of about 100 bytes.
func benchRow(n int) []any {
	return []any{int64(n), time.UnixMicro(1_700_000_000_000_000 + int64(n)), benchName}
}

// direct copies n rows by pgx in one transaction.
func direct(b *testing.B, d *db, n int) time.Duration {
	b.Helper()
	began := time.Now()
	i := -1
	src := pgx.CopyFromFunc(func() ([]any, error) {
		if i++; i == n {
			return nil, nil
		}
		return benchRow(i), nil
	})
	err := pgx.BeginFunc(b.Context(), d.own, func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(b.Context(), pgx.Identifier{"t"}, []string{"id", "at", "name"}, src)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// throughSink appends n rows with a checkpoint every second, and drains. It
// returns the time from the first append to the last row visible.
func throughSink(b *testing.B, d *db, n int) (took, latency time.Duration) {
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
		if buf, err = s.AppendRow(buf[:0], benchRow(i)); err != nil {
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
	d := newDB(b, benchTable)
	const rows = 1_000_000
	var plain, sink, last time.Duration
	var peak uint64
	for b.Loop() {
		d.exec("truncate t")
		plain += direct(b, d, rows)
		d.exec("truncate t; drop schema if exists walsink cascade")
		took, latency := throughSink(b, d, rows)
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

// BenchmarkFormats copies the same rows, encoded before, in the text and the
// binary format of COPY, to show what the choice of text costs.
func BenchmarkFormats(b *testing.B) {
	d := newDB(b, benchTable)
	s := d.open(postgres.Options{Table: "t"})
	const rows = 500_000
	var text []byte
	binary := []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for i := range rows {
		var err error
		if text, err = s.AppendRow(text, benchRow(i)); err != nil {
			b.Fatal(err)
		}
		binary = appendBinary(binary, i)
	}
	binary = append(binary, 0xff, 0xff)
	conn, err := d.own.Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	for _, f := range []struct {
		name string
		data []byte
	}{{"text", text}, {"binary", binary}} {
		b.Run(f.name, func(b *testing.B) {
			for b.Loop() {
				d.exec("truncate t")
				if _, err := conn.Conn().PgConn().CopyFrom(b.Context(), strings.NewReader(string(f.data)), "copy t from stdin with (format "+f.name+")"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func appendBinary(dst []byte, n int) []byte {
	put := func(v uint64, size int) {
		for i := size - 1; i >= 0; i-- {
			dst = append(dst, byte(v>>(8*i)))
		}
	}
	const epoch = 946_684_800_000_000 // 2000-01-01 in microseconds
	put(3, 2)
	put(8, 4)
	put(uint64(n), 8)
	put(8, 4)
	put(uint64(1_700_000_000_000_000+n-epoch), 8)
	put(uint64(len(benchName)), 4)
	return append(dst, benchName...)
}
