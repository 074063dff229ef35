package walsink_test

import (
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks/memory"
)

func (r *rig) openRestored(n uint64, pos int) (*walsink.Output, error) {
	opts := r.options()
	opts.Restored = &walsink.Barrier{Checkpoint: n, Position: position(pos)}
	return walsink.Open(r.t.Context(), blocker{memory.Open(r.store, memory.Options{}), r}, opts)
}

// The state of the caller is from a checkpoint that this log never sealed: it was
// lost, or put back. Its records are nowhere but in the source.
func TestRestoredCheckpointThatTheLogDoesNotHave(t *testing.T) {
	r := newRig(t, 2)
	r.blocked.Store(0)
	out := r.open()
	r.drive(out, 30, 10)
	closed(t, out)
	r.wipe()

	for range 2 { // it does not wear off
		out, err := r.openRestored(3, 30)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(out.Position()); got == "30" {
			t.Fatal("the source goes on behind records that are not in the store")
		}
		closed(t, out)
	}
	r.blocked.Store(-1)
	out = r.open()
	defer closed(t, out)
	r.drive(out, 40, 10)
	drain(t, out)
	r.check(40, false)
}

// A checkpoint that a start forgot, because its state could not be read then, does not
// count when its state can be read again, although a later one was sealed meanwhile: the
// log does not have the records before it.
func TestForgottenCheckpointDoesNotCount(t *testing.T) {
	r := newRig(t, 2)
	out := r.open()
	r.drive(out, 10, 10)
	seal := func(n uint64, from, to int) {
		t.Helper()
		r.read(out, from, to)
		if err := out.Seal(t.Context(), n, position(to)); err != nil {
			t.Fatal(err)
		}
		closed(t, out)
	}
	seal(2, 10, 20)
	reopen := func(n uint64, pos int) {
		t.Helper()
		var err error
		if out, err = r.openRestored(n, pos); err != nil {
			t.Fatal(err)
		}
	}
	reopen(1, 10)
	seal(3, 10, 30)
	for range 2 {
		reopen(2, 20)
		if n, got := out.Last(), string(out.Position()); n != 1 || got != "10" {
			t.Fatalf("the source goes on behind checkpoint %d, position %s, without the records before it", n, got)
		}
		closed(t, out)
	}
	reopen(1, 10)
	defer closed(t, out)
	r.drive2(out, 10, 40, 10)
	drain(t, out)
	r.check(40, false)
}

func TestRestoredEmptyCheckpointCounts(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	r.drive(out, 10, 10)
	for n := range uint64(2) {
		if err := out.Seal(t.Context(), 2+n, position(int(11+n))); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, out)
	out, err := r.openRestored(2, 11)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, out)
	if got := string(out.Position()); got != "11" {
		t.Fatalf("position %q, want 11", got)
	}
}
