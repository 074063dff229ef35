package faults

import (
	"context"
	"iter"
	"sync"

	"github.com/walsink/walsink/sinks"
)

// An Op is a call that a [Plan] can break.
type Op string

// The calls that can be broken: Sink.Acquire, Lane.Flush, Lane.Mark and
// Ledger.Marks.
const (
	Acquire   Op = "acquire"
	Flush     Op = "flush"
	ReadMark  Op = "mark"
	ListMarks Op = "marks"
)

// A Fault is what happens to one call, or to all, of an Op.
type Fault struct {
	Op Op
	// Nth is the call, counted from 1 over all lanes since the plan was made; 0 is
	// every call.
	Nth int
	// Before is returned in place of the call, which does not happen.
	Before error
	// After is returned although the call happened: its answer is lost. It is
	// ignored if Before is set.
	After error
	// Wait delays the call until the channel is closed or the call's context ends,
	// whose error is then returned. A nil channel does not delay.
	Wait <-chan struct{}
}

// A Plan holds the faults of the sinks that it wraps, and counts their calls. The
// zero Plan breaks nothing. Its methods are safe for concurrent use.
type Plan struct {
	mu     sync.Mutex
	faults []Fault
	calls  map[Op]int
	fired  int
}

// NewPlan makes a plan. Of several faults that fit a call, the first is taken.
func NewPlan(faults ...Fault) *Plan { return &Plan{faults: faults} }

// Add adds faults after those that are there.
func (p *Plan) Add(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, faults...)
}

// Heal forgets all faults. Calls that wait go on waiting for their channel.
func (p *Plan) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}

// Calls returns how many calls of op were begun.
func (p *Plan) Calls(op Op) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[op]
}

// Fired returns how many calls met a fault. A test that breaks call 1, 2, 3 and so
// on is through when its plan did not fire.
func (p *Plan) Fired() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

// Wrap returns the sink with the plan's faults. The result has the optional
// abilities of sink, no more and no less, but for Validate, which lets everything
// pass if sink has none, and for those of a DeadLetterBox and a Reconciler, which it
// has if sink is both. Close is never broken.
func (p *Plan) Wrap(sink sinks.Sink) sinks.Sink {
	w := &faultySink{sink, p}
	ledger, isLedger := sink.(sinks.Ledger)
	prober, isProber := sink.(sinks.Prober)
	l := &faultyLedger{ledger, p}
	box, isBox := sink.(sinks.DeadLetterBox)
	rec, isReconciler := sink.(sinks.Reconciler)
	switch {
	case isLedger && isBox && isReconciler && isProber:
		return struct {
			*faultySink
			sinks.Ledger
			sinks.DeadLetterBox
			sinks.Reconciler
			sinks.Prober
		}{w, l, box, rec, prober}
	case isLedger && isBox && isReconciler:
		return struct {
			*faultySink
			sinks.Ledger
			sinks.DeadLetterBox
			sinks.Reconciler
		}{w, l, box, rec}
	case isLedger && isProber:
		return struct {
			*faultySink
			sinks.Ledger
			sinks.Prober
		}{w, l, prober}
	case isLedger:
		return struct {
			*faultySink
			sinks.Ledger
		}{w, l}
	case isProber:
		return struct {
			*faultySink
			sinks.Prober
		}{w, prober}
	}
	return w
}

// meet counts the call and returns its fault after having waited.
func (p *Plan) meet(ctx context.Context, op Op) (Fault, error) {
	f := p.next(op)
	if f.Wait == nil {
		return f, f.Before
	}
	select {
	case <-f.Wait:
		return f, f.Before
	case <-ctx.Done():
		return f, ctx.Err()
	}
}

func (p *Plan) next(op Op) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls = map[Op]int{}
	}
	p.calls[op]++
	for _, f := range p.faults {
		if f.Op == op && (f.Nth == 0 || f.Nth == p.calls[op]) {
			p.fired++
			return f
		}
	}
	return Fault{}
}

type faultySink struct {
	sinks.Sink
	plan *Plan
}

// Validate is the sink's own, if it has one.
func (s *faultySink) Validate(rec []byte) error {
	if v, ok := s.Sink.(sinks.Validator); ok {
		return v.Validate(rec)
	}
	return nil
}

func (s *faultySink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	f, err := s.plan.meet(ctx, Acquire)
	if err != nil {
		return nil, sinks.Mark{}, err
	}
	lane, mark, err := s.Sink.Acquire(ctx, id)
	if err != nil {
		return nil, sinks.Mark{}, err
	}
	if f.After != nil {
		_ = lane.Close() // nobody else can
		return nil, sinks.Mark{}, f.After
	}
	return &faultyLane{lane, s.plan}, mark, nil
}

type faultyLane struct {
	sinks.Lane
	plan *Plan
}

func (l *faultyLane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	f, err := l.plan.meet(ctx, Flush)
	if err != nil {
		return sinks.Result{}, err
	}
	result, err := l.Lane.Flush(ctx, step)
	if err == nil && f.After != nil {
		return sinks.Result{}, f.After
	}
	return result, err
}

func (l *faultyLane) Mark(ctx context.Context) (sinks.Mark, error) {
	f, err := l.plan.meet(ctx, ReadMark)
	if err != nil {
		return sinks.Mark{}, err
	}
	mark, err := l.Lane.Mark(ctx)
	if err == nil && f.After != nil {
		return sinks.Mark{}, f.After
	}
	return mark, err
}

type faultyLedger struct {
	ledger sinks.Ledger
	plan   *Plan
}

func (l *faultyLedger) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	f, err := l.plan.meet(ctx, ListMarks)
	if err != nil {
		return nil, err
	}
	marks, err := l.ledger.Marks(ctx, sink)
	if err == nil && f.After != nil {
		return nil, f.After
	}
	return marks, err
}

func (l *faultyLedger) Audit(ctx context.Context, id sinks.LaneID, after uint64) iter.Seq2[sinks.Audit, error] {
	return l.ledger.Audit(ctx, id, after)
}
