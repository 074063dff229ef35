package sinktest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/walsink/walsink/sinks"
)

// What is wrong with a store.
const (
	whole = iota
	down
	mute
)

var errFault = errors.New("no answer")

// A fault is common to all sinks on one store.
type fault struct{ now atomic.Int32 }

func (f *fault) set(what int32) (heal func()) {
	f.now.Store(what)
	return func() { f.now.Store(whole) }
}

func (f *fault) wrap(s sinks.Sink) sinks.Sink {
	l, _ := s.(sinks.Ledger)
	b, _ := s.(sinks.DeadLetterBox)
	r, _ := s.(sinks.Reconciler)
	return &faultySink{Sink: s, Ledger: l, DeadLetterBox: b, Reconciler: r, fault: f}
}

// call makes a call of the store, or not, and says so, or not.
func (f *fault) call(op string, id sinks.LaneID, do func() error) error {
	switch f.now.Load() {
	case down:
		return &sinks.Error{Kind: sinks.Transient, Op: op, Lane: id, Err: errFault}
	case mute:
		_ = do() // the answer is lost
		return &sinks.Error{Kind: sinks.Ambiguous, Op: op, Lane: id, Err: errFault}
	}
	return do()
}

type faultySink struct {
	sinks.Sink
	sinks.Ledger
	sinks.DeadLetterBox
	sinks.Reconciler
	fault *fault
}

func (s *faultySink) Acquire(ctx context.Context, id sinks.LaneID) (lane sinks.Lane, m sinks.Mark, err error) {
	err = s.fault.call("acquire", id, func() error {
		lane, m, err = s.Sink.Acquire(ctx, id)
		return err
	})
	if err != nil {
		return nil, m, err
	}
	return &faultyLane{lane, s.fault, id}, m, nil
}

type faultyLane struct {
	sinks.Lane
	fault *fault
	id    sinks.LaneID
}

func (l *faultyLane) Flush(ctx context.Context, st *sinks.Step) (res sinks.Result, err error) {
	err = l.fault.call("flush", l.id, func() error {
		res, err = l.Lane.Flush(ctx, st)
		return err
	})
	return res, err
}

func (l *faultyLane) Mark(ctx context.Context) (m sinks.Mark, err error) {
	err = l.fault.call("mark", l.id, func() error {
		m, err = l.Lane.Mark(ctx)
		return err
	})
	return m, err
}
