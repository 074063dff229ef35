//go:build linux

package file

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/walsink/walsink/internal/campaign"
)

// A callFault makes the n-th call of a system call fail, in each thread of its own.
// Which threads come that far differs from run to run.
type callFault struct {
	call, errno string
	nth         int
}

func (f callFault) String() string { return fmt.Sprintf("%s:%s:%d", f.call, f.errno, f.nth) }

// shared are the calls that the run-time system makes for itself as well. They fail
// only on files of the job.
var shared = []string{"openat", "mmap", "close"}

// faultyCalls are the calls that fail, with the highest n that is tried.
var faultyCalls = map[string]int{
	"write": 12, "pwrite64": 12, "fsync": 16, "fdatasync": 20, "msync": 6, "sync_file_range": 2, "openat": 30,
	"rename": 2, "renameat": 4, "renameat2": 6, "linkat": 2, "ftruncate": 6, "fallocate": 6, "mkdirat": 8,
	"unlinkat": 8, "mmap": 8, "close": 40,
}

// callFlags give several lanes, checkpoints and generations.
var callFlags = []string{"--lanes", "2", "--checkpoint-records", "1000", "--generation-size", "1MiB", "--retain", "0s"}

// newCallRig returns a job of a few generations, and skips without strace.
func newCallRig(t *testing.T) (*rig, *input) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skipf("needs strace: %v", err)
	}
	r := newRig(t, normalBuild)
	r.flags = callFlags
	return r, newInput(t, r.input, 12_000)
}

// traced runs the job under strace, to which args go, and returns the log of strace.
func (r *rig) traced(args ...string) (result, []string) {
	r.t.Helper()
	log := filepath.Join(r.t.TempDir(), "strace")
	args = slices.Concat([]string{"-f", "-y", "-qq", "-o", log}, args, []string{r.bin}, r.runArgs())
	under := *r
	under.bin, under.attr = "strace", &syscall.SysProcAttr{Setpgid: true}
	p := under.start(args...)
	r.t.Cleanup(func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }) // what outlives strace
	res := p.wait()
	f, err := os.Open(log)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	var calls []string
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		calls = append(calls, in.Text())
	}
	if err := in.Err(); err != nil {
		r.t.Fatal(err)
	}
	return res, calls
}

// paths are the files of the job that a run uses, as far as they are called the same
// in each run.
func (r *rig) paths() []string {
	r.t.Helper()
	res, calls := r.traced("-e", "trace=openat,close,mmap,mkdirat")
	res.want(r.t, exitOK)
	found := map[string]bool{}
	for _, call := range calls {
		for _, m := range regexp.MustCompile(`[<"](/[^>" ]*)[>"]`).FindAllStringSubmatch(call, -1) {
			if strings.HasPrefix(m[1], r.out) || strings.HasPrefix(m[1], r.state) {
				found[m[1]] = true
			}
		}
	}
	r.clear()
	return slices.Sorted(maps.Keys(found))
}

// clear removes what the job has written.
func (r *rig) clear() {
	r.t.Helper()
	if err := errors.Join(os.RemoveAll(r.out), os.RemoveAll(r.state)); err != nil {
		r.t.Fatal(err)
	}
}

// injected are the faults in the log of strace. It reports false if one of them was
// in a call that is none of the job's.
func (r *rig) injected(calls []string) (found []string, own bool) {
	own = true
	for _, call := range calls {
		if strings.Contains(call, "(INJECTED)") {
			found = append(found, call)
			own = own && (strings.Contains(call, r.out) || strings.Contains(call, r.state) || strings.Contains(call, "msync("))
		}
	}
	return found, own
}

// try runs the job with the fault and then without one. It returns how many calls
// failed; none if that is not to be judged, because none did or a foreign one.
func (f callFault) try(r *rig, in *input, paths []string) (faults int, err error) {
	r.t.Helper()
	args := []string{"-e", "trace=" + f.call, "-e", fmt.Sprintf("inject=%s:error=%s:when=%d", f.call, f.errno, f.nth)}
	if slices.Contains(shared, f.call) {
		for _, path := range paths {
			args = append(args, "-P", path)
		}
	}
	res, calls := r.traced(args...)
	found, own := r.injected(calls)
	defer func() {
		if err != nil {
			err = fmt.Errorf("%v: %w\n%s\n%s", f, err, strings.Join(found, "\n"), res.stderr)
		}
	}()
	if own {
		faults = len(found)
		if err := judge(res, found); err != nil {
			return faults, err
		}
	}
	if err := r.lanes().Sound(in.lines); err != nil {
		return faults, err
	}
	if res.code == exitOK {
		if err := r.lanes().Exact(in.lines); err != nil {
			return faults, fmt.Errorf("the run says that it is done: %w", err)
		}
	}
	return faults, r.recovers(in.lines)
}

