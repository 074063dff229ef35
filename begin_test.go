package walsink_test

import (
	"context"
	"errors"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/wal"
)

// with opens the rig's output with other options.
func (r *rig) with(change func(*walsink.Options)) (*walsink.Output, error) {
	opts := r.options()
	change(&opts)
	return walsink.Open(r.t.Context(), memory.Open(r.store, memory.Options{}), opts)
}

// TestRefuseNew: a sink id that nobody knows is refused and leaves nothing; the same sink
// can be opened again.
func TestRefuseNew(t *testing.T) {
	r := newRig(t, 2)
	sink := memory.Open(r.store, memory.Options{})
	opts := r.options()
	opts.RefuseNew = true
	if _, err := walsink.Open(t.Context(), sink, opts); !errors.Is(err, walsink.ErrNew) {
		t.Fatal(err)
	}
	if marks, err := sink.Marks(t.Context(), "job"); err != nil || len(marks) > 0 {
		t.Fatalf("a refusal left %v, %v", marks, err)
	}
	opts.RefuseNew = false
	out, err := walsink.Open(t.Context(), sink, opts)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, out)
	r.wipe() // the ledger knows it now
	out, err = r.with(func(o *walsink.Options) { o.RefuseNew = true })
	if err != nil {
		t.Fatal(err)
	}
	closed(t, out)
}

// TestBegin: an output that begins somewhere does so without a log too, and an output
// that has begun is not moved.
func TestBegin(t *testing.T) {
	r := newRig(t, 2)
	begin := func(n uint64, at int) func(*walsink.Options) {
		return func(o *walsink.Options) { o.Begin = &walsink.Barrier{Checkpoint: n, Position: position(at)} }
	}
	for _, want := range []int{40, 70} {
		out, err := r.with(begin(uint64(want), want))
		if err != nil {
			t.Fatal(err)
		}
		if want == 70 {
			want = 40 // it has begun
		}
		if number(out.Position()) != want || out.Last() != uint64(want) || len(out.Barriers()) > 0 {
			t.Errorf("at %s, checkpoint %d, barriers %v; want %d", out.Position(), out.Last(), out.Barriers(), want)
		}
		closed(t, out)
		r.wipe()
	}
	out := r.open()
	r.drive2(out, 40, 60, 10)
	drain(t, out)
	closed(t, out)
	for l := range 2 {
		if got := r.store.Records(r.id(l)); len(got) != 10 || string(got[0]) != string(record(40+l)) {
			t.Errorf("lane %d has %d records, from %q", l, len(got), got[0])
		}
	}
}

// TestBeginInterrupted: an output whose begin was cut off, before anything of it counts
// or when the store knew one of its lanes, begins where it was told to, and not at the
// beginning of the source.
func TestBeginInterrupted(t *testing.T) {
	r := newRig(t, 2)
	log, err := wal.Open(r.dir, r.options().Log)
	if err != nil {
		t.Fatal(err)
	}
	l, err := log.Lane(r.id(0).String())
	if err == nil {
		_, _, err = l.Seal(40, position(40), "", true)
	}
	if err = errors.Join(err, log.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.with(func(o *walsink.Options) { o.RefuseNew = true }); !errors.Is(err, walsink.ErrNew) {
		t.Fatalf("one lane had sealed: %v", err)
	}

	opts := r.options()
	opts.Begin = &walsink.Barrier{Checkpoint: 40, Position: position(40)}
	sink := &mortal{memory.Open(r.store, memory.Options{}), 1}
	if _, err := walsink.Open(t.Context(), sink, opts); !errors.Is(err, errDied) {
		t.Fatalf("died at the second lane: %v", err)
	}
	out, err := r.with(func(o *walsink.Options) { o.RefuseNew = true })
	if err != nil {
		t.Fatal(err)
	}
	if number(out.Position()) != 40 || out.Last() != 40 {
		t.Errorf("at %q, checkpoint %d; want 40", out.Position(), out.Last())
	}
	drain(t, out)
	closed(t, out)
}

// TestCompletedElsewhere: what was sealed under a checkpoint that counts elsewhere counts;
// what was sealed later, or not to the end, does not.
func TestCompletedElsewhere(t *testing.T) {
	for _, c := range []struct {
		completed uint64
		want      int
	}{{0, 10}, {1, 10}, {2, 20}, {3, 30}, {4, 10}} {
		r := newRig(t, 2)
		out := r.open()
		r.drive(out, 10, 10)
		for n := uint64(2); n <= 3; n++ {
			r.read(out, int(n-1)*10, int(n)*10)
			if err := out.Seal(t.Context(), n, position(int(n)*10)); err != nil {
				t.Fatal(err)
			}
		}
		closed(t, out)
		out, err := r.with(func(o *walsink.Options) { o.Completed = c.completed })
		if err != nil {
			t.Fatal(err)
		}
		if got := number(out.Position()); got != c.want {
			t.Errorf("completed %d elsewhere: at %d, want %d", c.completed, got, c.want)
		}
		drain(t, out)
		closed(t, out)
		r.check(c.want, false)
	}
}

// A countingSink counts how often its marks are read.
type countingSink struct {
	*memory.Sink
	reads int
}

func (s *countingSink) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	s.reads++
	return s.Sink.Marks(ctx, sink)
}

// The lanes that a job begins with are opened together, so that the ledger is read twice,
// however many they are. They are not opened for a sink id that is known: one that is new
// would hold up the others, as the one that is least far.
func TestNewLanes(t *testing.T) {
	r := newRig(t, 4)
	opts := r.options()
	opts.Lanes, opts.NewLanes = []string{}, opts.Lanes
	for i := range 2 {
		s := &countingSink{Sink: memory.Open(r.store, memory.Options{})}
		out, err := walsink.Open(t.Context(), s, opts)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(out.Status().Lanes); n != 4 || s.reads != 2 {
			t.Errorf("start %d: %d lanes, %d reads, want 4 and 2", i, n, s.reads)
		}
		r.drive(out, 40+40*i, 10)
		drain(t, out)
		closed(t, out)
		opts.NewLanes = append(opts.NewLanes, lane(4))
	}
	r.check(80, false)
}
