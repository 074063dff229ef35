package faults_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/walsink/walsink/faults"
	"github.com/walsink/walsink/sinks"
)

var (
	errBefore = errors.New("before")
	errAfter  = errors.New("after")
)

// A counter is a sink that counts what reaches it.
type counter struct {
	acquires, flushes, marks, lists, closes int
}

func (c *counter) Info() sinks.Info { return sinks.Info{Name: "counter"} }
func (c *counter) Close() error     { return nil }
func (c *counter) Acquire(context.Context, sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	c.acquires++
	return counterLane{c}, sinks.Mark{Fence: uint64(c.acquires)}, nil
}

type counterLane struct{ *counter }

func (l counterLane) Flush(context.Context, *sinks.Step) (sinks.Result, error) {
	l.flushes++
	return sinks.Result{Rejected: []sinks.Reject{{Number: 7}}}, nil
}
func (l counterLane) Mark(context.Context) (sinks.Mark, error) {
	l.marks++
	return sinks.Mark{Seq: 5}, nil
}
func (l counterLane) Close() error { l.closes++; return nil }

type ledger struct{ *counter }

func (l ledger) Marks(context.Context, string) ([]sinks.LaneMark, error) {
	l.lists++
	return []sinks.LaneMark{{}}, nil
}
func (l ledger) Audit(context.Context, sinks.LaneID, uint64) iter.Seq2[sinks.Audit, error] {
	return func(yield func(sinks.Audit, error) bool) { yield(sinks.Audit{Dead: 3}, nil) }
}

type prober struct{ *counter }

func (prober) Probe(context.Context) ([]sinks.Finding, error) { return nil, errBefore }

func TestZeroPlan(t *testing.T) {
	var p faults.Plan
	inner := &counter{}
	lane, mark, err := p.Wrap(inner).Acquire(t.Context(), sinks.LaneID{})
	if err != nil || mark.Fence != 1 {
		t.Fatalf("acquire: %+v, %v", mark, err)
	}
	if r, err := lane.Flush(t.Context(), nil); err != nil || len(r.Rejected) != 1 {
		t.Errorf("flush: %+v, %v", r, err)
	}
	if m, err := lane.Mark(t.Context()); err != nil || m.Seq != 5 {
		t.Errorf("mark: %+v, %v", m, err)
	}
	if p.Calls(faults.Acquire) != 1 || p.Calls(faults.Flush) != 1 || p.Calls(faults.ReadMark) != 1 || p.Fired() != 0 {
		t.Error("the calls are not counted")
	}
}

func TestNthCallBeforeAndAfter(t *testing.T) {
	p := faults.NewPlan(
		faults.Fault{Op: faults.Flush, Nth: 2, Before: errBefore},
		faults.Fault{Op: faults.Flush, Nth: 3, After: errAfter},
	)
	inner := &counter{}
	lane, _, err := p.Wrap(inner).Acquire(t.Context(), sinks.LaneID{})
	if err != nil {
		t.Fatal(err)
	}
	wantFlushed := 0
	for i, want := range []error{nil, errBefore, errAfter, nil} {
		if want != errBefore {
			wantFlushed++
		}
		r, err := lane.Flush(t.Context(), nil)
		if !errors.Is(err, want) || (err != nil) != (r.Rejected == nil) {
			t.Errorf("flush %d: %+v, %v; want %v", i+1, r, err, want)
		}
		if inner.flushes != wantFlushed {
			t.Errorf("flush %d: %d reached the sink, want %d", i+1, inner.flushes, wantFlushed)
		}
	}
	if p.Fired() != 2 {
		t.Errorf("fired %d times", p.Fired())
	}
}

func TestEveryCallUntilHeal(t *testing.T) {
	p := faults.NewPlan()
	sink := p.Wrap(ledger{&counter{}})
	lane, _, err := sink.Acquire(t.Context(), sinks.LaneID{})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[faults.Op]func() error{
		faults.Acquire: func() error {
			_, _, err := sink.Acquire(t.Context(), sinks.LaneID{})
			return err
		},
		faults.Flush:     func() error { _, err := lane.Flush(t.Context(), nil); return err },
		faults.ReadMark:  func() error { _, err := lane.Mark(t.Context()); return err },
		faults.ListMarks: func() error { _, err := sink.(sinks.Ledger).Marks(t.Context(), ""); return err },
	}
	for op, call := range calls {
		for _, want := range []error{errBefore, errAfter} {
			f := faults.Fault{Op: op, After: errAfter}
			if want == errBefore {
				f.Before = errBefore
			}
			p.Add(f)
			for range 2 {
				if err := call(); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", op, err, want)
				}
			}
			p.Heal()
			if err := call(); err != nil {
				t.Errorf("%s after heal: %v", op, err)
			}
		}
	}
}

// A lost answer of Acquire leaves no handle behind.
func TestLostAcquireClosesLane(t *testing.T) {
	inner := &counter{}
	p := faults.NewPlan(faults.Fault{Op: faults.Acquire, After: errAfter})
	if lane, _, err := p.Wrap(inner).Acquire(t.Context(), sinks.LaneID{}); lane != nil || !errors.Is(err, errAfter) {
		t.Errorf("acquire: %v, %v", lane, err)
	}
	if inner.acquires != 1 || inner.closes != 1 {
		t.Errorf("%d acquired, %d closed", inner.acquires, inner.closes)
	}
}

func TestWait(t *testing.T) {
	gate := make(chan struct{})
	p := faults.NewPlan(faults.Fault{Op: faults.Flush, Wait: gate})
	inner := &counter{}
	lane, _, err := p.Wrap(inner).Acquire(t.Context(), sinks.LaneID{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lane.Flush(ctx, nil); !errors.Is(err, context.Canceled) || inner.flushes != 0 {
		t.Errorf("cancelled while waiting: %v, %d flushes", err, inner.flushes)
	}
	close(gate)
	if _, err := lane.Flush(t.Context(), nil); err != nil || inner.flushes != 1 {
		t.Errorf("gate open: %v, %d flushes", err, inner.flushes)
	}
}

func TestWrapKeepsAbilities(t *testing.T) {
	c := &counter{}
	both := struct {
		*counter
		sinks.Ledger
		sinks.Prober
	}{c, ledger{c}, prober{c}}
	for name, sink := range map[string]sinks.Sink{"none": c, "ledger": ledger{c}, "prober": prober{c}, "both": both} {
		_, wantLedger := sink.(sinks.Ledger)
		_, wantProber := sink.(sinks.Prober)
		wrapped := faults.NewPlan().Wrap(sink)
		l, gotLedger := wrapped.(sinks.Ledger)
		pr, gotProber := wrapped.(sinks.Prober)
		if gotLedger != wantLedger || gotProber != wantProber {
			t.Errorf("%s: ledger %v, prober %v", name, gotLedger, gotProber)
		}
		if gotLedger {
			for a, err := range l.Audit(t.Context(), sinks.LaneID{}, 0) {
				if err != nil || a.Dead != 3 {
					t.Errorf("%s: audit %+v, %v", name, a, err)
				}
			}
		}
		if gotProber {
			if _, err := pr.Probe(t.Context()); !errors.Is(err, errBefore) {
				t.Errorf("%s: probe %v", name, err)
			}
		}
		if wrapped.Info().Name != "counter" {
			t.Errorf("%s: another sink", name)
		}
	}
}
