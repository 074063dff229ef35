package walsink_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/internal/seam"
	rec "github.com/walsink/walsink/record" // record is a function here
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/wal"
)

// TestOlderDirectoryIsNotMixedIn: a state directory with batches to be flushed comes
// back after another one has gone on with more lanes. Some of its lanes still connect,
// and what it has of them is in the store by other lanes.
func TestOlderDirectoryIsNotMixedIn(t *testing.T) {
	r := newRig(t, 1)
	r.blocked.Store(0)
	out := r.open()
	r.drive(out, 10, 5)
	closed(t, out)
	older := r.dir

	r.dir, r.lanes = filepath.Join(t.TempDir(), "other"), 2
	out = r.open()
	r.drive(out, 10, 3)
	r.until(func() bool { return len(r.store.Records(r.id(1))) == 5 })
	closed(t, out)

	r.dir = older
	r.blocked.Store(-1)
	out = r.open()
	defer closed(t, out)
	r.drive(out, 12, 3)
	drain(t, out)
	r.check(12, false)
}

// A fullLog has no room for the footers of one lane, so many times.
type fullLog struct {
	seam.Log
	lane string
	left int
}

func (l *fullLog) Lane(name string) (seam.Lane, error) {
	lane, err := l.Log.Lane(name)
	return &fullLane{lane, l, name}, err
}

type fullLane struct {
	seam.Lane
	log  *fullLog
	name string
}

func (l *fullLane) Seal(n uint64, pos []byte, format string, force bool) (b rec.Batch, ok bool, err error) {
	if l.name == l.log.lane && l.log.left > 0 {
		l.log.left--
		return b, false, fmt.Errorf("seal: %w", wal.ErrNoSpace)
	}
	return l.Lane.Seal(n, pos, format, force)
}

// TestCutThatHasBegunWaitsForRoom: a checkpoint at which some lanes have a batch and
// others have not could not be repeated.
func TestCutThatHasBegunWaitsForRoom(t *testing.T) {
	r := newRig(t, 2)
	full := &fullLog{lane: "job/001"}
	open := func() *walsink.Output {
		t.Helper()
		ctx := seam.With(t.Context(), func(dir string, opts wal.Options) (l seam.Log, err error) {
			full.Log, err = seam.OpenWAL(dir, opts)
			return full, err
		})
		out, err := walsink.Open(ctx, memory.Open(r.store, memory.Options{}), r.options())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := open()
	full.left = 1
	r.drive(out, 4, 4) // it takes a second
	full.left = 1000
	r.read(out, 4, 8)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for range 2 {
		if err := out.Seal(ctx, 2, position(8)); !errors.Is(err, wal.ErrNoSpace) && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		full.left = 0 // too late
	}
	if err := out.Seal(t.Context(), 3, position(8)); !errors.Is(err, wal.ErrNoSpace) {
		t.Fatalf("sealed on after half a checkpoint: %v", err)
	}
	closed(t, out)
	out = open()
	defer closed(t, out)
	r.drive(out, 8, 4)
	drain(t, out)
	r.check(8, false)
}
