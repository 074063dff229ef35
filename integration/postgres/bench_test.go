package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/sinks/postgres"
	"github.com/walsink/walsink/wal"
)

// Each benchmark runs its work through walsink and through its baseline by turns,
// and reports the ratio: x-... is the time of walsink over that of the baseline.

// A table of the benchmarks has three columns of about 100 bytes. The second
// column is what differs: as text a time would be slow to read for the server.
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

// direct copies rows from up to to by pgx, in transactions of size rows.
func direct(b *testing.B, d *db, t benchTable, from, to, size int) time.Duration {
	b.Helper()
	began := time.Now()
	for ; from < to; from += size {
		i, end := from-1, min(from+size, to)
		src := pgx.CopyFromFunc(func() ([]any, error) {
			if i++; i == end {
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
	}
	return time.Since(began)
}

// A bench is an output into the table t.
type bench struct {
	b     *testing.B
	table benchTable
	sink  *postgres.Sink
	out   *walsink.Output
	buf   []byte
}

// through opens an output on a ledger and a log without anything. The budget is
// that of the log, 0 for the default.
func through(b *testing.B, d *db, t benchTable, budget int64) *bench {
	b.Helper()
	d.exec("truncate t; drop schema if exists walsink cascade")
	s, err := postgres.Open(b.Context(), d.own, postgres.Options{Table: "t"})
	if err != nil {
		b.Fatal(err)
	}
	out, err := walsink.Open(b.Context(), s, walsink.Options{
		Dir: b.TempDir(), ID: "bench" + strconv.Itoa(os.Getpid()), Log: wal.Options{MaxBytes: budget}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	return &bench{b: b, table: t, sink: s, out: out}
}

func (b *bench) append(n int) {
	var err error
	if b.buf, err = b.sink.AppendRow(b.buf[:0], b.table.row(n)); err == nil {
		err = b.out.Append(context.Background(), b.buf)
	}
	if err != nil {
		b.b.Fatal(err)
	}
}

func (b *bench) checkpoint() {
	if _, err := b.out.Checkpoint(context.Background(), nil); err != nil {
		b.b.Fatal(err)
	}
}

func (b *bench) drain() {
	if err := b.out.Drain(context.Background()); err != nil {
		b.b.Fatal(err)
	}
}

func (b *bench) close() {
	if err := b.out.Close(); err != nil {
		b.b.Fatal(err)
	}
}

// wantRows checks that t holds n rows, each once.
func wantRows(b *testing.B, d *db, n int) {
	b.Helper()
	if got := one[int](d, "select count(distinct id) filter (where id between 0 and $1) + count(*) from t", n-1); got != 2*n {
		b.Fatalf("%d rows and different ones, want twice %d", got, n)
	}
}

// loadBudget is what a source without a brake appends within two seconds, at most: it
// is held to what the server takes, since what is open and what waits for its flush
// share the budget. Without it the log takes all at once, and most of the run is a
// backlog that the server works off alone.
const loadBudget = 640 << 20

// BenchmarkLoad is a steady state of one checkpoint per second, long enough for the
// first and the last second, in which only one side has work, not to be the figure.
// The baseline is one COPY in one transaction.
func BenchmarkLoad(b *testing.B) {
	for _, t := range benchTables {
		b.Run(t.name, func(b *testing.B) { load(b, t) })
	}
}

func load(b *testing.B, t benchTable) {
	d := newDB(b, t.ddl)
	const rows = 12_000_000
	var plain, sink, last time.Duration
	var peak uint64
	for b.Loop() {
		d.exec("truncate t")
		plain += direct(b, d, t, 0, rows, rows)
		w := through(b, d, t, loadBudget)
		began := time.Now()
		due := began.Add(time.Second)
		for i := range rows {
			w.append(i)
			if i%1000 == 0 && time.Now().After(due) {
				w.checkpoint()
				due = due.Add(time.Second)
			}
		}
		sealed := time.Now()
		w.checkpoint()
		w.drain()
		sink += time.Since(began)
		last += time.Since(sealed)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.Sys)
		w.close()
		wantRows(b, d, rows)
	}
	n := float64(b.N)
	b.ReportMetric(float64(sink)/float64(plain), "x-direct")
	b.ReportMetric(rows*n/plain.Seconds(), "direct-rows/s")
	b.ReportMetric(rows*n/sink.Seconds(), "walsink-rows/s")
	b.ReportMetric(float64(last.Milliseconds())/n, "seal-to-visible-ms")
	b.ReportMetric(float64(peak)/(1<<20), "MB")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSmall takes a checkpoint every 1,000 rows, as fast as that goes. The
// baseline puts every 1,000 rows into a transaction.
func BenchmarkSmall(b *testing.B) {
	t := benchTables[1]
	d := newDB(b, t.ddl)
	const rows, size = 1_000_000, 1000
	var plain, sink time.Duration
	for b.Loop() {
		d.exec("truncate t")
		plain += direct(b, d, t, 0, rows, size)
		w := through(b, d, t, 0)
		began := time.Now()
		for i := range rows {
			w.append(i)
			if (i+1)%size == 0 {
				w.checkpoint()
			}
		}
		w.drain()
		sink += time.Since(began)
		w.close()
		wantRows(b, d, rows)
	}
	n := float64(b.N)
	b.ReportMetric(float64(sink)/float64(plain), "x-direct")
	b.ReportMetric(rows/size*n/sink.Seconds(), "checkpoints/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLatency is the time from when a checkpoint of 1,000 rows is sealed until
// the store shows them, with nothing else going on, and, as x-whole-..., the time
// from the call of Checkpoint, which waits for the fsyncs of the log. The baseline is
// one COPY and COMMIT.
func BenchmarkLatency(b *testing.B) {
	t := benchTables[1]
	d := newDB(b, t.ddl)
	const size = 1000
	w := through(b, d, t, 0)
	var plain, sink, whole []time.Duration
	for i := 0; b.Loop(); i++ {
		for n := range size {
			w.append(2*i*size + n)
		}
		began := time.Now()
		w.checkpoint()
		sealed := time.Now()
		w.drain()
		sink, whole = append(sink, time.Since(sealed)), append(whole, time.Since(began))
		plain = append(plain, direct(b, d, t, (2*i+1)*size, (2*i+2)*size, size))
	}
	w.close()
	wantRows(b, d, 2*len(sink)*size)
	at := func(times []time.Duration, percent int) float64 {
		slices.Sort(times)
		return times[(len(times)-1)*percent/100].Seconds() * 1000
	}
	for _, percent := range []int{50, 99} {
		b.ReportMetric(at(sink, percent)/at(plain, percent), fmt.Sprintf("x-p%d", percent))
		b.ReportMetric(at(whole, percent)/at(plain, percent), fmt.Sprintf("x-whole-p%d", percent))
		b.ReportMetric(at(sink, percent), fmt.Sprintf("p%d-ms", percent))
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBacklog takes rows in while the server is down, and measures the time
// from when it is up until all are in. The baseline is one COPY of as many rows.
// stall-ms is the longest that an append or a checkpoint took meanwhile. The server
// is down for 10 seconds, in the long form for 60.
func BenchmarkBacklog(b *testing.B) {
	t := benchTables[1]
	server := servers.StartPostgres(b)
	down := 10 * time.Second
	if campaign.Long() {
		down = time.Minute
	}
	const rate = 500_000 // rows per second: about half of what one COPY takes
	var plain, sink, stall time.Duration
	d := dbAt(b, server.Database(), t.ddl)
	for b.Loop() {
		w := through(b, d, t, 0)
		server.Stop()
		rows := int(down.Seconds()) * rate
		began := time.Now()
		for i := range rows {
			if i%1000 == 0 {
				<-time.After(time.Until(began.Add(time.Duration(i) * time.Second / rate)))
			}
			at := time.Now()
			w.append(i)
			if (i+1)%rate == 0 {
				w.checkpoint()
			}
			stall = max(stall, time.Since(at))
		}
		server.Start()
		up := time.Now()
		w.drain()
		sink += time.Since(up)
		w.close()
		d.own.Reset()
		wantRows(b, d, rows)
		d.exec("truncate t")
		plain += direct(b, d, t, 0, rows, rows)
	}
	b.ReportMetric(float64(sink)/float64(plain), "x-direct")
	b.ReportMetric(float64(stall.Milliseconds()), "stall-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRun is the command with 1,000,000 records of four fields. The baseline
// is \copy of psql of the same rows as CSV.
func BenchmarkRun(b *testing.B) {
	psql, err := exec.LookPath("psql")
	if err != nil {
		b.Skip("no psql, which is the baseline")
	}
	const rows = 1_000_000
	dir := b.TempDir()
	bin := filepath.Join(dir, "walsink")
	command(b, "go", "build", "-o", bin, "github.com/walsink/walsink/cmd/walsink")
	var lines, csv bytes.Buffer
	for i := range rows {
		at := time.Unix(1_700_000_000+int64(i), 0).UTC().Format(time.RFC3339)
		fmt.Fprintf(&lines, `{"id":%d,"at":%q,"value":%d.25,"name":%q}`+"\n", i, at, i%1000, benchName[:40])
		fmt.Fprintf(&csv, "%d,%s,%d.25,%s\n", i, at, i%1000, benchName[:40])
	}
	input, table := filepath.Join(dir, "rows.ndjson"), filepath.Join(dir, "rows.csv")
	for name, data := range map[string][]byte{input: lines.Bytes(), table: csv.Bytes()} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	d := newDB(b, "create table t (id bigint, at timestamptz, value double precision, name text)")
	to := d.dsn + "?"
	if strings.Contains(d.dsn, "?") {
		to = d.dsn + "&"
	}
	var plain, sink time.Duration
	for b.Loop() {
		d.exec("truncate t")
		plain += command(b, psql, d.dsn, "-q", "-c", `\copy t from '`+table+`' csv`)
		d.exec("truncate t; drop schema if exists walsink cascade")
		state := b.TempDir()
		sink += command(b, bin, "run", "--from", "ndjson:"+input, "--to", to+"table=t", "--state", state)
		wantRows(b, d, rows)
	}
	b.ReportMetric(float64(sink)/float64(plain), "x-psql")
	b.ReportMetric(rows*float64(b.N)/sink.Seconds(), "walsink-rows/s")
	b.ReportMetric(0, "ns/op")
}

// command runs a program and returns how long it took.
func command(b *testing.B, name string, args ...string) time.Duration {
	b.Helper()
	began := time.Now()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", filepath.Base(name), err, out)
	}
	return time.Since(began)
}
