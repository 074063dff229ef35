//go:build linux

package file

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/campaign"
)

// A scenario is a run of events that no correct program minds. It returns what is
// wrong afterwards. The same scenarios are run on the program, which must stand
// them, and on builds with a planted bug, which must not. The maker makes the jobs, of
// one build.
type scenario func(t *testing.T, job maker) error

// A maker makes a job.
type maker func(t *testing.T) *rig

// normal makes jobs of the program.
func normal(t *testing.T) *rig {
	t.Helper()
	return newRig(t, normalBuild)
}

// scenarios are all of them, by the cases they stand for.
var scenarios = map[string]scenario{
	"C033 C039 limit of attempts": stuckLimit,
	"C110 E14 stuck store":        stuck,
	"C050 many runs":              manyRuns,
	"F06 F20 file in the way":     inTheWay,
	"Q09 killed while it is full": killedWhileFull,
}

func TestScenarios(t *testing.T) {
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := s(t, normal); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestE07E08Q16FrozenOwner has two owners, of which one was frozen and the other has
// a copy of its state directory: no lock keeps them apart, the ledger decides.
func TestE07E08Q16FrozenOwner(t *testing.T) {
	t.Parallel()
	if err := frozen(t, normal); err != nil {
		t.Fatal(err)
	}
}

// check is what is wrong with a job whose input has been read to its end.
func (r *rig) check(want []string) error {
	r.t.Helper()
	if res := r.run(); res.code != exitOK {
		return fmt.Errorf("last run: exit code %d: %s", res.code, res.stderr)
	}
	lanes := r.lanes()
	planted := slices.ContainsFunc(r.env, func(v string) bool { return strings.HasPrefix(v, "WALSINK_PLANT=") })
	if lost, twice := lanes.Count(want); lost+twice > 0 && !planted {
		campaign.Figures{Lost: lost, Duplicated: twice}.Report(r.t)
	}
	return lanes.Exact(want)
}

// manyRuns lets the input grow between runs.
func manyRuns(t *testing.T, job maker) error {
	r := job(t)
	r.flags = append(r.flags, killFlags...)
	in := newInput(t, r.input, 1000)
	for range 3 {
		if err := r.check(in.lines); err != nil {
			return err
		}
		in.grow(t, 1000)
	}
	return r.check(in.lines)
}

// stuck lets the store be full for a while. The log is the
// buffer. C110, E14.
func stuck(t *testing.T, job maker) error {
	r, in, store := stuckRig(t, job)
	p := r.start(r.runArgs()...)
	p.untilOrEnd(func() bool {
		said := p.stderr.String()
		return strings.Contains(said, "no space") || strings.Contains(said, "msg=progress")
	})
	store.free()
	p.killAfter(patience / 4)
	return r.check(in.lines)
}

// stuckLimit lets the store be full for more attempts than are allowed: the run
// ends with an error, and nothing is given up. C033, C039, E14.
func stuckLimit(t *testing.T, job maker) error {
	r, in, store := stuckRig(t, job)
	r.flags = append(r.flags, "--max-attempts", "3")
	p := r.start(r.runArgs()...)
	p.untilOrEnd(func() bool { return strings.Contains(p.stderr.String(), "msg=progress") })
	store.free()
	p.killAfter(patience / 4)
	return r.check(in.lines)
}

// killedWhileFull kills a process whose store is full. Q09.
func killedWhileFull(t *testing.T, job maker) error {
	r, in, store := stuckRig(t, job)
	r.flags = append(r.flags, "--generation-size", "1MiB", "--retain", "0s")
	in.grow(t, 40_000)
	p := r.start(r.runArgs()...)
	p.untilOrEnd(func() bool { return strings.Contains(p.stderr.String(), "records=50000") })
	p.killAfter(0)
	store.free()
	return r.check(in.lines)
}

// inTheWay puts a file where the next part is to go. F06, F20.
func inTheWay(t *testing.T, job maker) error {
	r := job(t)
	in := newInput(t, r.input, 100)
	if err := r.check(in.lines); err != nil {
		return err
	}
	in.grow(t, 100)
	way := r.nextPart()
	writeFile(t, way, "in the way\n")
	res := r.run()
	if got := readFile(t, way); got != "in the way\n" {
		return fmt.Errorf("the file in the way is now %.100q", got)
	}
	if res.code != exitStore || !strings.Contains(res.stderr, filepath.Base(way)) {
		return fmt.Errorf("exit code %d: %s", res.code, res.stderr)
	}
	rename(t, way, filepath.Join(r.dir, "moved"))
	return r.check(in.lines)
}

// frozen freezes a process, lets a second one work on a copy of its state
// directory, and thaws the first, whose writes must be refused. E07, E08, Q16.
func frozen(t *testing.T, job maker) error {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
		if err := frozenAfter(t, job, after); err != nil {
			return fmt.Errorf("frozen %v after the first part: %w", after, err)
		}
	}
	return nil
}

func frozenAfter(t *testing.T, job maker, after time.Duration) error {
	r := job(t)
	r.flags = append(r.flags, killFlags...)
	in := newInput(t, r.input, 100_000)
	first := r.start(r.runArgs()...)
	first.until("a part", func() bool { return r.parts() > 0 })
	<-time.After(after)
	first.signal(syscall.SIGSTOP)
	second := *r
	second.state = filepath.Join(r.dir, "copy")
	if out, err := exec.Command("cp", "-a", r.state, second.state).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	if err := second.check(in.lines); err != nil {
		return fmt.Errorf("the second process, while the first is frozen: %w", err)
	}
	first.signal(syscall.SIGCONT)
	if res := first.wait(); res.code != exitFenced || !strings.Contains(res.stderr, "what to do: ") {
		return fmt.Errorf("the first process, thawed: exit code %d: %s", res.code, res.stderr)
	}
	in.grow(t, 1000)
	return second.check(in.lines)
}
