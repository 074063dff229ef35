package memory_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/walsink/walsink/faults"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	for name, opts := range map[string]memory.Options{
		"whole": {}, "chunked": {StepBytes: 4000, Chunked: true}, "tolerant": {Chunked: true, Tolerate: true},
		"pinning": {Pin: true}, "pinning and chunked": {StepBytes: 4000, Chunked: true, Pin: true},
	} {
		t.Run(name, func(t *testing.T) { sinktest.Run(t, harness(opts)) })
	}
}

func BenchmarkConformance(b *testing.B) { sinktest.Bench(b, harness(memory.Options{})) }

func harness(opts memory.Options) sinktest.Harness {
	store, plan := memory.NewStore(), faults.NewPlan()
	opts.Reject = func(rec []byte) *sinks.Reject {
		if bytes.HasPrefix(rec, []byte("bad ")) {
			return &sinks.Reject{Reason: "it is bad"}
		}
		return nil
	}
	return sinktest.Harness{
		Open:    func(testing.TB) sinks.Sink { return plan.Wrap(memory.Open(store, opts)) },
		Visible: func(_ testing.TB, id sinks.LaneID) [][]byte { return store.Records(id) },
		Binary:  true,
		Bad:     func(_ sinks.LaneID, payload []byte) []byte { return append([]byte("bad "), payload...) },
		DeadLetters: func(_ testing.TB, id sinks.LaneID) (all []sinks.DeadLetter) {
			for _, d := range store.DeadLetters(id) {
				all = append(all, sinks.DeadLetter{Reject: sinks.Reject{Number: d.Number}, Checkpoint: d.Checkpoint, Record: d.Record})
			}
			return all
		},
		Snapshot: func(testing.TB) func() {
			s := store.Snapshot()
			return func() { store.Restore(s, false) }
		},
		Break: func(testing.TB) func() {
			down := &sinks.Error{Kind: sinks.Transient, Op: "call", Err: errors.New("no route to the store")}
			plan.Add(faults.Fault{Op: faults.Acquire, Before: down}, faults.Fault{Op: faults.Flush, Before: down},
				faults.Fault{Op: faults.ReadMark, Before: down})
			return plan.Heal
		},
		LoseAnswers: func(testing.TB) func() {
			plan.Add(faults.Fault{Op: faults.Flush, After: &sinks.Error{Kind: sinks.Ambiguous, Op: "flush", Err: errors.New("no answer")}})
			return plan.Heal
		},
	}
}
