package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// A fork is a pipeline with outputs over real logs, each in a store of its own.
type fork struct {
	t      *testing.T
	dir    string
	recs   []string
	stores map[string]*memory.Store
}

func newFork(t *testing.T, recs []string) *fork {
	return &fork{t: t, dir: t.TempDir(), recs: recs, stores: map[string]*memory.Store{}}
}

func (f *fork) store(name string) *memory.Store {
	if f.stores[name] == nil {
		f.stores[name] = memory.NewStore()
	}
	return f.stores[name]
}

func (f *fork) sink(name string, start Start) Sink {
	return f.over(name, start, memory.Open(f.store(name), memory.Options{}))
}

func (f *fork) over(name string, start Start, sink sinks.Sink) Sink {
	s := Walsink(name, sink, options(filepath.Join(f.dir, name), "job"), nil)
	s.Start = start
	return s
}

// pipeline reads the first n records.
func (f *fork) pipeline(n int, outs ...Sink) *Pipeline {
	return &Pipeline{
		Sources: []Input{input("a", f.recs[:n])}, Outputs: outs, Lanes: 2, Route: ByField("key"), Logger: quiet(),
		Checkpoints: checkpoint.Options{Records: 100},
	}
}

func (f *fork) run(n int, outs ...Sink) error {
	f.t.Helper()
	_, err := f.pipeline(n, outs...).Run(f.t.Context())
	return err
}

// check compares a store with the records from one number up to another.
func (f *fork) check(name string, from, to int) {
	f.t.Helper()
	got := landed(f.t, f.store(name))
	slices.Sort(got)
	if want := sorted(f.recs[from:to]); !slices.Equal(got, want) {
		f.t.Errorf("output %s has %d records, want those from %d to %d: %s", name, len(got), from, to, diff(got, want))
	}
}

// TestOutputIsToldByAnother: an output that never hears of a checkpoint gets its records
// after the next start.
func TestOutputIsToldByAnother(t *testing.T) {
	recs := numbers("a", 1000, 5)
	one, two := newFakeStore(), newFakeStore()
	storage := &checkpoint.Memory{}
	two.failDone = func(uint64) error { return errNotice } // the second never hears of a checkpoint
	both := func() *Pipeline {
		p := statelessPipeline(one, storage, recs, 2)
		p.Outputs = append(p.Outputs, two.sink("two"))
		return p
	}
	if _, err := both().Run(t.Context()); !errors.Is(err, errNotice) {
		t.Fatal(err)
	}
	if len(one.all()) != 1000 || len(two.all()) != 0 {
		t.Fatal(len(one.all()), len(two.all()))
	}
	two.failDone = nil
	if _, err := both().Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(one.all(), two.all()) || len(two.all()) != 1000 {
		t.Error(len(one.all()), len(two.all()))
	}
}

// TestOutputIsAdded: an output that comes new into a pipeline at work is refused, until
// it is said where it begins. It loses its log afterwards, and still begins there.
func TestOutputIsAdded(t *testing.T) {
	f := newFork(t, numbers("a", 1000, 7))
	if err := f.run(300, f.sink("one", 0)); err != nil {
		t.Fatal(err)
	}
	err := f.run(500, f.sink("one", 0), f.sink("two", 0))
	if !errors.Is(err, ErrNewOutput) || !strings.Contains(err.Error(), "output two") {
		t.Fatal(err)
	}
	if marks, err := memory.Open(f.store("two"), memory.Options{}).Marks(t.Context(), "job"); err != nil || len(marks) > 0 {
		t.Fatalf("a refusal left %v, %v", marks, err)
	}
	if err := f.run(500, f.sink("two", StartBeginning), f.sink("one", 0), f.sink("three", StartNow)); err != nil {
		t.Fatal(err)
	}
	f.check("one", 0, 500)
	f.check("two", 0, 500)
	f.check("three", 300, 500)
	if err := os.RemoveAll(filepath.Join(f.dir, "three")); err != nil {
		t.Fatal(err)
	}
	if err := f.run(600, f.sink("three", 0), f.sink("two", 0), f.sink("one", 0)); err != nil {
		t.Fatal(err)
	}
	f.check("one", 0, 600)
	f.check("two", 0, 600)
	f.check("three", 300, 600)
}

