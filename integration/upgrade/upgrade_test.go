package upgrade_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/file"
	"github.com/walsink/walsink/sources"
	"github.com/walsink/walsink/wal"
)

// jobs is the number of the newest fixture of a job.
const jobs = 2

var update = flag.Bool("update", false, "write fixtures that are missing")

func TestMain(m *testing.M) { servers.Main(m) }

var (
	logOptions = wal.Options{GenerationBytes: 1 << 20}
	quiet      = slog.New(slog.DiscardHandler)
)

const (
	records = 120
	stopAt  = 70 // record at which the earlier version stopped
	intake  = 2  // steps of each lane that its store took
	keys    = 7
)

var errStop = errors.New("stopped")

// A cutSource ends with an error at a record.
type cutSource struct {
	pipeline.Source
	left int
}

func (s *cutSource) Read(ctx context.Context, limit int) ([][]byte, error) {
	if s.left == 0 {
		return nil, errStop
	}
	recs, err := s.Source.Read(ctx, min(limit, s.left))
	s.left -= len(recs)
	return recs, err
}

// A cutSink takes so many steps of each lane, and no more. With a format, that is the
// one of its records.
type cutSink struct {
	sinks.Sink
	sinks.Ledger
	intake int
	format string
}

func (s cutSink) Info() sinks.Info {
	info := s.Sink.Info()
	info.Format = cmp.Or(s.format, info.Format)
	return info
}

// Takes lets batches of any format come to Flush.
func (s cutSink) Takes(string) bool { return true }

type cutLane struct {
	sinks.Lane
	left int
}

func (s cutSink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, m, err := s.Sink.Acquire(ctx, id)
	return &cutLane{l, s.intake}, m, err
}

func (l *cutLane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	if l.left == 0 {
		return sinks.Result{}, &sinks.Error{Kind: sinks.Transient, Op: "flush", Err: errStop}
	}
	l.left--
	return l.Lane.Flush(ctx, step)
}

// count emits a record with the count of its key.
func count(key, rec, state []byte, emit pipeline.Emit) ([]byte, error) {
	n := uint64(1)
	if state != nil {
		n += binary.BigEndian.Uint64(state)
	}
	if err := emit(fmt.Appendf(nil, `{"key":%q,"count":%d,"record":%s}`, key, n, rec)); err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint64(nil, n), nil
}

func key(n int) string { return fmt.Sprint("k", n*n%keys) }

// job is the pipeline over everything in dir.
func job(t *testing.T, dir string, cut bool) *pipeline.Pipeline {
	t.Helper()
	var recs [][]byte
	for n := range records {
		recs = append(recs, fmt.Appendf(nil, `{"key":%q,"n":%d}`, key(n), n))
	}
	out, err := file.Open(filepath.Join(dir, "out"), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	storage, err := checkpoint.OpenDir(filepath.Join(dir, "checkpoints"), 2)
	if err != nil {
		t.Fatal(err)
	}
	opts := walsink.Options{
		Dir: filepath.Join(dir, "log"), ID: "job", Logger: quiet, Log: logOptions,
		Flush: committer.Options{StepBytes: 1}, // a batch is a step
	}
	source, sink := pipeline.Source(sources.NewMemory(recs)), sinks.Sink(out)
	if cut {
		source, sink = &cutSource{source, stopAt}, cutSink{Sink: out, Ledger: out, intake: intake}
	}
	return &pipeline.Pipeline{
		Sources: []pipeline.Input{{Name: "numbers", Source: source}},
		Stages:  []pipeline.Stage{pipeline.Keyed("count", pipeline.MemoryState{}, count)},
		Outputs: []pipeline.Sink{pipeline.Walsink("files", sink, opts, file.Line)},
		Lanes:   2, Route: pipeline.ByField("key"), Storage: storage, Logger: quiet,
		Checkpoints: checkpoint.Options{Records: 10}, Require: pipeline.ExactlyOnce,
	}
}

// unpack returns a copy of the directory in an archive.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// pack writes an archive of dir.
func pack(t *testing.T, archive, dir string) {
	t.Helper()
	if out, err := exec.Command("tar", "--sparse", "--owner=0", "--group=0", "-czf", archive, "-C", dir, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// archives returns the archives of a kind of fixture, up to that of number newest.
// With -update it lets write make the newest if it is not there.
func archives(t *testing.T, kind string, newest int, write func(archive string)) []string {
	t.Helper()
	var all []string
	for n := range newest {
		all = append(all, fmt.Sprintf("testdata/%s-%d.tar.gz", kind, n+1))
	}
	if _, err := os.Stat(all[newest-1]); *update && errors.Is(err, fs.ErrNotExist) {
		write(all[newest-1])
	}
	return all
}

func writeJob(t *testing.T, archive string) {
	dir := t.TempDir()
	if _, err := job(t, dir, true).Run(t.Context()); !errors.Is(err, errStop) {
		t.Fatalf("the job should have been stopped: %v", err)
	}
	pack(t, archive, dir)
}

// rows reads the parts, lane by lane and in order.
func rows(t *testing.T, dir string) (all []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "out", "*.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")...)
	}
	return all
}

