package committer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/sinks"
)

// A Writer is a store that has no atomic step.
type Writer interface {
	// Info describes the store. Guarantee is Idempotent if a step that is written
	// twice leaves what it leaves when written once; anything else means
	// AtLeastOnce.
	Info() sinks.Info

	// Write writes the records of a step, and its dead letters, and returns when
	// they are durable. It is called from one goroutine at a time for a lane, and
	// must not keep the step. Errors are an *sinks.Error; whatever the error says, a
	// part may have been written. Poison means that nothing was.
	Write(ctx context.Context, step *sinks.Step) error
}

// A Ledger keeps marks apart from the records they are about. All methods are
// safe for concurrent use, and durable on return.
type Ledger interface {
	// Raise raises the fence of a lane and returns its mark, Mark{Chain:
	// id.Genesis()} with the new fence for a lane never seen.
	Raise(ctx context.Context, id sinks.LaneID) (sinks.Mark, error)
	// Load returns the mark of a lane.
	Load(ctx context.Context, id sinks.LaneID) (sinks.Mark, error)
	// Swap stores next if the stored mark has the fence of next and the tip of
	// prev. Else it is an error of Kind Fenced or Moved, in this order.
	Swap(ctx context.Context, id sinks.LaneID, prev, next sinks.Mark) error
}

// WithLedger joins a Writer and a Ledger to a sink: values are sent, then the
// mark is written. A crash between the two repeats the last step, a chunk if the
// writer is Chunked, and a former owner that wakes up can write one more. The
// sink therefore declares AtLeastOnce, or Idempotent if the Writer does, never
// ExactlyOnce.
func WithLedger(w Writer, l Ledger) sinks.Sink { return &joined{w, l} }

type joined struct {
	writer Writer
	ledger Ledger
}

func (a *joined) Info() sinks.Info {
	info := a.writer.Info()
	info.Guarantee = max(sinks.AtLeastOnce, min(info.Guarantee, sinks.Idempotent))
	return info
}

// Close does nothing: writer and ledger belong to those who made them.
func (a *joined) Close() error { return nil }

func (a *joined) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	m, err := a.ledger.Raise(ctx, id)
	if err != nil {
		return nil, m, err
	}
	return &joinedLane{joined: a, id: id, fence: m.Fence}, m, nil
}

type joinedLane struct {
	*joined
	id    sinks.LaneID
	fence uint64
	// wrote is the tip up to which records were written by this handle, if the mark
	// could not be written after them.
	wrote [2][32]byte
}

func (l *joinedLane) Close() error { return nil }

func (l *joinedLane) Mark(ctx context.Context) (sinks.Mark, error) {
	m, err := l.ledger.Load(ctx, l.id)
	if err == nil && m.Fence != l.fence {
		err = &sinks.Error{Kind: sinks.Fenced, Op: "mark", Lane: l.id, Err: raised(l.fence, m.Fence)}
	}
	return m, err
}

func (l *joinedLane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	m, err := l.Mark(ctx)
	if err != nil {
		return sinks.Result{}, err
	}
	if m.Tip() != step.Prev.Tip() {
		return sinks.Result{}, &sinks.Error{Kind: sinks.Moved, Op: "flush", Lane: l.id, Err: fmt.Errorf("the tip is that of batch %d", m.Seq)}
	}
	if tips := [2][32]byte{step.Prev.Tip(), step.Next.Tip()}; l.wrote != tips {
		if err := l.writer.Write(ctx, step); err != nil {
			return sinks.Result{}, err
		}
		l.wrote = tips
	}
	crash.Point(crash.FlushChunkLast)
	next := step.Next
	next.Fence, next.UpdatedAt = l.fence, time.Now()
	return sinks.Result{}, l.ledger.Swap(ctx, l.id, step.Prev, next)
}

func raised(ours, theirs uint64) error {
	return fmt.Errorf("fence %d was raised to %d", ours, theirs)
}

// swap is the rule of Ledger.Swap.
func swap(id sinks.LaneID, now, prev, next sinks.Mark) error {
	switch {
	case now.Fence != next.Fence:
		return &sinks.Error{Kind: sinks.Fenced, Op: "swap", Lane: id, Err: raised(next.Fence, now.Fence)}
	case now.Tip() != prev.Tip():
		return &sinks.Error{Kind: sinks.Moved, Op: "swap", Lane: id, Err: fmt.Errorf("the tip is that of batch %d", now.Seq)}
	}
	return nil
}

// NewMemoryLedger returns a Ledger that keeps nothing after the process.
func NewMemoryLedger() Ledger { return &memoryLedger{marks: make(map[sinks.LaneID]sinks.Mark)} }

type memoryLedger struct {
	mu    sync.Mutex
	marks map[sinks.LaneID]sinks.Mark
}

func (l *memoryLedger) get(id sinks.LaneID) sinks.Mark {
	if m, ok := l.marks[id]; ok {
		return m
	}
	return sinks.Mark{Chain: id.Genesis()}
}

func (l *memoryLedger) Raise(_ context.Context, id sinks.LaneID) (sinks.Mark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.get(id)
	m.Fence++
	l.marks[id] = m
	return m, nil
}

func (l *memoryLedger) Load(_ context.Context, id sinks.LaneID) (sinks.Mark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.get(id), nil
}

func (l *memoryLedger) Swap(_ context.Context, id sinks.LaneID, prev, next sinks.Mark) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := swap(id, l.get(id), prev, next)
	if err == nil {
		l.marks[id] = next
	}
	return err
}
