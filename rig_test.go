package walsink_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/wal"
)

// A rig is a job over a numbered source: record i of the source goes to lane
// i mod lanes, and the position is the number of records read.
type rig struct {
	t     *testing.T
	dir   string
	store *memory.Store
	lanes int
	// blocked is the lane whose flushes fail, or -1.
	blocked atomic.Int64
}

func newRig(t *testing.T, lanes int) *rig {
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "state"), store: memory.NewStore(), lanes: lanes}
	r.blocked.Store(-1)
	return r
}

func lane(i int) string { return fmt.Sprintf("%03d", i) }

func (r *rig) id(i int) sinks.LaneID { return sinks.LaneID{Sink: "job", Lane: lane(i)} }

func (r *rig) options() walsink.Options {
	o := walsink.Options{
		Dir: r.dir, ID: "job", Logger: slog.New(slog.DiscardHandler),
		Log:   wal.Options{GenerationBytes: 1 << 20, MaxBytes: 64 << 20},
		Flush: committer.Options{RetryMin: 1, RetryMax: 1e6},
	}
	for i := range r.lanes {
		o.Lanes = append(o.Lanes, lane(i))
	}
	return o
}

func (r *rig) open() *walsink.Output {
	r.t.Helper()
	out, err := walsink.Open(r.t.Context(), blocker{memory.Open(r.store, memory.Options{}), r}, r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func record(i int) []byte { return []byte("record " + strconv.Itoa(i)) }

func position(n int) []byte { return []byte(strconv.Itoa(n)) }

func number(pos []byte) int {
	n, _ := strconv.Atoi(string(pos))
	return n
}

// read sends records from up to, but not including, to.
func (r *rig) read(out *walsink.Output, from, to int) {
	r.t.Helper()
	for i := from; i < to; i++ {
		l, err := out.Lane(r.t.Context(), lane(i%r.lanes))
		if err == nil {
			err = l.Append(r.t.Context(), record(i))
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// drive reads from where the output says to record to, with a checkpoint each
// every records, after repeating what has to be repeated. A run that is stopped
// in between is one with a smaller to.
func (r *rig) drive(out *walsink.Output, to, every int) {
	r.t.Helper()
	at := number(out.Position())
	for _, b := range out.Barriers() {
		if number(b.Position) > to {
			r.read(out, at, to)
			return
		}
		r.read(out, at, number(b.Position))
		at = number(b.Position)
		if _, err := out.Checkpoint(r.t.Context(), b.Position); err != nil {
			r.t.Fatal(err)
		}
	}
	for at < to {
		next := min(at+every, to)
		r.read(out, at, next)
		at = next
		if _, err := out.Checkpoint(r.t.Context(), position(at)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// check compares the store with the source: lane by lane, exactly the records up
// to to, or, if partly is set, a prefix.
func (r *rig) check(to int, partly bool) {
	r.t.Helper()
	for l := range r.lanes {
		var want [][]byte
		for i := l; i < to; i += r.lanes {
			want = append(want, record(i))
		}
		got := r.store.Records(r.id(l))
		if partly && len(got) < len(want) {
			want = want[:len(got)]
		}
		if !slices.EqualFunc(got, want, bytes.Equal) {
			r.t.Fatalf("lane %d holds %d records, want %d: exactly the first of the source", l, len(got), len(want))
		}
	}
}

// A blocker fails the flushes of one lane.
type blocker struct {
	*memory.Sink
	rig *rig
}

func (b blocker) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, m, err := b.Sink.Acquire(ctx, id)
	return blockedLane{l, b.rig, id}, m, err
}

type blockedLane struct {
	sinks.Lane
	rig *rig
	id  sinks.LaneID
}

func (l blockedLane) Flush(ctx context.Context, s *sinks.Step) (sinks.Result, error) {
	if n := l.rig.blocked.Load(); n >= 0 && l.id == l.rig.id(int(n)) {
		return sinks.Result{}, &sinks.Error{Kind: sinks.Transient, Op: "flush", Lane: l.id, Err: errors.New("blocked")}
	}
	return l.Lane.Flush(ctx, s)
}

func drain(t *testing.T, out *walsink.Output) {
	t.Helper()
	if err := out.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) wipe() {
	r.t.Helper()
	if err := os.RemoveAll(r.dir); err != nil {
		r.t.Fatal(err)
	}
}

// drive2 is drive for an output that is open already at from.
func (r *rig) drive2(out *walsink.Output, from, to, every int) {
	r.t.Helper()
	for at := from; at < to; at += every {
		r.read(out, at, at+every)
		if _, err := out.Checkpoint(r.t.Context(), position(at+every)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// until waits for a condition that a flush worker brings about.
func (r *rig) until(ok func() bool) {
	r.t.Helper()
	for !ok() {
		if r.t.Context().Err() != nil {
			r.t.Fatal("condition never came about")
		}
	}
}

// begun reports whether every lane has a batch in the store. A store that is
// rolled back further is a store without ledger, which is refused.
func (r *rig) begun() bool {
	marks, err := memory.Open(r.store, memory.Options{}).Marks(r.t.Context(), "job")
	if err != nil {
		r.t.Fatal(err)
	}
	return len(marks) == r.lanes && !slices.ContainsFunc(marks, func(m sinks.LaneMark) bool { return m.Seq == 0 })
}