// jobHoldings are those of the fixtures. The last ten records came after checkpoint 6
// and were never sealed.
var jobHoldings = map[string][]string{
	"testdata/job-1.tar.gz": jobBatches,
	"testdata/job-2.tar.gz": jobBatches,
}

var jobBatches = []string{
	"000: batch 1, checkpoint 1, 4 records of file 1 ndjson: flushed",
	"000: batch 2, checkpoint 2, 5 records of file 1 ndjson: flushed",
	"000: batch 3, checkpoint 3, 4 records of file 1 ndjson: pending",
	"000: batch 4, checkpoint 4, 5 records of file 1 ndjson: pending",
	"000: batch 5, checkpoint 5, 4 records of file 1 ndjson: pending",
	"000: batch 6, checkpoint 6, 4 records of file 1 ndjson: pending",
	"001: batch 1, checkpoint 1, 6 records of file 1 ndjson: flushed",
	"001: batch 2, checkpoint 2, 5 records of file 1 ndjson: flushed",
	"001: batch 3, checkpoint 3, 6 records of file 1 ndjson: pending",
	"001: batch 4, checkpoint 4, 5 records of file 1 ndjson: pending",
	"001: batch 5, checkpoint 5, 6 records of file 1 ndjson: pending",
	"001: batch 6, checkpoint 6, 6 records of file 1 ndjson: pending",
}

// TestUpgradeJob goes on from what an earlier version left, and ends with each row once,
// in order, with the right counts (Q04).
func TestUpgradeJob(t *testing.T) {
	for _, archive := range archives(t, "job", jobs, func(archive string) { writeJob(t, archive) }) {
		t.Run(filepath.Base(archive), func(t *testing.T) { goOnWithJob(t, archive) })
	}
}

func goOnWithJob(t *testing.T, archive string) {
	dir := unpack(t, archive)
	out, err := file.Open(filepath.Join(dir, "out"), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := holdings(t, filepath.Join(dir, "log"), out); !slices.Equal(got, jobHoldings[archive]) {
		t.Errorf("the fixture holds %q", got)
	}
	out.Close()
	dir = unpack(t, archive)
	before := rows(t, dir)
	if len(before) == 0 || len(before) >= stopAt {
		t.Fatalf("the fixture has %d rows in, of %d records", len(before), stopAt)
	}
	sum, err := job(t, dir, false).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if sum.Skipped == 0 || !sum.Ended {
		t.Errorf("the job began from the start: %+v", sum)
	}
	counts := map[string]int{}
	var want []string
	for n := range records {
		counts[key(n)]++
		want = append(want, fmt.Sprintf(`{"key":%q,"count":%d,"record":{"key":%q,"n":%d}}`, key(n), counts[key(n)], key(n), n))
	}
	got := rows(t, dir)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d rows, want %d: %q", len(got), len(want), got)
	}
}

// TestNewerFormatIsRefused: files of a format that this version does not know are
// named, and stay as they are.
func TestNewerFormatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files string // that are made newer
		from  string
		to    string
		sum   bool // a checksum is at the end
		want  error
	}{
		"log":        {"log/FORMAT", "walsink log 2", "walsink log 3", false, wal.ErrFormat},
		"checkpoint": {"checkpoints/checkpoint-*", "walsink checkpoint\n\x01", "walsink checkpoint\n\x02", true, checkpoint.ErrVersion},
	} {
		t.Run(name, func(t *testing.T) {
			dir := unpack(t, fmt.Sprintf("testdata/job-%d.tar.gz", jobs))
			names, err := filepath.Glob(filepath.Join(dir, c.files))
			if err != nil || len(names) == 0 {
				t.Fatal(names, err)
			}
			for _, name := range names {
				b, err := os.ReadFile(name)
				if err != nil || !strings.HasPrefix(string(b), c.from) {
					t.Fatalf("%s: %v", name, err)
				}
				b = append([]byte(c.to), b[len(c.from):]...)
				if c.sum {
					body := b[:len(b)-4]
					b = binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
				}
				if err := os.WriteFile(name, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := rows(t, dir)
			if _, err := job(t, dir, false).Run(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if !slices.Equal(rows(t, dir), before) {
				t.Error("rows have changed")
			}
		})
	}
}
