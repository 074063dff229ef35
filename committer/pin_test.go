package committer_test

import (
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// midway fails the first flush with an error of the kind after the store has pinned
// its first batch and before it has written anything.
func midway(k sinks.Kind) func(int, *sinks.Step) fault {
	var runs iter.Seq2[sinks.Run, error] // of the step, which is tried again
	return func(n int, st *sinks.Step) fault {
		switch n {
		case 1:
			runs = st.Runs
			st.Runs = func(yield func(sinks.Run, error) bool) { yield(sinks.Run{}, kind(k)) }
		case 2:
			st.Runs = runs
		}
		return fault{}
	}
}

// pinnedWorld is one whose store pins.
func pinnedWorld(t *testing.T) *world {
	w := newWorld(t)
	w.mopts.Pin = true
	return w
}

// wantPinned makes sure that the mark pins batch seq of the log and counts nothing of
// it.
func (w *world) wantPinned(b record.Batch, records uint64) {
	w.t.Helper()
	m := w.mark()
	if m.Partial == nil || m.Partial.Done != 0 || m.Partial.Batch.Chain() != b.Chain() || m.Records != records {
		w.t.Fatalf("mark %+v, want batch %d pinned after %d records", m, b.Seq, records)
	}
}

// After an error of any kind a mark that pins the batch is one that the step has not
// passed: the same batch goes on at the next attempt, and no kind is forgotten.
func TestPinnedIsContinued(t *testing.T) {
	for _, k := range []sinks.Kind{sinks.Transient, sinks.Ambiguous, sinks.Cancelled} {
		t.Run(k.String(), func(t *testing.T) {
			w := pinnedWorld(t)
			w.open()
			w.sink.flush = midway(k)
			w.log.seal(key, 1, recs(1, 5)...)
			w.log.seal(key, 2, recs(6, 9)...)
			w.log.finish(key, 2) // both at once, so that they go in one step
			w.c.Notify()
			w.drain()
			w.want(recs(1, 9)...)
			if n, _ := w.sink.calls(); n != 2 {
				t.Errorf("%d flushes, want 2: the same step again", n)
			}
			p := w.sink.steps[1].Prev.Partial
			if p == nil || p.Done != 0 || p.Batch.Chain() != w.sink.steps[0].Batches[0].Chain() {
				t.Errorf("the second attempt builds on %+v, want the pinned batch", w.sink.steps[1].Prev)
			}
			if m := w.mark(); m.Partial != nil || m.Records != 9 || m.Seq != 2 {
				t.Errorf("mark %+v", m)
			}
			if st := w.status(); st.Errors[k.String()] != 1 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

func TestPinnedStops(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(*world)
		kind sinks.Kind
		text string
	}{
		"permanent":     {func(*world) {}, sinks.Permanent, "lane stopped: flush"},
		"attempts used": {func(w *world) { w.opts.MaxAttempts = 1 }, sinks.Transient, "after 1 attempts"},
	} {
		t.Run(name, func(t *testing.T) {
			w := pinnedWorld(t)
			tt.set(w)
			w.open()
			w.sink.flush = midway(tt.kind)
			w.add(1, recs(1, 5)...)
			w.wantStop(nil, tt.text)
			if n, _ := w.sink.calls(); n != 1 {
				t.Errorf("%d flushes, want 1", n)
			}
			w.wantPinned(w.log.Batches(key)[0], 0)
			w.close()
			w.log.truncate()
			w.wantOutcome(committer.Connected)
			w.drain()
			w.want(recs(1, 5)...)
		})
	}
}

// Poison in a batch that the failed step has pinned puts the bad records aside.
func TestPinnedPoison(t *testing.T) {
	w := pinnedWorld(t)
	w.opts.DeadLetters = true
	w.mopts.Reject = func(rec []byte) *sinks.Reject {
		if strings.HasPrefix(string(rec), "r003") {
			return &sinks.Reject{Reason: "three"}
		}
		return nil
	}
	w.open()
	w.add(1, recs(1, 5)...)
	w.drain()
	w.want("r001", "r002", "r004", "r005")
	if n, _ := w.sink.calls(); n != 2 {
		t.Errorf("%d flushes, want 2", n)
	}
	if m := w.mark(); m.Records != 4 || m.Dead != 1 || m.Partial != nil {
		t.Errorf("mark %+v", m)
	}
}

// A log that cannot be read stops the lane with the batch pinned, and nothing of it
// in.
func TestPinnedLogError(t *testing.T) {
	w := pinnedWorld(t)
	damaged := errors.New("block is damaged")
	w.log.fail = func(op string) error {
		if op == "blocks" {
			return damaged
		}
		return nil
	}
	w.open()
	w.add(1, recs(1, 5)...)
	w.wantStop(damaged, "read")
	w.wantPinned(w.log.Batches(key)[0], 0)
	w.want()
}

// Without the log, the pinned batch comes from the source again: it and no other.
func TestPinnedWithoutLog(t *testing.T) {
	w := pinnedWorld(t)
	w.open()
	w.add(1, recs(1, 5)...)
	w.drain()
	w.close()
	w.open()
	w.sink.flush = midway(sinks.Permanent)
	w.add(2, recs(6, 9)...)
	w.wantStop(nil)
	w.wantPinned(w.log.Batches(key)[1], 5)
	w.close()

	w.log = newLog()
	o := w.wantOutcome(committer.Resume)
	if p := o.Mark.Partial; p == nil || p.Batch.Checkpoint != 2 || p.Done != 0 {
		t.Fatalf("opening %+v", o)
	}
	w.add(2, recs(6, 8)...)
	w.wantStop(committer.ErrReplayDiffers, "0 records of checkpoint 2")
	w.close()

	w.log = newLog()
	w.wantOutcome(committer.Resume)
	w.add(2, recs(6, 9)...)
	w.drain()
	w.want(recs(1, 9)...)
}
