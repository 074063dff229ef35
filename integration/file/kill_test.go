//go:build linux

package file

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/campaign"
)

// A killer runs a job again and again and kills it at random instants.
type killer struct {
	r    *rig
	in   *input
	rng  *rand.Rand
	max  time.Duration // of a life
	grow int           // records added when a run comes to its end

	killed, ended int
	refused       string // standard error of a run that ended with an error
}

// newKiller prints the seed, so that the schedule can be repeated.
func newKiller(r *rig, records int) *killer {
	return &killer{
		r: r, in: newInput(r.t, r.input, records), rng: rand.New(rand.NewPCG(campaign.Seed(r.t), 0)),
		max: 300 * time.Millisecond, grow: records,
	}
}

// cycle runs the job for 1 ms to k.max and kills it. Every other life is counted
// from the end of the start, which takes its time on a busy machine. It reports false
// if the job ended with an error.
func (k *killer) cycle() bool {
	life := time.Millisecond + time.Duration(k.rng.Int64N(int64(k.max)))
	p := k.r.start(k.r.runArgs()...)
	if k.killed%2 == 1 {
		p.untilOrEnd(func() bool { return strings.Contains(p.stderr.String(), "msg=guarantee") })
	}
	res := p.killAfter(life)
	switch res.code {
	case exitKilled:
		k.killed++
	case exitOK:
		k.ended++
		k.in.grow(k.r.t, k.grow)
	default:
		k.refused = res.stderr
		return false
	}
	return true
}

// report says what was done.
func (k *killer) report() {
	k.r.t.Helper()
	campaign.Figures{Cycles: k.killed, Rows: len(k.in.lines), Faults: map[string]int{"kill -9": k.killed}}.Report(k.r.t)
}

// cycles is n, or a tenth of it in a short run.
func cycles(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// killFlags make checkpoints frequent, so that a kill may hit any instant of one.
var killFlags = []string{"--lanes", "4", "--checkpoint-records", "500", "--checkpoint-interval", "10ms"}

// TestKill9 kills the real process at random instants. C101, E03, Q09.
func TestKill9(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	r.flags = killFlags
	k := newKiller(r, 15_000)
	begin := time.Now()
	for i := range cycles(200) {
		if !k.cycle() {
			t.Fatalf("cycle %d: %s", i, k.refused)
		}
		if i%20 == 19 {
			if err := r.lanes().Sound(k.in.lines); err != nil {
				t.Fatalf("cycle %d: %v", i, err)
			}
		}
	}
	landed := r.lanes().Len()
	if err := r.check(k.in.lines); err != nil {
		t.Fatal(err)
	}
	if landed == 0 {
		t.Error("no record landed before the last run: the lives are too short for the kills to mean anything")
	}
	if k.killed < cycles(200)/2 {
		t.Errorf("only %d of %d runs were killed: the input is too small for the kills to mean anything", k.killed, cycles(200))
	}
	t.Logf("%d kills, %d runs to the end, %d rows landed between kills, %d rows in all, exact, in %v",
		k.killed, k.ended, landed, len(k.in.lines), time.Since(begin).Round(time.Second))
	k.report()
}

// TestKill9StateLost kills the process and deletes its state directory, so that
// every start resumes from the ledger in the output. C103, C105.
func TestKill9StateLost(t *testing.T) {
	for _, lanes := range []string{"1", "4"} {
		t.Run(lanes+" lanes", func(t *testing.T) {
			t.Parallel()
			r := newRig(t, normalBuild)
			r.flags = append([]string{"--lanes", lanes}, killFlags[2:]...)
			k := newKiller(r, 8_000)
			for i := range cycles(60) {
				if !k.cycle() {
					t.Fatalf("cycle %d: %s", i, k.refused)
				}
				if err := os.RemoveAll(r.state); err != nil {
					t.Fatal(err)
				}
			}
			landed := r.lanes().Len()
			if err := r.check(k.in.lines); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d kills, %d runs to the end, %d rows landed between kills, %d rows in all, exact", k.killed, k.ended, landed, len(k.in.lines))
			k.report()
		})
	}
}
