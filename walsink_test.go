package walsink_test

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// C001, C002, C003, C004, C045, C046 at the level of the library.
func TestVisibleOnlyWhenComplete(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	r.read(out, 0, 20)
	r.check(0, false)
	if err := out.Seal(t.Context(), 1, position(20)); err != nil {
		t.Fatal(err)
	}
	drain(t, out)
	r.check(0, false)
	if err := out.Complete(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	drain(t, out)
	r.check(20, false)

	r.read(out, 20, 40)
	if err := out.Seal(t.Context(), 2, position(40)); err != nil {
		t.Fatal(err)
	}
	closed(t, out)
	r.check(20, false)
	out = r.open()
	defer closed(t, out)
	if got := string(out.Position()); got != "20" {
		t.Fatalf("position %s after a crash between seal and complete, want 20", got)
	}
	r.drive(out, 60, 20)
	drain(t, out)
	r.check(60, false)
}

func TestNotices(t *testing.T) {
	for _, tc := range []struct {
		name    string
		seals   int
		notices []uint64
		visible int
	}{
		{"C016 lost notice", 2, []uint64{2}, 20},
		{"C017 late notice", 3, []uint64{3, 2}, 30},
		{"C018 lower one only", 3, []uint64{2}, 20},
		{"C019 repeated", 1, []uint64{1, 1}, 10},
		{"C020 nothing pending", 0, []uint64{7}, 0},
		{"C023 overlapping", 2, []uint64{1}, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 1)
			out := r.open()
			defer closed(t, out)
			for i := range tc.seals {
				r.read(out, i*10, i*10+10)
				if err := out.Seal(t.Context(), uint64(i+1), position(i*10+10)); err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range tc.notices {
				if err := out.Complete(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}
			drain(t, out)
			r.check(tc.visible, false)
		})
	}
}

func TestC021AbortNeverDiscards(t *testing.T) {
	r := newRig(t, 2)
	out := r.open()
	defer closed(t, out)
	for n := range uint64(2) {
		r.read(out, int(n)*10, int(n)*10+10)
		if err := out.Seal(t.Context(), n+1, position(int(n)*10+10)); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			if err := out.Abort(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.Complete(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	drain(t, out)
	r.check(20, false)
}

func TestSealRefusesLowerCheckpoint(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	defer closed(t, out)
	if err := out.Seal(t.Context(), 5, nil); err != nil {
		t.Fatal(err)
	}
	if err := out.Seal(t.Context(), 5, nil); !errors.Is(err, walsink.ErrCheckpoint) {
		t.Fatalf("got %v", err)
	}
}

func TestC105WipedStateGoesOnFromTheStore(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	r.drive(out, 50, 10)
	drain(t, out)
	closed(t, out)
	r.wipe()
	out = r.open()
	defer closed(t, out)
	if got := string(out.Position()); got != "50" {
		t.Fatalf("position %s, want 50", got)
	}
	r.drive(out, 80, 10)
	drain(t, out)
	r.check(80, false)
}

// Lanes that are differently far in the store, and no local log: what they are
// ahead with is repeated and compared, and nothing comes twice.
func TestWipedStateWithLanesApart(t *testing.T) {
	r := newRig(t, 3)
	out := r.open()
	r.drive(out, 30, 10)
	drain(t, out)
	r.blocked.Store(1)
	r.drive2(out, 30, 60, 10)
	r.until(func() bool { return len(r.store.Records(r.id(0))) == 20 && len(r.store.Records(r.id(2))) == 20 })
	closed(t, out)
	r.blocked.Store(-1)
	r.wipe()

	out = r.open()
	if got := string(out.Position()); got != "30" || len(out.Barriers()) != 3 {
		t.Fatalf("position %s, %d barriers, want 30 and 3", got, len(out.Barriers()))
	}
	r.drive(out, 45, 10) // stopped between the second barrier and the third
	closed(t, out)
	out = r.open()
	defer closed(t, out)
	r.drive(out, 90, 10)
	drain(t, out)
	r.check(90, false)
}

func TestReplayThatDiffersIsRefused(t *testing.T) {
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
	l, err := out.Lane(t.Context(), lane(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), []byte("something else")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Checkpoint(t.Context(), position(30)); !errors.Is(err, committer.ErrReplayDiffers) {
		t.Fatalf("got %v, want ErrReplayDiffers", err)
	}
}

func TestBarrierAtAnotherPosition(t *testing.T) {
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
	if _, err := out.Checkpoint(t.Context(), position(25)); !errors.Is(err, walsink.ErrBarrier) {
		t.Fatalf("got %v, want ErrBarrier", err)
	}
}

func TestQ12LedgerGone(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	r.drive(out, 20, 10)
	drain(t, out)
	closed(t, out)
	r.store.DropLedger()
	for range 2 { // the refusal does not wear off
		_, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), r.options())
		if !errors.Is(err, committer.ErrLedgerMissing) {
			t.Fatalf("got %v, want ErrLedgerMissing", err)
		}
	}
}

func TestRestoredCheckpointCounts(t *testing.T) {
	r := newRig(t, 2)
	out := r.open()
	r.read(out, 0, 10)
	if err := out.Seal(t.Context(), 1, position(10)); err != nil {
		t.Fatal(err)
	}
	closed(t, out) // the notice of 1 was lost, the caller's own state has it
	opts := r.options()
	opts.Restored = &walsink.Barrier{Checkpoint: 1, Position: position(10)}
	out, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, out)
	drain(t, out)
	r.check(10, false)
	if string(out.Position()) != "10" || out.Last() != 1 {
		t.Fatalf("position %s last %d", out.Position(), out.Last())
	}
}

func TestC106RestoredBelowTheLog(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	r.drive(out, 30, 10)
	drain(t, out)
	closed(t, out)
	opts := r.options()
	opts.Restored = &walsink.Barrier{Checkpoint: 1, Position: position(10)}
	if _, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts); !errors.Is(err, committer.ErrStateBehind) {
		t.Fatalf("got %v, want ErrStateBehind", err)
	}
}

func TestIdleLaneIsCarriedForward(t *testing.T) {
	r := newRig(t, 2)
	opts := r.options()
	opts.CarryEvery = 3
	out, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, out)
	for n := range 7 { // lane 1 gets nothing
		if err := out.Append(t.Context(), record(n)); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Checkpoint(t.Context(), position(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, out)
	marks, err := memory.Open(r.store, memory.Options{}).Marks(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if m := marks[1]; m.Checkpoint != 6 || m.Records != 0 || string(m.Position) != "6" {
		t.Fatalf("mark of the idle lane is at checkpoint %d, position %s, %d records", m.Checkpoint, m.Position, m.Records)
	}
}

func TestC007EmptyCheckpointsTouchNothing(t *testing.T) {
	r := newRig(t, 2)
	out := r.open()
	defer closed(t, out)
	for n := range 500 {
		if _, err := out.Checkpoint(t.Context(), position(n)); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, out)
	marks, err := memory.Open(r.store, memory.Options{}).Marks(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range marks {
		if m.Seq != 0 {
			t.Fatalf("lane %s has batch %d", m.Lane, m.Seq)
		}
	}
}

func TestAckAfterFlush(t *testing.T) {
	r := newRig(t, 1)
	opts := r.options()
	opts.AckAfterFlush = true
	out, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, out)
	r.read(out, 0, 10)
	if _, err := out.Checkpoint(t.Context(), position(10)); err != nil {
		t.Fatal(err)
	}
	r.check(10, false)
}

func TestTyped(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	defer closed(t, out)
	l, err := out.Lane(t.Context(), lane(0))
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.New("odd")
	numbers := walsink.NewTyped(l, func(dst []byte, i int) ([]byte, error) {
		if i < 0 {
			return nil, bad
		}
		return append(dst, record(i)...), nil
	})
	for i := range 3 {
		if err := numbers.Append(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := numbers.Append(t.Context(), -1); !errors.Is(err, bad) {
		t.Fatalf("got %v", err)
	}
	if _, err := out.Checkpoint(t.Context(), position(3)); err != nil {
		t.Fatal(err)
	}
	drain(t, out)
	r.check(3, false)
}

func TestUseAfterClose(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	closed(t, out)
	closed(t, out)
	if err := out.Append(t.Context(), record(0)); !errors.Is(err, walsink.ErrClosed) {
		t.Fatalf("append after close: %v", err)
	}
	if _, err := out.Checkpoint(t.Context(), nil); !errors.Is(err, walsink.ErrClosed) {
		t.Fatalf("checkpoint after close: %v", err)
	}
}

func TestOpenRefusesBadOptions(t *testing.T) {
	for _, opts := range []walsink.Options{
		{ID: "job"}, {Dir: t.TempDir()}, {Dir: t.TempDir(), ID: "../job"}, {Dir: t.TempDir(), ID: "job", Lanes: []string{"a/b"}},
	} {
		out, err := walsink.Open(t.Context(), memory.Open(memory.NewStore(), memory.Options{}), opts)
		if err == nil {
			closed(t, out)
			t.Errorf("opened with %+v", opts)
		}
	}
}

func TestLockedStateNamesTheOwner(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	defer closed(t, out)
	_, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), r.options())
	if !errors.Is(err, wal.ErrLocked) {
		t.Fatalf("got %v, want ErrLocked", err)
	}
}

// Random runs, each ended at a random instant: with and without the local state,
// with a lane that does not flush, with the store rolled back. After each run the
// store holds a prefix; at the end, everything, once.
func TestRandomRunsAreExact(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			r := newRig(t, 1+rnd.IntN(4))
			goal, every := 0, 1+rnd.IntN(40)
			var backup *memory.Snapshot
			for range rounds {
				if rnd.IntN(5) == 0 && r.begun() {
					backup = new(r.store.Snapshot())
				} else if rnd.IntN(8) == 0 && backup != nil {
					r.store.Restore(*backup, false)
				}
				r.blocked.Store(int64(rnd.IntN(r.lanes+2)) - 2)
				out := r.open()
				goal = max(goal, number(out.Position())) + rnd.IntN(100)
				r.drive(out, goal, every)
				if r.blocked.Load() < 0 && rnd.IntN(2) == 0 {
					drain(t, out)
				}
				closed(t, out)
				r.check(goal, true)
				if rnd.IntN(4) == 0 {
					r.wipe()
				}
			}
			r.blocked.Store(-1)
			out := r.open()
			defer closed(t, out)
			r.drive(out, goal+50, every)
			drain(t, out)
			r.check(goal+50, false)
		})
	}
}
