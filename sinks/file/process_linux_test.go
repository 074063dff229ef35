package file

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/walsink/walsink/sinks"
)

// A job is what a child process of a test does: it acquires the lane and flushes the
// test source from the mark on, and says after each batch how far it is.
type job struct {
	Dir     string
	Batches int
	Recs    int // records per batch; 0 for newSource
	Opts    Options
	Op      int            // at this operation of the sink …
	After   bool           // … before it or after it …
	Signal  syscall.Signal // … the child sends itself this signal
	Files   uint64         // limit of open files, 0 for none
	Buckets int            // records go to that many buckets, if not 0
	Every   int            // … and, if not 0, at every so many operations after Op
	Confirm string         // file for the number of the last confirmed batch
}

// child runs a job in a process of its own and does not return.
func child(text string) {
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil && j.Files != 0 {
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: j.Files, Max: j.Files})
	}
	if err == nil {
		err = j.run()
	}
	if err != nil {
		fmt.Fprintf(os.Stdout, "%v: %v\n", sinks.KindOf(err), err)
		os.Exit(1)
	}
	fmt.Println("done")
	os.Exit(0)
}

func (j *job) source() source {
	switch {
	case j.Buckets > 0:
		return bucketSource(j.Batches, j.Recs, j.Buckets)
	case j.Recs > 0:
		return bigSource(j.Batches, j.Recs)
	}
	return newSource(j.Batches)
}

func (j *job) run() error {
	sink, err := Open(j.Dir, j.Opts)
	if err != nil {
		return err
	}
	if j.Op > 0 {
		sink.fs.wrap = j.wrap()
	}
	lane, mark, err := sink.Acquire(context.Background(), orders)
	if err != nil {
		return err
	}
	j.confirm(mark.Seq)
	for src := j.source(); mark.Seq < uint64(len(src)); {
		if _, err := lane.Flush(context.Background(), stepAfter(orders, mark, src[mark.Seq])); err != nil {
			return err
		}
		if mark, err = lane.Mark(context.Background()); err != nil {
			return err
		}
		j.confirm(mark.Seq)
	}
	return errors.Join(lane.Close(), sink.Close())
}

func (j *job) confirm(seq uint64) {
	fmt.Println("confirmed", seq)
	if j.Confirm != "" {
		if err := os.WriteFile(j.Confirm, fmt.Append(nil, seq), 0o600); err != nil {
			panic(err)
		}
	}
}

func (j *job) wrap() func(op, name string, do func() error) error {
	count := 0
	return func(_, _ string, do func() error) error {
		if count++; count < j.Op || count > j.Op && (j.Every == 0 || (count-j.Op)%j.Every != 0) {
			return do()
		}
		if !j.After {
			raise(j.Signal)
			return do()
		}
		err := do()
		raise(j.Signal)
		return err
	}
}

// raise sends a signal to the calling thread, so that it stops there and then.
func raise(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), s); err != nil {
		panic(err)
	}
}

// A proc is a running child.
type proc struct {
	t   testing.TB
	cmd *exec.Cmd
	out *bufio.Scanner
}

func start(t testing.TB, j job, env ...string) *proc {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "FILE_TEST_CHILD="+string(text))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &proc{t, cmd, bufio.NewScanner(out)}
}

// next returns the next line of the child, "" at its end.
func (p *proc) next() string {
	if !p.out.Scan() {
		return ""
	}
	return p.out.Text()
}

// wait reads to the end and returns the last confirmed batch and the last line.
func (p *proc) wait() (confirmed uint64, last string) {
	for line := p.next(); line != ""; line = p.next() {
		if n, ok := strings.CutPrefix(line, "confirmed "); ok {
			confirmed, _ = strconv.ParseUint(n, 10, 64)
		}
		last = line
	}
	_ = p.cmd.Wait() // the exit of a child that was killed is no news
	return confirmed, last
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// stopped waits until the child has stopped itself; false means that it ended.
func (p *proc) stopped() bool {
	var ws syscall.WaitStatus
	for {
		pid, err := syscall.Wait4(p.cmd.Process.Pid, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || pid != p.cmd.Process.Pid || !ws.Stopped():
			return false
		}
		return true
	}
}

// A process is killed before and after each of its operations; the next one
// finishes its work. That is also a kill at every write to every file that is ours,
// F11.
func TestC101KillAtEveryOperation(t *testing.T) {
	for after, opts := range map[bool]Options{false: {}, true: {Compress: "gzip"}} {
		for op := 1; ; op++ {
			dir := scratch(t)
			confirmed, last := start(t, job{Dir: dir, Batches: 2, Opts: opts, Op: op, After: after, Signal: syscall.SIGKILL}).wait()
			if last == "done" {
				break
			}
			if m := markOf(t, dir); m.Seq < confirmed {
				t.Fatalf("op %d: %d batches were confirmed, the mark is at %d", op, confirmed, m.Seq)
			}
			if err := newSource(2).run(dir, opts, nil); err != nil {
				t.Fatalf("op %d: %v", op, err)
			}
			wantConcat(t, dir, newSource(2).upTo(2))
			wantNoStaging(t, dir)
		}
	}
}

// A process is frozen by SIGSTOP at every third of its operations, another owner goes on
// meanwhile, and SIGCONT wakes the first.
func TestFrozenProcess(t *testing.T) {
	src := newSource(70)
	for op := 1; ; op += 3 {
		dir := scratch(t)
		p := start(t, job{Dir: dir, Batches: 3, Op: op, After: op%2 == 0, Signal: syscall.SIGSTOP})
		if !p.stopped() {
			_, last := p.wait()
			if last != "done" {
				t.Fatalf("op %d: %s", op, last)
			}
			break
		}
		if err := src[:int(markOf(t, dir).Seq)+66].run(dir, Options{}, nil); err != nil {
			t.Fatal(err)
		}
		m := markOf(t, dir)
		p.signal(syscall.SIGCONT)
		if _, last := p.wait(); last != "done" && !strings.HasPrefix(last, "fenced") {
			t.Fatalf("op %d: the thawed process says %q", op, last)
		}
		wantConcat(t, dir, src.upTo(max(m.Seq, 3)))
	}
}

// F12: 500 buckets in one checkpoint, larger than the memory for them, with 64
// descriptors.
func TestF12FewDescriptors(t *testing.T) {
	dir := scratch(t)
	j := job{Dir: dir, Batches: 2, Recs: 5000, Buckets: 500, Opts: Options{Buckets: true, Compress: "zstd"}, Files: 64}
	if _, last := start(t, j).wait(); last != "done" {
		t.Fatal(last)
	}
	parts := visible(t, dir)
	if len(parts) != 1000 {
		t.Errorf("%d parts, want 1000", len(parts))
	}
	wantBuckets(t, dir, j.source())
}

// F03 by a real user: a ledger that must not be read is not an empty one.
func TestF03NoPermission(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	base, err := os.MkdirTemp("", "walsink-file-") //nolint:usetesting // the parent of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "out")
	acquire(t, dir, Options{}).flush(lines(1, "a"))
	exe, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(filepath.Join(base, "child"), exe, 0o755)
	}
	if err = errors.Join(err, os.Chmod(base, 0o755), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(job{Dir: dir, Batches: 1})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(base, "child"))
	cmd.Env = []string{"FILE_TEST_CHILD=" + string(text)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err == nil || !strings.HasPrefix(string(out), "permanent: ") || !strings.Contains(string(out), "permission") {
		t.Errorf("%v: %s", err, out)
	}
	wantConcat(t, dir, "a\n")
}