// TestOutputThatStartsNowBeginsWhereTheOthersStand also when nothing was read since, and
// its log is lost before it gets anything.
func TestOutputThatStartsNowBeginsWhereTheOthersStand(t *testing.T) {
	f := newFork(t, numbers("a", 1000, 7))
	if err := f.run(300, f.sink("one", 0)); err != nil {
		t.Fatal(err)
	}
	if err := f.run(300, f.sink("one", 0), f.sink("two", StartNow)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(f.dir, "two")); err != nil {
		t.Fatal(err)
	}
	if err := f.run(700, f.sink("two", 0), f.sink("one", 0)); err != nil {
		t.Fatal(err)
	}
	f.check("one", 0, 700)
	f.check("two", 300, 700)
}

// TestOutputIsAddedBesideState: it can begin where the state is, and nowhere else.
func TestOutputIsAddedBesideState(t *testing.T) {
	f := newFork(t, numbers("a", 600, 7))
	storage := &checkpoint.Memory{}
	run := func(n int, outs ...Sink) error {
		p := f.pipeline(n, outs...)
		p.Stages, p.Storage = []Stage{Keyed("count", MemoryState{}, count)}, storage
		_, err := p.Run(t.Context())
		return err
	}
	if err := run(300, f.sink("one", 0)); err != nil {
		t.Fatal(err)
	}
	if err := run(600, f.sink("one", 0), f.sink("two", 0)); !errors.Is(err, ErrNewOutput) {
		t.Errorf("unsaid: %v", err)
	}
	if err := run(600, f.sink("one", 0), f.sink("three", StartBeginning)); !errors.Is(err, committer.ErrStateBehind) {
		t.Errorf("at the beginning: %v", err)
	}
	if err := run(600, f.sink("one", 0), f.sink("two", StartNow)); err != nil {
		t.Fatal(err)
	}
	if one, two := landed(t, f.store("one")), landed(t, f.store("two")); len(one) != 600 || len(two) != 300 {
		t.Errorf("%d and %d records, want 600 and 300", len(one), len(two))
	}
}

// TestOutputGoesAndComesBack: an output that was left out for a while goes on where it
// stood, and the others get nothing twice.
func TestOutputGoesAndComesBack(t *testing.T) {
	f := newFork(t, numbers("a", 1000, 7))
	both := func() []Sink { return []Sink{f.sink("one", 0), f.sink("two", 0)} }
	if err := f.run(200, both()...); err != nil {
		t.Fatal(err)
	}
	if err := f.run(650, f.sink("one", 0)); err != nil {
		t.Fatal(err)
	}
	f.check("two", 0, 200)
	if err := f.run(1000, both()...); err != nil {
		t.Fatal(err)
	}
	f.check("one", 0, 1000)
	f.check("two", 0, 1000)
}

// TestBegunByAnother: an output that was new when it was looked at, and is not any more
// when the others are open, goes on where another process has brought it.
func TestBegunByAnother(t *testing.T) {
	f := newFork(t, numbers("a", 1000, 7))
	if err := f.run(500, f.sink("one", 0), f.sink("two", 0)); err != nil {
		t.Fatal(err)
	}
	two := f.sink("two", 0)
	open, looks := two.Open, 0
	two.Open = func(ctx context.Context, r Restored) (Output, error) {
		if looks++; looks == 1 {
			return nil, walsink.ErrNew
		}
		return open(ctx, r)
	}
	if err := f.run(1000, f.sink("one", 0), two); err != nil {
		t.Fatal(err)
	}
	f.check("one", 0, 1000)
	f.check("two", 0, 1000)
}

// unheard is an output that does not hear of complete checkpoints.
type unheard struct{ *landing }

func (unheard) Complete(context.Context, uint64) error { return errNotice }

