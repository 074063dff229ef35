package walsink_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	wire "github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

func TestStateOfAnotherSinkID(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	r.drive(out, 10, 10)
	drain(t, out)
	closed(t, out)
	opts := r.options()
	opts.ID = "another"
	out, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts)
	if err == nil {
		closed(t, out)
	}
	if !errors.Is(err, walsink.ErrForeignState) {
		t.Fatalf("got %v, want ErrForeignState", err)
	}
	closed(t, r.open())
}

// What Complete could not record is refused when it is sealed, and the next
// checkpoint is taken as if nothing had been.
func TestLongPositionIsRefusedAtTheSeal(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	defer closed(t, out)
	r.read(out, 0, 5)
	if _, err := out.Checkpoint(t.Context(), bytes.Repeat([]byte{'x'}, 1<<20)); !errors.Is(err, wire.ErrTooLarge) {
		t.Fatalf("got %v, want ErrTooLarge", err)
	}
	r.drive2(out, 5, 15, 10)
	drain(t, out)
	r.check(15, false)
}

// A refusal of a replay does not wear off.
func TestReplayThatDiffersStaysRefused(t *testing.T) {
	r := newRig(t, 2)
	out := r.open()
	r.drive(out, 20, 10)
	drain(t, out)
	r.blocked.Store(1)
	r.drive2(out, 20, 30, 10)
	r.until(func() bool { return len(r.store.Records(r.id(0))) == 15 })
	closed(t, out)
	r.blocked.Store(-1)
	r.wipe()

	out = r.open()
	defer closed(t, out)
	if err := out.Append(t.Context(), []byte("something else")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := out.Checkpoint(t.Context(), position(30)); !errors.Is(err, committer.ErrReplayDiffers) {
			t.Fatalf("got %v, want ErrReplayDiffers", err)
		}
	}
}

// A downSink does not acquire one lane.
type downSink struct {
	*memory.Sink
	lane string
	once sync.Once
	down chan struct{} // closed when it was asked for
}

func (s *downSink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	if id.Lane != s.lane {
		return s.Sink.Acquire(ctx, id)
	}
	s.once.Do(func() { close(s.down) })
	<-ctx.Done()
	return nil, sinks.Mark{}, ctx.Err()
}

// A lane that waits for the store holds up no other, and not Close.
func TestLaneThatWaitsHoldsNobody(t *testing.T) {
	r := newRig(t, 1)
	s := &downSink{Sink: memory.Open(r.store, memory.Options{}), lane: "new", down: make(chan struct{})}
	opts := r.options()
	opts.Flush.CloseTimeout = 10 * time.Millisecond
	out, err := walsink.Open(t.Context(), s, opts)
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		_, err := out.Lane(context.Background(), "new")
		opened <- err
	}()
	<-s.down
	done := make(chan error, 1)
	go func() {
		_, err := out.Checkpoint(context.Background(), position(1))
		done <- errors.Join(err, out.Append(context.Background(), record(0)), out.Close())
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the output hangs")
	}
	if err := <-opened; err == nil {
		t.Fatal("the lane was opened")
	}
}

// A growingSink has one more lane in its ledger when it is read again.
type growingSink struct {
	*memory.Sink
	reads int
}

func (s *growingSink) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	marks, err := s.Sink.Marks(ctx, sink)
	if s.reads++; s.reads > 1 && len(marks) > 0 {
		m := marks[0]
		m.Lane = "999"
		marks = append(slices.Clone(marks), m)
	}
	return marks, err
}

func TestLedgerThatGrowsDuringOpen(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	r.drive(out, 10, 10)
	drain(t, out)
	closed(t, out)
	r.wipe()
	_, err := walsink.Open(t.Context(), &growingSink{Sink: memory.Open(r.store, memory.Options{})}, r.options())
	if !errors.Is(err, walsink.ErrShared) {
		t.Fatalf("got %v, want ErrShared", err)
	}
}

// A restoringSink is put back to an older state before its marks are read for the
// n-th time.
type restoringSink struct {
	*memory.Sink
	restore func()
	n       int
}

func (s *restoringSink) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	if s.n--; s.n == 0 {
		s.restore()
	}
	return s.Sink.Marks(ctx, sink)
}

