//go:build linux

package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink/integration/oracle"
	"github.com/walsink/walsink/internal/campaign"
)

// Exit codes of the command, as its documentation has them. They are repeated
// here on purpose: a change of the table must break a test.
const (
	exitOK          = 0
	exitBug         = 1
	exitUsage       = 2
	exitInput       = 3
	exitStore       = 4
	exitFenced      = 5
	exitLedger      = 6
	exitState       = 7
	exitInUse       = 8
	exitInterrupted = 9
	exitGuarantee   = 10
	exitKilled      = -1
)

// patience bounds whatever a test waits for.
const patience = 2 * time.Minute

var binDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "walsink-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binDir = dir
	result := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(result)
}

// The three builds of the command, each made when the first test asks for it.
var (
	normalBuild = sync.OnceValues(func() (string, error) { return build("walsink", race()...) })
	plantBuild  = sync.OnceValues(func() (string, error) { return build("walsink-plant", "-tags=plant") })
	crashBuild  = sync.OnceValues(func() (string, error) { return build("walsink-crash", "-tags=crashpoints") })
)

// race is the flag for the race detector, where there is the C compiler it needs. A
// campaign is about instants, of which a fast process has more, and goes without.
func race() []string {
	out, err := exec.Command("go", "env", "CC").Output()
	cc := strings.Fields(string(out))
	if err != nil || len(cc) == 0 || campaign.Long() {
		return nil
	}
	if _, err := exec.LookPath(cc[0]); err != nil {
		return nil
	}
	return []string{"-race"}
}

func build(name string, flags ...string) (string, error) {
	bin := filepath.Join(binDir, name)
	args := append([]string{"build", "-o", bin}, flags...)
	out, err := exec.Command("go", append(args, "github.com/walsink/walsink/cmd/walsink")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build %v: %w\n%s", flags, err, out)
	}
	return bin, nil
}

// A rig is one job: a binary, its input, its directories and its command line.
type rig struct {
	t     *testing.T
	bin   string
	dir   string
	input string
	out   string
	state string
	opts  string   // of the destination, after '?'
	flags []string // of run, beside from, to and state
	env   []string
	attr  *syscall.SysProcAttr
}

// newRig returns a job in a directory of its own, with the build that which makes.
func newRig(t *testing.T, which func() (string, error)) *rig {
	t.Helper()
	bin, err := which()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return &rig{
		t: t, bin: bin, dir: dir, input: filepath.Join(dir, "in.ndjson"), out: filepath.Join(dir, "out"),
		state: filepath.Join(dir, "state"), opts: "format=ndjson",
	}
}

// A result is how a process ended.
type result struct {
	code   int
	stdout string
	stderr string
}

// A proc is a running process.
type proc struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr *watched
	ended  chan struct{}
}

// start starts the command with args.
func (r *rig) start(args ...string) *proc {
	r.t.Helper()
	p := &proc{t: r.t, cmd: exec.Command(r.bin, args...), stderr: newWatched(), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.SysProcAttr = r.dir, r.attr
	p.cmd.Env = append(os.Environ(), append(r.env, "GORACE=atexit_sleep_ms=0")...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the result says how it ended
	}()
	r.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// runArgs are the arguments of the job's run.
func (r *rig) runArgs(more ...string) []string {
	args := []string{"run", "--from", "ndjson:" + r.input, "--to", "file:" + r.out + "?" + r.opts, "--state", r.state}
	return append(append(args, r.flags...), more...)
}

// run runs the job to its end.
func (r *rig) run(more ...string) result {
	r.t.Helper()
	return r.start(r.runArgs(more...)...).wait()
}

// exec runs the command with args to its end.
func (r *rig) exec(args ...string) result {
	r.t.Helper()
	return r.start(args...).wait()
}

// wait waits for the end.
func (p *proc) wait() result {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.ended
		p.t.Fatalf("%v did not end within %v:\n%s", p.cmd.Args, patience, p.stderr)
	}
	return result{code: p.cmd.ProcessState.ExitCode(), stdout: p.stdout.String(), stderr: p.stderr.String()}
}

// killAfter kills the process, with no chance to do anything, when d has passed,
// unless it has ended before.
func (p *proc) killAfter(d time.Duration) result {
	select {
	case <-p.ended:
	case <-time.After(d):
		_ = p.cmd.Process.Kill()
	}
	return p.wait()
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// until waits until cond holds; it looks again whenever a little time has passed.
func (p *proc) until(what string, cond func() bool) {
	p.t.Helper()
	if p.untilOrEnd(cond) && !cond() {
		p.t.Fatalf("the process ended before %s:\n%s", what, p.stderr)
	}
}

// untilOrEnd waits until cond holds or the process has ended, which it reports.
func (p *proc) untilOrEnd(cond func() bool) (ended bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-p.ended:
			return true
		case <-ctx.Done():
			p.t.Fatalf("what the test waits for did not come within %v:\n%s", patience, p.stderr)
		case <-tick.C:
		}
	}
	return false
}

// want fails the test unless the process ended with code and its standard error
// has all of texts.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d:\n%s", r.code, code, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("standard error has no %q:\n%s", text, r.stderr)
		}
	}
}

// A watched is a buffer that is written by one goroutine and read by another.
type watched struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func newWatched() *watched { return &watched{} }

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// lanes reads the job's output.
func (r *rig) lanes() oracle.Lanes {
	r.t.Helper()
	lanes, err := oracle.Read(r.out, laneOf)
	if err != nil {
		r.t.Fatal(err)
	}
	return lanes
}

// exact fails the test unless the output is the input.
func (r *rig) exact(want []string) {
	r.t.Helper()
	if err := r.lanes().Exact(want); err != nil {
		r.t.Fatalf("output is not the input: %v\n%s", err, r.ledger())
	}
}

// ledger is what the command says about the ledger, for messages.
func (r *rig) ledger() string {
	r.t.Helper()
	return r.exec("ledger", "--to", "file:"+r.out).stdout
}

// laneOf takes bucket and lane out of a part's path: bucket/sink+lane+checkpoint+number.
func laneOf(part string) (string, error) {
	dir, name := filepath.Split(part)
	f := strings.Split(name, "+")
	if len(f) != 4 {
		return "", fmt.Errorf("part %q: want four fields with '+' between", part)
	}
	return dir + f[1], nil
}