// TestCrashBetweenNotices: the output that was told tells the other one at the next
// start, so that nothing is read again.
func TestCrashBetweenNotices(t *testing.T) {
	f := newFork(t, numbers("a", 500, 7))
	deaf := f.sink("two", 0)
	open := deaf.Open
	deaf.Open = func(ctx context.Context, r Restored) (Output, error) {
		out, err := open(ctx, r)
		if err != nil {
			return nil, err
		}
		return unheard{out.(*landing)}, nil
	}
	if err := f.run(500, f.sink("one", 0), deaf); !errors.Is(err, errNotice) {
		t.Fatal(err)
	}
	f.check("two", 0, 0)
	sum, err := f.pipeline(500, f.sink("one", 0), f.sink("two", 0)).Run(t.Context())
	if err != nil || sum.Records != 0 || sum.Skipped != 500 {
		t.Errorf("%+v, %v", sum, err)
	}
	f.check("one", 0, 500) // the end of the first run may have come before its flush
	f.check("two", 0, 500)
}

// A gate is a sink whose flushes wait until it is open, if it has a door, and which says
// how many records each has brought.
type gate struct {
	sinks.Sink
	open    <-chan struct{}
	flushed func(records uint64)
}

func (g gate) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, m, err := g.Sink.Acquire(ctx, id)
	return gateLane{l, g}, m, err
}

// Marks passes the ability of the sink on.
func (g gate) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	return g.Sink.(*memory.Sink).Marks(ctx, sink)
}

type gateLane struct {
	sinks.Lane
	gate gate
}

func (l gateLane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	if l.gate.open != nil {
		select {
		case <-l.gate.open:
		case <-ctx.Done():
			return sinks.Result{}, &sinks.Error{Kind: sinks.Cancelled, Op: "flush", Err: ctx.Err()}
		}
	}
	n := uint64(0)
	for _, b := range step.Batches {
		n += b.Records
	}
	r, err := l.Lane.Flush(ctx, step)
	if err == nil && l.gate.flushed != nil {
		l.gate.flushed(n)
	}
	return r, err
}

// TestSlowOutputHoldsNobody: one output takes nothing until the other has everything.
func TestSlowOutputHoldsNobody(t *testing.T) {
	f := newFork(t, numbers("a", 5000, 7))
	open := make(chan struct{})
	var records atomic.Uint64
	fast := gate{Sink: memory.Open(f.store("fast"), memory.Options{}), flushed: func(n uint64) {
		if records.Add(n) == 5000 {
			f.check("slow", 0, 0)
			close(open)
		}
	}}
	slow := gate{Sink: memory.Open(f.store("slow"), memory.Options{}), open: open}
	if err := f.run(5000, f.over("slow", 0, slow), f.over("fast", 0, fast)); err != nil {
		t.Fatal(err)
	}
	f.check("fast", 0, 5000)
	f.check("slow", 0, 5000)
}