// recovers runs the job after calls have failed: it ends well, with every record once.
func (r *rig) recovers(want []string) error {
	r.t.Helper()
	if res := r.run(); res.code != exitOK {
		return fmt.Errorf("the run after it: exit code %d: %s", res.code, res.stderr)
	}
	return r.check(want)
}

// judge says what is wrong with the end of a run in which calls failed.
func judge(res result, found []string) error {
	for _, bad := range []string{"panic", "fatal error", "goroutine ", "DATA RACE"} {
		if strings.Contains(res.stderr, bad) {
			return fmt.Errorf("standard error has %q", bad)
		}
	}
	switch res.code {
	case exitOK:
		return nil
	case exitStore, exitState:
		if !strings.Contains(res.stderr, "what to do: ") {
			return fmt.Errorf("exit code %d without advice", res.code)
		}
		return nil
	case exitBug:
		// Badger ends the process itself if it cannot map this file.
		if strings.Contains(res.stderr, "while opening file: DISCARD") {
			return nil
		}
	}
	return fmt.Errorf("exit code %d after %d failed calls", res.code, len(found))
}

// TestCallsFail makes system calls of the log and of the output fail. The run ends
// well, or with an exit code that says what failed; the run after it ends well, with
// every record once. B32.
func TestCallsFail(t *testing.T) {
	for _, f := range []callFault{
		{"write", "EIO", 3}, {"pwrite64", "EIO", 2}, {"pwrite64", "ENOSPC", 6}, {"fsync", "EIO", 5}, {"fdatasync", "EIO", 4}, {"msync", "EIO", 3}, {"renameat2", "EIO", 1},
		{"fallocate", "ENOSPC", 2}, {"ftruncate", "EIO", 2}, {"mkdirat", "ENOSPC", 1}, {"unlinkat", "EIO", 2},
	} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			r, in := newCallRig(t)
			n, err := f.try(r, in, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d calls failed", n)
		})
	}
}

// TestManifestIsNotSynced makes the sync fail that ends the closing of a generation:
// what was acknowledged is in the log that the closing has not removed, and the next run
// goes on from there.
func TestManifestIsNotSynced(t *testing.T) {
	for _, generation := range []string{"gen-00000002", "gen-00000003"} {
		t.Run(generation, func(t *testing.T) {
			t.Parallel()
			r, in := newCallRig(t)
			manifest := filepath.Join(r.state, generation, "MANIFEST")
			res, calls := r.traced("-P", manifest, "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=1")
			if found, _ := r.injected(calls); len(found) != 1 {
				t.Fatalf("%d calls failed: %q", len(found), calls)
			}
			if err := judge(res, calls); err != nil || res.code == exitOK {
				t.Fatalf("exit code %d: %v\n%s", res.code, err, res.stderr)
			}
			if err := r.recovers(in.lines); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestNoSpaceWhereItWasTaken makes a write of blocks fail for which there is room: the
// log has failed, and waiting for more room would never end.
func TestNoSpaceWhereItWasTaken(t *testing.T) {
	r, in := newCallRig(t)
	blocks := filepath.Join(r.state, "gen-00000002", "BLOCKS")
	res, calls := r.traced("-P", blocks, "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC:when=2+")
	if found, _ := r.injected(calls); len(found) == 0 {
		t.Fatalf("no call failed: %q", calls)
	}
	if res.code != exitState || !strings.Contains(res.stderr, "what to do: ") {
		t.Fatalf("exit code %d: %s", res.code, res.stderr)
	}
	if err := r.recovers(in.lines); err != nil {
		t.Fatal(err)
	}
}

// TestRandomCallsFail does the same with calls drawn by lot.
func TestRandomCallsFail(t *testing.T) {
	r, in := newCallRig(t)
	trials := 2
	if campaign.Long() {
		trials = 60
	}
	rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
	paths, names := r.paths(), slices.Sorted(maps.Keys(faultyCalls))
	var sum campaign.Figures
	for tried := 0; sum.Cycles < trials && tried < 4*trials; tried++ {
		name := names[rng.IntN(len(names))]
		f := callFault{name, []string{"EIO", "ENOSPC"}[rng.IntN(2)], 1 + rng.IntN(faultyCalls[name])}
		n, err := f.try(r, in, paths)
		if err != nil {
			t.Fatal(err)
		}
		r.clear()
		if n > 0 {
			sum.Add(campaign.Figures{Cycles: 1, Rows: len(in.lines), Faults: map[string]int{f.call + " " + f.errno: n}})
		}
	}
	if sum.Cycles == 0 {
		t.Error("no call failed")
	}
	sum.Report(t)
}
