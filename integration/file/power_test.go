//go:build linux

package file

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/loopdev"
)

// TestC100PowerCut cuts the power of a running job, whose state and output are on
// devices of their own, at random moments: the same command line on what the disks
// then have ends with every record once. C100, B10, F09.
func TestC100PowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("needs loop devices and some seconds")
	}
	for _, fs := range []struct{ state, out string }{{"ext4", "xfs"}, {"xfs", "ext4"}} {
		t.Run(fs.state+" and "+fs.out, func(t *testing.T) {
			r := newRig(t, normalBuild)
			r.flags = append(slices.Clip(killFlags), "--generation-size", "1MiB", "--retain", "0s")
			in := newInput(t, r.input, 20_000)
			state, out := loopdev.New(t, fs.state, 320), loopdev.New(t, fs.out, 320)
			r.state, r.out = filepath.Join(state.Dir(), "log"), filepath.Join(out.Dir(), "out")
			cuts, rows, want := 0, 0, 3
			if campaign.Long() {
				want = 60
			}
			rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
			for cuts < want && !t.Failed() {
				n := r.cutPower(rng, in, state, out)
				cuts, rows = cuts+n, rows+n*len(in.lines)
				in.grow(t, 10_000)
			}
			what := fmt.Sprintf("power cut, state on %s, output on %s", fs.state, fs.out)
			campaign.Figures{Cycles: cuts, Rows: rows, Faults: map[string]int{what: cuts}}.Report(t)
		})
	}
}

// cutPower runs the job, cuts the power at moments of it, and returns how often.
func (r *rig) cutPower(rng *rand.Rand, in *input, state, out *loopdev.Device) (cuts int) {
	r.t.Helper()
	p := r.start(r.runArgs()...)
	for {
		select {
		case <-p.ended:
			p.wait().want(r.t, exitOK)
			r.exact(in.lines)
			return cuts
		case <-time.After(time.Duration(20+rng.IntN(150)) * time.Millisecond):
		}
		if !loopdev.Freeze(r.t, p.cmd.Process) {
			continue
		}
		r.t.Run("cut", func(t *testing.T) {
			after := *r
			after.t = t
			after.state = filepath.Join(state.Snapshot(t).Dir(), "log")
			after.out = filepath.Join(out.Snapshot(t).Dir(), "out")
			if err := after.lanes().Sound(in.lines); err != nil {
				t.Fatal(err)
			}
			if err := after.check(in.lines); err != nil {
				t.Fatal(err)
			}
		})
		cuts++
		p.signal(syscall.SIGCONT)
		if r.t.Failed() {
			return cuts
		}
	}
}