// A store that is put back between two reads of its marks is noticed before the source
// goes where the second says and the log where the first does. The next start goes on, as
// does this one if no lane had been decided about.
func TestLedgerThatMovesDuringOpen(t *testing.T) {
	r := newRig(t, 2)
	out := r.open()
	none := r.store.Snapshot()
	r.drive(out, 20, 10)
	drain(t, out)
	old := r.store.Snapshot()
	r.drive2(out, 20, 40, 10)
	drain(t, out)
	closed(t, out)
	now := r.store.Snapshot()
	for _, tt := range []struct {
		name string
		to   memory.Snapshot
		keep bool // the fences
		read int
		want error
		lost bool // all that was in is gone, so that the next start asks a person
	}{
		{"before the lanes are taken over", old, true, 1, nil, false},
		{"while they are taken over", old, true, 2, nil, false},
		{"while they are taken over, fences too", old, false, 2, nil, false},
		{"after that", old, true, 3, walsink.ErrMoved, false},
		{"after that, all", none, true, 3, walsink.ErrMoved, true},
		{"after that, the ledger too", memory.NewStore().Snapshot(), false, 3, walsink.ErrMoved, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, 2)
			r.store.Restore(now, false)
			s := &restoringSink{memory.Open(r.store, memory.Options{}), func() { r.store.Restore(tt.to, tt.keep) }, tt.read}
			out, err := walsink.Open(t.Context(), s, r.options())
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if tt.lost {
				return
			}
			if err != nil {
				out = r.open()
			}
			r.drive(out, 60, 10)
			drain(t, out)
			closed(t, out)
			r.check(60, false)
		})
	}
}

