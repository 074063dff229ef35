package committer

import (
	"context"
	"time"

	"github.com/walsink/walsink/sinks"
)

// An Observer is a set of functions, any of which may be nil, that are called by
// the workers: for one lane one after the other, for several at the same time. They
// must not block. Observers joins several.
type Observer struct {
	// Flushing is called before the first attempt at a step; its counts are of
	// what is to be done. It returns the context for all calls of the sink that the
	// step needs, made from ctx, and a function that is called once, when no more
	// attempts are made: with why the lane stops, or nil.
	Flushing func(ctx context.Context, lane string, step StepInfo) (context.Context, func(error))
	// Flushed is called after each step that is in the store. Took is the time
	// from the first attempt.
	Flushed func(lane string, step StepInfo, took time.Duration)
	// Dead is called for each record that went to the dead letters, after Flushed. r
	// is zero if the answer that named the record was lost.
	Dead func(lane string, checkpoint uint64, r sinks.Reject)
	// Retrying is called before the wait for another attempt.
	Retrying func(lane string, r Retry)
	// Stopped is called when a lane stops because of err.
	Stopped func(lane string, err error)
}

// A StepInfo describes a step.
type StepInfo struct {
	// Checkpoint is that of the last batch of which the step has records. First and
	// Last are the numbers (Seq) of the first such batch and of the last.
	Checkpoint, First, Last uint64
	// Batches is the number of batches that end in the step.
	Batches int
	// Records, Dead and Bytes are of the step; Bytes without dead records. Of a step
	// that failed when a beginning of it was in, they are of that beginning, without the
	// bytes of a batch that does not end there. Lost are those of the dead that are not in
	// the dead letters, because GiveUp was called.
	Records, Dead, Lost, Bytes int64
	// Settled says that no answer of the store, but the mark, told that it is in.
	Settled bool
	// Phases is where the time went.
	Phases Phases
}

// Phases are the times of a step, over all attempts at it. They add up to the whole,
// but for moments. They are measured only for Observer.Flushed.
type Phases struct {
	Read   time.Duration // reading the log
	Store  time.Duration // in Flush of the sink, without Read
	Verify time.Duration // reading the mark
	Wait   time.Duration // between attempts
	Commit time.Duration // noting in the log what is in
}

// A Retry is a call of the sink that will be made again.
type Retry struct {
	Kind sinks.Kind
	Err  error
	// Wait is the time until then.
	Wait time.Duration
	// Attempt counts from 1.
	Attempt int
	// Checkpoint and Batch (its Seq) are where the lane is: the first batch that is
	// not in. Both are 0 while a lane is acquired.
	Checkpoint, Batch uint64
}

// Observers returns an Observer that calls those of list in order. What is nil in
// all of them is nil in it.
func Observers(list ...Observer) Observer {
	var o Observer
	for _, next := range list {
		o = o.then(next)
	}
	return o
}

func (o Observer) then(n Observer) Observer {
	j := o
	switch a, b := o.Flushing, n.Flushing; {
	case a == nil:
		j.Flushing = b
	case b != nil:
		j.Flushing = func(ctx context.Context, lane string, step StepInfo) (context.Context, func(error)) {
			ctx, outer := a(ctx, lane, step)
			ctx, inner := b(ctx, lane, step)
			return ctx, func(err error) { inner(err); outer(err) }
		}
	}
	switch a, b := o.Flushed, n.Flushed; {
	case a == nil:
		j.Flushed = b
	case b != nil:
		j.Flushed = func(lane string, step StepInfo, took time.Duration) { a(lane, step, took); b(lane, step, took) }
	}
	switch a, b := o.Dead, n.Dead; {
	case a == nil:
		j.Dead = b
	case b != nil:
		j.Dead = func(lane string, checkpoint uint64, r sinks.Reject) { a(lane, checkpoint, r); b(lane, checkpoint, r) }
	}
	switch a, b := o.Retrying, n.Retrying; {
	case a == nil:
		j.Retrying = b
	case b != nil:
		j.Retrying = func(lane string, r Retry) { a(lane, r); b(lane, r) }
	}
	switch a, b := o.Stopped, n.Stopped; {
	case a == nil:
		j.Stopped = b
	case b != nil:
		j.Stopped = func(lane string, err error) { a(lane, err); b(lane, err) }
	}
	return j
}