// TestOutputsCrash ends runs of two outputs at a random record, loses one log or both
// now and then, and changes lanes, the order of outputs, and which of them are there.
// In the end each has everything once.
func TestOutputsCrash(t *testing.T) {
	seeds, cycles := uint64(1), 12
	if campaign.Long() {
		seeds, cycles = 20, 40
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			f := newFork(t, numbers("a", 3000, 13))
			for cycle := range cycles {
				outs := []Sink{f.sink("one", StartBeginning), f.sink("two", StartBeginning)}
				switch rng.IntN(6) {
				case 0:
					slices.Reverse(outs)
				case 1:
					outs = outs[:1]
				case 2:
					outs = outs[1:]
				}
				p := f.pipeline(len(f.recs), outs...)
				src := &brokenSource{Source: p.Sources[0].Source, left: 1 + rng.IntN(3600)}
				p.Sources[0].Source, p.Lanes = src, 1+rng.IntN(4)
				p.Checkpoints.Records = uint64(20 + rng.IntN(100))
				if _, err := p.Run(t.Context()); err != nil && !errors.Is(err, errCrash) {
					t.Fatalf("cycle %d: %v", cycle, err)
				}
				for _, name := range []string{"one", "two"} {
					if rng.IntN(4) == 0 {
						if err := os.RemoveAll(filepath.Join(f.dir, name)); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if err := f.run(len(f.recs), f.sink("one", StartBeginning), f.sink("two", StartBeginning)); err != nil {
				t.Fatal(err)
			}
			f.check("one", 0, len(f.recs))
			f.check("two", 0, len(f.recs))
		})
	}
}

// drifting is a source that has a record at another place each time it is opened.
type drifting struct {
	Source
	opened uint64
}

func (d *drifting) Open(ctx context.Context, position []byte) error {
	d.opened++
	if len(position) > 8 {
		position = position[8:]
	}
	return d.Source.Open(ctx, position)
}

func (d *drifting) Position() []byte {
	return append(binary.BigEndian.AppendUint64(nil, d.opened), d.Source.Position()...)
}

// TestSourceThatIsReadInAnotherOrder: where outputs stand at different places, a source
// that does not come by the place of the one in front is found out before that one gets
// anything.
func TestSourceThatIsReadInAnotherOrder(t *testing.T) {
	f := newFork(t, numbers("a", 1000, 7))
	run := func(n int, outs ...Sink) error {
		p := f.pipeline(n, outs...)
		p.Sources[0].Source = &drifting{Source: p.Sources[0].Source, opened: uint64(len(outs))}
		_, err := p.Run(t.Context())
		return err
	}
	if err := run(300, f.sink("one", 0)); err != nil {
		t.Fatal(err)
	}
	err := run(500, f.sink("one", 0), f.sink("two", StartBeginning))
	if !errors.Is(err, committer.ErrReplayDiffers) || !strings.Contains(err.Error(), "output one") {
		t.Error(err)
	}
	f.check("one", 0, 300)
}

// TestSourceThatIsShorterThanAnOutput: it ends before the place where an output stands.
func TestSourceThatIsShorterThanAnOutput(t *testing.T) {
	f := newFork(t, numbers("a", 300, 7))
	if err := f.run(300, f.sink("one", 0)); err != nil {
		t.Fatal(err)
	}
	err := f.run(200, f.sink("one", 0), f.sink("two", StartBeginning))
	if !errors.Is(err, committer.ErrReplayDiffers) || !strings.Contains(err.Error(), "ends at record 200, and output one has 300") {
		t.Error(err)
	}
}

// TestOutputsOfASourceThatForgets: what one output misses of such a source is nowhere,
// and nothing is kept from the other on its behalf.
func TestOutputsOfASourceThatForgets(t *testing.T) {
	f := newFork(t, numbers("a", 600, 7))
	run := func(to int, outs ...Sink) {
		t.Helper()
		p := f.pipeline(to, outs...)
		p.Sources[0].Source = forgetful{input("a", f.recs[:to]).Source}
		if _, err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run(300, f.sink("one", 0))
	run(600, f.sink("one", 0), f.sink("two", StartBeginning))
	f.check("one", 0, 600)
	f.check("two", 300, 600)
}

// A resumed is an output that says where it stands.
type resumed struct {
	Output
	position []byte
	barriers []Barrier
	last     uint64
}

func (r resumed) Position() []byte    { return r.position }
func (r resumed) Barriers() []Barrier { return r.barriers }
func (r resumed) Last() uint64        { return r.last }

// TestOutputWantsMoreThanTheState: an output that wants a checkpoint repeated which the
// state has behind it cannot go on with that state: the records before it are not read.
func TestOutputWantsMoreThanTheState(t *testing.T) {
	one, nine := Barrier{Checkpoint: 1, Position: []byte("1")}, Barrier{Checkpoint: 9, Position: []byte("9")}
	for _, c := range []struct {
		barriers []Barrier
		want     error
	}{{[]Barrier{one, nine}, committer.ErrStateBehind}, {[]Barrier{nine}, nil}, {nil, committer.ErrStateBehind}} {
		b := new(branch)
		if err := b.join("out", resumed{barriers: c.barriers, last: 9}, 1, []byte("1")); !errors.Is(err, c.want) {
			t.Errorf("barriers %v: %v, want %v", c.barriers, err, c.want)
		}
	}
}