// Another process has taken up a lane since the output was opened. A sink that lists its
// lanes knows that it has taken the others as well.
func TestLaneOfAnotherProcess(t *testing.T) {
	for name, fenced := range map[string]bool{"listed": true, "not listed": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			sink := sinks.Sink(memory.Open(r.store, memory.Options{}))
			if !fenced {
				sink = struct{ sinks.Sink }{sink}
			}
			out, err := walsink.Open(t.Context(), sink, r.options())
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, out)
			other := newRig(t, 2)
			other.store = r.store
			second := other.open()
			other.drive(second, 10, 10)
			drain(t, second)
			closed(t, second)
			_, err = out.Lane(t.Context(), lane(1))
			if fenced && sinks.KindOf(err) != sinks.Fenced || !fenced && !errors.Is(err, walsink.ErrUnknownLane) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// Two processes begin with different lanes. Each would keep its own, with a source position
// of its own, if it did not see those of the other.
func TestOtherLanesOfAnotherProcess(t *testing.T) {
	r := newRig(t, 2)
	opts := r.options()
	opts.Lanes = []string{lane(1)}
	out, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, out)
	if _, _, err := memory.Open(r.store, memory.Options{}).Acquire(t.Context(), r.id(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Lane(t.Context(), lane(2)); !errors.Is(err, walsink.ErrShared) {
		t.Fatalf("got %v, want ErrShared", err)
	}
}

// Of a checkpoint that was repeated the log may hold no batch, and so does not know where
// it ends: that another output completed it is no word about this one's position.
func TestCompletedWhileRepeating(t *testing.T) {
	r := newRig(t, 2)
	send := func(out *walsink.Output, from, to int) {
		t.Helper()
		l, err := out.Lane(t.Context(), lane(0))
		for i := from; i < to && err == nil; i++ {
			err = l.Append(t.Context(), record(i))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	seal := func(out *walsink.Output, n uint64, complete bool) {
		t.Helper()
		err := out.Seal(t.Context(), n, position(int(n)*10))
		if err == nil && complete {
			err = out.Complete(t.Context(), n)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	out := r.open()
	r.read(out, 0, 10)
	seal(out, 1, true)
	for n := 2; n <= 3; n++ { // the other lane has no more records
		send(out, n*10-10, n*10)
		seal(out, uint64(n), true)
	}
	drain(t, out)
	closed(t, out)
	r.wipe()

	out = r.open()
	send(out, 10, 20)
	seal(out, 2, true)
	send(out, 20, 30)
	seal(out, 3, false)
	closed(t, out)

	opts := r.options()
	opts.Completed = 3
	out, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, out)
	at := number(out.Position())
	for _, b := range out.Barriers() {
		send(out, at, number(b.Position))
		seal(out, b.Checkpoint, true)
		at = number(b.Position)
	}
	send(out, at, 40)
	seal(out, 4, true)
	drain(t, out)
	if n := len(r.store.Records(r.id(0))); n != 35 {
		t.Fatalf("lane 0 holds %d records, want 35", n)
	}
}

// A brokenSink fails the calls of one opening from the given ones on.
type brokenSink struct {
	*memory.Sink
	acquires, marks int
}

var errBroken = &sinks.Error{Kind: sinks.Permanent, Op: "open", Err: errors.New("broken")}

func (s *brokenSink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	if s.acquires--; s.acquires < 0 {
		return nil, sinks.Mark{}, errBroken
	}
	return s.Sink.Acquire(ctx, id)
}

func (s *brokenSink) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	if s.marks--; s.marks < 0 {
		return nil, errBroken
	}
	return s.Sink.Marks(ctx, sink)
}

// Starts that get half way, over and over: what they changed is no end of it.
func TestStartsThatFailHalfWay(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	rnd := rand.New(rand.NewPCG(11, 3))
	r := newRig(t, 3)
	goal := 0
	var backup *memory.Snapshot
	for range rounds {
		for range rnd.IntN(3) {
			s := &brokenSink{memory.Open(r.store, memory.Options{}), rnd.IntN(5), rnd.IntN(3)}
			if out, err := walsink.Open(t.Context(), s, r.options()); err == nil {
				closed(t, out)
			} else if !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
		}
		out := r.open()
		r.blocked.Store(int64(rnd.IntN(5)) - 2)
		goal = max(goal, number(out.Position())) + rnd.IntN(40)
		r.drive(out, goal, 1+rnd.IntN(20))
		if rnd.IntN(2) == 0 && r.blocked.Load() < 0 {
			drain(t, out)
		}
		closed(t, out)
		r.check(goal, true)
		r.blocked.Store(-1)
		if r.begun() && rnd.IntN(3) == 0 {
			backup = new(r.store.Snapshot())
		}
		switch rnd.IntN(4) {
		case 0:
			r.wipe()
		case 1:
			if backup != nil {
				r.store.Restore(*backup, false)
			}
		}
	}
	r.blocked.Store(-1)
	out := r.open()
	defer closed(t, out)
	r.drive(out, goal+30, 10)
	drain(t, out)
	r.check(goal+30, false)
}

// A generation with batches that nobody has flushed is gone. What is before it is
// flushed, and the source sends the rest again.
func TestGenerationGone(t *testing.T) {
	r := newRig(t, 1)
	large := func(i int) []byte { return append(bytes.Repeat([]byte{'x'}, 100<<10), record(i)...) }
	read := func(out *walsink.Output, to int) {
		t.Helper()
		for i := number(out.Position()); i < to; i++ {
			if err := out.Append(t.Context(), large(i)); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Checkpoint(t.Context(), position(i+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := r.open()
	read(out, 5)
	drain(t, out)
	r.blocked.Store(0)
	at := out
	for i := 5; i < 40; i++ {
		if err := at.Append(t.Context(), large(i)); err != nil {
			t.Fatal(err)
		}
		if _, err := at.Checkpoint(t.Context(), position(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, out)
	gens, err := filepath.Glob(filepath.Join(r.dir, "gen-*"))
	if err != nil || len(gens) < 3 {
		t.Fatal(gens, err)
	}
	if err := os.RemoveAll(gens[1]); err != nil {
		t.Fatal(err)
	}

	r.blocked.Store(-1)
	out = r.open()
	defer closed(t, out)
	read(out, 50)
	drain(t, out)
	got := r.store.Records(r.id(0))
	if len(got) != 50 {
		t.Fatalf("%d records, want 50", len(got))
	}
	for i, rec := range got {
		if !bytes.Equal(rec, large(i)) {
			t.Fatalf("record %d is another one", i)
		}
	}
}

// A halfSink never gets beyond the first chunk of a batch of lane 1, and nothing of
// lane 2 but its first batch.
type halfSink struct{ *memory.Sink }

type halfLane struct {
	sinks.Lane
	id sinks.LaneID
}

func (s halfSink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, m, err := s.Sink.Acquire(ctx, id)
	return halfLane{l, id}, m, err
}

func (l halfLane) Flush(ctx context.Context, s *sinks.Step) (sinks.Result, error) {
	if l.id.Lane == lane(1) && s.Prev.Partial != nil || l.id.Lane == lane(2) && s.Prev.Seq > 0 {
		return sinks.Result{}, &sinks.Error{Kind: sinks.Transient, Op: "flush", Lane: l.id, Err: errors.New("blocked")}
	}
	return l.Lane.Flush(ctx, s)
}

// While checkpoints are repeated no mark is carried forward: a batch of which a part
// is in has to come again as it was, also if the options say otherwise by now.
func TestRepeatedCheckpointsCarryNothing(t *testing.T) {
	r := newRig(t, 3)
	mopts := memory.Options{StepBytes: 10, Chunked: true}
	run := func(out *walsink.Output) {
		t.Helper()
		for n, lanes := range [][]int{{0, 1, 2}, {0, 2}, {0, 1, 1}} {
			if n < number(out.Position()) {
				continue
			}
			for i, to := range lanes {
				l, err := out.Lane(t.Context(), lane(to))
				if err == nil {
					err = l.Append(t.Context(), record(10*n+i))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := out.Checkpoint(t.Context(), position(n+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := walsink.Open(t.Context(), halfSink{memory.Open(r.store, mopts)}, r.options())
	if err != nil {
		t.Fatal(err)
	}
	run(out)
	r.until(func() bool { return len(r.store.Records(r.id(0))) == 3 && len(r.store.Records(r.id(1))) == 2 })
	closed(t, out)
	r.wipe()

	opts := r.options()
	opts.CarryEvery = 1
	out, err = walsink.Open(t.Context(), memory.Open(r.store, mopts), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, out)
	run(out)
	drain(t, out)
	for i, want := range []int{3, 3, 2} {
		if got := len(r.store.Records(r.id(i))); got != want {
			t.Errorf("lane %d holds %d records, want %d", i, got, want)
		}
	}
}
