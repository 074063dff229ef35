package postgres_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
	"github.com/walsink/walsink/wal"
)

// A job is a pipeline in a process of its own: this test binary, told by its
// environment to be one. The source is the numbers from 0; number n goes to lane
// n mod Lanes, as a row (n, lane).
type job struct {
	DSN   string
	Dir   string
	ID    string
	Lanes int
	To    int // numbers before this one
	Batch int // numbers per lane and checkpoint
	Chunk int64
	Dead  bool
	Retry int   // attempts at a step; 0: no end
	Audit int   // audit rows per lane that are kept
	Log   int64 // byte budget of the log
	Pad   int   // bytes added to each row
}

const jobVariable = "WALSINK_TEST_JOB"

// Exit codes of a job.
const (
	jobDone   = 0
	jobFailed = 4
	jobFenced = 5
)

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		os.Exit(runJob(text))
	}
	servers.Main(m)
}

func runJob(text string) int {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := j.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if sinks.KindOf(err) == sinks.Fenced {
			return jobFenced
		}
		return jobFailed
	}
	return jobDone
}

func (j job) laneName(n int) string { return fmt.Sprintf("%d", n) }

// open opens the output of the job.
func (j job) open(ctx context.Context) (*walsink.Output, *postgres.Sink, func(), error) {
	pool, err := pgxpool.New(ctx, j.DSN)
	if err != nil {
		return nil, nil, nil, err
	}
	opts := postgres.Options{Table: "t", Takeover: time.Second, StepBytes: j.Chunk, Chunked: j.Chunk > 0, AuditRows: j.Audit}
	s, err := postgres.Open(ctx, pool, opts)
	if err != nil {
		pool.Close()
		return nil, nil, nil, err
	}
	var lanes []string
	for n := range j.Lanes {
		lanes = append(lanes, j.laneName(n))
	}
	out, err := walsink.Open(ctx, s, walsink.Options{Dir: j.Dir, ID: j.ID, Lanes: lanes,
		Log: wal.Options{MaxBytes: j.Log, GenerationBytes: 1 << 20}, Logger: slog.New(slog.DiscardHandler),
		Flush: committer.Options{RetryMax: 200 * time.Millisecond, DeadLetters: j.Dead, MaxAttempts: j.Retry}})
	if err != nil {
		pool.Close()
		return nil, nil, nil, err
	}
	return out, s, func() { out.Close(); pool.Close() }, nil
}

// number makes the record of a number.
func (j job) number(s *postgres.Sink, dst []byte, n int) ([]byte, error) {
	return s.AppendRow(dst, []any{n, j.laneName(n%j.Lanes) + strings.Repeat("x", j.Pad)})
}

// run reads the source from where the output is to the end, and drains.
func (j job) run(ctx context.Context) error {
	out, s, done, err := j.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	next := 0
	if pos := out.Position(); pos != nil {
		if next, err = strconv.Atoi(string(pos)); err != nil {
			return fmt.Errorf("position %q: %w", pos, err)
		}
	}
	lanes := make([]*walsink.Lane, j.Lanes)
	for n := range lanes {
		if lanes[n], err = out.Lane(ctx, j.laneName(n)); err != nil {
			return err
		}
	}
	var rec []byte
	for ; next < j.To; next++ {
		lane := next % j.Lanes
		if rec, err = j.number(s, rec[:0], next); err != nil {
			return err
		}
		if err := lanes[lane].Append(ctx, rec); err != nil {
			return err
		}
		if (next+1)%(j.Batch*j.Lanes) == 0 {
			if _, err := out.Checkpoint(ctx, strconv.AppendInt(nil, int64(next+1), 10)); err != nil {
				return errors.Join(err, out.Err())
			}
		}
	}
	if _, err := out.Checkpoint(ctx, strconv.AppendInt(nil, int64(next), 10)); err != nil {
		return errors.Join(err, out.Err())
	}
	return out.Drain(ctx)
}

// build makes this test binary with the given build tags.
func build(t testing.TB, tags string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.test")
	if out, err := exec.Command("go", "test", "-c", "-tags", tags, "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// A process is a running job.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	err   strings.Builder
	ended chan struct{}
}

// start starts the job, in this binary if none is given.
func (j job) start(t testing.TB, bin string, env ...string) *process {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(cmp.Or(bin, os.Args[0])), ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), jobVariable+"="+string(text), "GOCOVERDIR="+t.TempDir()), env...)
	p.cmd.Stderr = &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the end and returns the exit code, -1 for a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(testTimeout):
		p.signal(syscall.SIGQUIT) // its stacks say why
		<-p.ended
		p.t.Fatalf("the job did not end: %s", &p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// finish runs the job to its end and wants success.
func (j job) finish(t testing.TB) {
	t.Helper()
	p := j.start(t, "")
	if code := p.wait(); code != jobDone {
		t.Fatalf("exit code %d: %s", code, &p.err)
	}
}

// until waits until a query says true.
func (d *db) until(what, sql string, args ...any) {
	d.t.Helper()
	ctx := testContext(d.t)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		var ok bool
		if err := d.own.QueryRow(ctx, sql, args...).Scan(&ok); err == nil && ok {
			return
		}
		select {
		case <-ctx.Done():
			d.t.Fatalf("no %s", what)
		case <-tick.C:
		}
	}
}

// watch polls the table until stop is closed, and reports a lane of which a
// reader could see anything but the first so many checkpoints.
func (d *db) watch(j job, stop <-chan struct{}) error {
	for n := 0; ; n++ {
		select {
		case <-stop:
			if n == 0 {
				return errors.New("the reader never read")
			}
			return nil
		default:
		}
		rows, err := d.own.Query(context.Background(), "select name, count(*), max(id) from t group by name")
		if err != nil {
			return err
		}
		for rows.Next() {
			var lane string
			var count, last int
			if err := rows.Scan(&lane, &count, &last); err != nil {
				rows.Close()
				return err
			}
			number, _ := strconv.Atoi(lane)
			if count%j.Batch != 0 || last != (count-1)*j.Lanes+number {
				rows.Close()
				return fmt.Errorf("reader saw %d rows of lane %s up to %d", count, lane, last)
			}
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
	}
}
