package committer_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// threeIn is a world with batches 1 to 3 in the store, closed.
func threeIn(t *testing.T) *world {
	w := newWorld(t)
	w.open()
	for i := range 3 {
		w.add(uint64(i+1), recs(i*10+1, i*10+10)...)
		w.drain()
	}
	w.close()
	return w
}

// partial leaves the first 4 of 10 records of batch 1 in the store.
func partial(t *testing.T) *world {
	w := newWorld(t)
	w.mopts.StepBytes, w.mopts.Chunked = 16, true
	w.open()
	w.sink.flush = func(n int, _ *sinks.Step) fault {
		if n > 1 {
			return fault{err: kind(sinks.Permanent)}
		}
		return fault{}
	}
	w.add(1, recs(1, 10)...)
	_ = w.stopped()
	w.close()
	if m := w.mark(); m.Partial == nil || m.Partial.Done != 4 {
		t.Fatalf("mark %+v", m)
	}
	return w
}

// refuse checks that Open refuses, again and again, and changes nothing.
func (w *world) refuse(target error, texts ...string) {
	w.t.Helper()
	before, head := w.mark(), fmt.Sprint(w.log.Head(key))
	w.start()
	for range 2 {
		_, err := w.tryOpen()
		wantErr(w.t, err, target, append(texts, "open lane orders/a")...)
	}
	w.close()
	if after := w.mark(); after.Tip() != before.Tip() || fmt.Sprint(w.log.Head(key)) != head {
		w.t.Fatalf("a refusal changed something: %+v", after)
	}
}

func (w *world) wantOutcome(o committer.Outcome) committer.Opening {
	w.t.Helper()
	got := w.open()
	if got.Outcome != o {
		w.t.Fatalf("outcome %v, want %v", got.Outcome, o)
	}
	return got
}

func TestOpenCovered(t *testing.T) {
	w := threeIn(t)
	if o := w.wantOutcome(committer.Covered); o.Mark.Seq != 3 || string(o.Mark.Position) != "p3" {
		t.Fatalf("mark %+v", o.Mark)
	}
	w.add(4, "more")
	w.drain()
	w.want(append(recs(1, 30), "more")...)
}

// C051: in the store and recorded there, but the log does not know.
func TestC051MissedConfirmation(t *testing.T) {
	w := threeIn(t)
	w.log.lane(key).committed = 1
	w.wantOutcome(committer.Covered)
	w.drain()
	w.want(recs(1, 30)...)
	if _, committed, _ := w.log.Head(key); committed != 3 {
		t.Fatalf("committed %d: the bytes are not released", committed)
	}
}

func TestC050E19RestoredTwice(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.add(1, recs(1, 10)...)
	w.drain()
	w.close()
	saved := w.log.clone()
	for range 2 {
		w.log = saved.clone()
		w.log.add(key, 2, recs(11, 20)...)
		w.open()
		w.drain()
		w.want(recs(1, 20)...)
		w.close()
	}
	// The ledger is ahead of the state: reported, not ignored.
	w.log = saved.clone()
	if o := w.wantOutcome(committer.Resume); o.Mark.Checkpoint != 2 || string(o.Mark.Position) != "p2" {
		t.Fatalf("opening %+v", o)
	}
	w.close()
	w.log = saved.clone()
	w.opts.Stateful = true
	w.refuse(committer.ErrStateBehind, "batch 2 (checkpoint 2)", "batch 1 (checkpoint 1)", "accept")
}

func TestOpenStoreRolledBackHeals(t *testing.T) {
	for _, keep := range []bool{false, true} {
		w := newWorld(t)
		w.open()
		w.add(1, recs(1, 10)...)
		w.drain()
		snap := w.store.Snapshot()
		w.add(2, recs(11, 20)...)
		w.add(3, recs(21, 30)...)
		w.drain()
		w.close()
		w.store.Restore(snap, keep)
		w.want(recs(1, 10)...)
		if o := w.wantOutcome(committer.Connected); o.Mark.Seq != 1 {
			t.Fatalf("opening %+v", o)
		}
		w.drain()
		w.want(recs(1, 30)...)
	}
}

// C105, C106: no state, the target kept.
func TestC105NoLocalLogResumes(t *testing.T) {
	w := threeIn(t)
	w.log = newLog()
	o := w.wantOutcome(committer.Resume)
	if string(o.Mark.Position) != "p3" || o.Behind != nil {
		t.Fatalf("opening %+v", o)
	}
	w.add(4, "next") // under the checkpoint number of a new run, after the mark
	w.drain()
	w.want(append(recs(1, 30), "next")...)
	w.restart()
	w.want(append(recs(1, 30), "next")...)
}

func TestC106StatefulRefuses(t *testing.T) {
	w := threeIn(t)
	w.log = newLog()
	w.opts.Stateful = true
	w.refuse(committer.ErrStateBehind, "no local log", "batch 3 (checkpoint 3)")
	w.opts.Accept = committer.AcceptLoss
	w.wantOutcome(committer.Resume)
	w.close()
	w.log = newLog()
	w.opts.Accept = committer.AcceptDuplicates
	if o := w.wantOutcome(committer.Covered); o.Mark.Seq != 3 {
		t.Fatalf("opening %+v", o)
	}
	w.add(4, "r030") // what the operator accepted
	w.drain()
	w.want(append(recs(1, 30), "r030")...)
}

// Another owner went on meanwhile: what is local is set aside.
func TestOpenAnotherHistory(t *testing.T) {
	setup := func(t *testing.T) *world {
		w := threeIn(t)
		old := w.log.clone()
		w.open()
		w.add(4, "other")
		w.drain()
		w.close()
		w.log = old
		w.log.add(key, 4, "mine")
		return w
	}
	t.Run("stateless", func(t *testing.T) {
		w := setup(t)
		o := w.wantOutcome(committer.Resume)
		if o.Mark.Seq != 4 || w.log.lane(key).aside != 4 {
			t.Fatalf("opening %+v, %d set aside", o, w.log.lane(key).aside)
		}
		w.drain()
		w.want(append(recs(1, 30), "other")...)
	})
	t.Run("source cannot go back", func(t *testing.T) {
		w := setup(t)
		w.opts.NoReplay = true
		w.refuse(committer.ErrStateBehind, "of another history")
		w.opts.Accept = committer.AcceptDuplicates // would lose what is unflushed
		w.refuse(committer.ErrStateBehind)
		w.opts.Accept = committer.AcceptLoss
		w.wantOutcome(committer.Resume)
	})
	t.Run("nothing unflushed", func(t *testing.T) {
		w := setup(t)
		w.log.lane(key).committed = 4
		w.opts.Stateful, w.opts.Accept = true, committer.AcceptDuplicates
		w.wantOutcome(committer.Covered)
		if head, _, _ := w.log.Head(key); head.Seq != 4 || string(head.Position) != "p4" {
			t.Fatalf("head %+v", head)
		}
	})
}

// C103 and Q12: the ledger is gone while the log says that batches were in.
func TestOpenLedgerMissing(t *testing.T) {
	gone := func(t *testing.T) *world {
		w := threeIn(t)
		w.store.DropLedger()
		w.start() // one acquisition, so that there is a mark again
		_, err := w.tryOpen()
		wantErr(t, err, committer.ErrLedgerMissing, "3 batches")
		w.close()
		return w
	}
	t.Run("refused for ever", func(t *testing.T) {
		w := gone(t)
		w.refuse(committer.ErrLedgerMissing, "put the ledger back")
		w.want(recs(1, 30)...)
	})
	t.Run("also if the log forgot, but dropped", func(t *testing.T) {
		w := gone(t)
		w.log.drop(key, 1)
		w.log.lane(key).committed = 0
		w.refuse(committer.ErrLedgerMissing, "2 batches")
	})
	t.Run("accept loss believes the log", func(t *testing.T) {
		for _, keep := range []int{0, 1, 3} {
			w := gone(t)
			w.log.drop(key, keep)
			w.log.add(key, 4, "four")
			w.opts.Accept = committer.AcceptLoss
			o := w.wantOutcome(committer.Connected)
			if o.Mark.Seq != 3 || keep > 0 && string(o.Mark.Position) != "p3" {
				t.Fatalf("mark %+v", o.Mark)
			}
			w.drain()
			w.want(append(recs(1, 30), "four")...)
			w.opts.Accept = 0
			if o := w.restart(); o.Outcome != committer.Covered {
				t.Fatalf("then %v", o.Outcome)
			}
		}
	})
	t.Run("accept loss with nothing pending", func(t *testing.T) {
		w := gone(t)
		w.log.drop(key, 0)
		w.opts.Accept = committer.AcceptLoss
		if o := w.wantOutcome(committer.Covered); o.Mark.Seq != 3 || string(o.Mark.Position) != "p3" {
			t.Fatalf("mark %+v", o.Mark)
		}
	})
	t.Run("E13 accept duplicates writes all again", func(t *testing.T) {
		w := threeIn(t)
		w.store = memory.NewStore() // store and ledger were dropped
		w.opts.Accept = committer.AcceptDuplicates
		w.wantOutcome(committer.Connected)
		w.drain()
		w.want(recs(1, 30)...)
	})
	t.Run("accept duplicates with nothing retained", func(t *testing.T) {
		w := threeIn(t)
		w.store = memory.NewStore()
		w.log.drop(key, 1)
		w.opts.Accept = committer.AcceptDuplicates
		if o := w.wantOutcome(committer.Resume); o.Mark.Position != nil {
			t.Fatalf("mark %+v", o.Mark)
		}
	})
}

func TestOpenLedgerBehind(t *testing.T) {
	setup := func(t *testing.T) *world {
		w := newWorld(t)
		w.open()
		w.add(1, recs(1, 10)...)
		w.drain()
		snap := w.store.Snapshot()
		w.add(2, recs(11, 20)...)
		w.add(3, recs(21, 30)...)
		w.add(4, recs(31, 40)...)
		w.drain()
		w.close()
		w.log.drop(key, 1)
		w.store.Restore(snap, false)
		return w
	}
	t.Run("source goes back", func(t *testing.T) {
		w := setup(t)
		o := w.wantOutcome(committer.Resume)
		if o.Behind == nil || *o.Behind != (committer.Gap{After: 1, Upto: 3}) || string(o.Mark.Position) != "p1" {
			t.Fatalf("opening %+v", o)
		}
		w.add(5, recs(11, 50)...)
		w.drain()
		w.want(recs(1, 50)...)
	})
	for name, opts := range map[string]committer.Options{"stateful": {Stateful: true}, "no replay": {NoReplay: true}} {
		t.Run(name, func(t *testing.T) {
			w := setup(t)
			w.opts.Stateful, w.opts.NoReplay = opts.Stateful, opts.NoReplay
			w.refuse(committer.ErrLedgerBehind, "batch 1 (checkpoint 1)", "batches 2 to 3")
			w.opts.Accept = committer.AcceptDuplicates
			w.wantOutcome(committer.Resume)
		})
	}
	t.Run("accept loss goes on with what is retained", func(t *testing.T) {
		w := setup(t)
		w.opts.Stateful, w.opts.Accept = true, committer.AcceptLoss
		w.wantOutcome(committer.Connected)
		w.drain()
		w.want(append(recs(1, 10), recs(31, 40)...)...)
	})
}

func TestOpenPartial(t *testing.T) {
	t.Run("the local batch is the same", func(t *testing.T) {
		w := partial(t)
		if o := w.wantOutcome(committer.Connected); o.Mark.Partial.Done != 4 {
			t.Fatalf("opening %+v", o)
		}
		w.drain()
		w.want(recs(1, 10)...)
		if m := w.mark(); m.Partial != nil || m.Records != 10 {
			t.Fatalf("mark %+v", m)
		}
	})
	t.Run("the local batch differs", func(t *testing.T) {
		w := partial(t)
		w.log = newLog()
		w.log.Reset(key, w.mark().Head())
		w.log.add(key, 1, recs(1, 9)...)
		w.refuse(committer.ErrReplayDiffers, "checkpoint 1 (9 records", "4 records of checkpoint 1 (10 records")
		w.opts.Accept = committer.AcceptLoss
		w.refuse(committer.ErrReplayDiffers)
		w.opts.Accept = committer.AcceptDuplicates
		w.wantOutcome(committer.Connected)
		w.drain()
		w.want(append(recs(1, 4), recs(1, 9)...)...)
	})
	// Two directories took turns: this one was left with a cut of its own.
	left := func(t *testing.T, checkpoint uint64) *world {
		w := partial(t)
		w.log = newLog()
		w.log.Reset(key, w.mark().Head())
		w.log.add(key, checkpoint, recs(1, 10)...)
		return w
	}
	t.Run("the local batch is of another cut", func(t *testing.T) {
		w := left(t, 2)
		o := w.wantOutcome(committer.Resume)
		if p := o.Mark.Partial; p == nil || p.Batch.Checkpoint != 1 || p.Done != 4 || len(w.log.Batches(key)) != 0 {
			t.Fatalf("opening %+v", o)
		}
		w.add(1, recs(1, 10)...)
		w.add(2, "then")
		w.drain()
		w.want(append(recs(1, 10), "then")...)
	})
	for name, opts := range map[string]committer.Options{"stateful": {Stateful: true}, "no replay": {NoReplay: true}} {
		t.Run("the local batch is of another cut, "+name, func(t *testing.T) {
			w := left(t, 2)
			w.opts.Stateful, w.opts.NoReplay = opts.Stateful, opts.NoReplay
			w.refuse(committer.ErrReplayDiffers, "checkpoint 2 (10 records", "4 records of checkpoint 1 (10 records")
		})
	}
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprintf("no local batch, replay same=%v", same), func(t *testing.T) {
			w := partial(t)
			w.log = newLog()
			o := w.wantOutcome(committer.Resume)
			p := o.Mark.Partial
			if p == nil || string(p.Batch.Position) != "p1" || o.Mark.Position != nil {
				t.Fatalf("opening %+v", o)
			}
			if same {
				w.add(p.Batch.Checkpoint, recs(1, 10)...)
				w.add(2, "then")
				w.drain()
				w.want(append(recs(1, 10), "then")...)
				return
			}
			w.add(p.Batch.Checkpoint, append(recs(1, 9), "else")...)
			w.wantStop(committer.ErrReplayDiffers, "orders/a", "checkpoint 1")
			w.want(recs(1, 4)...)
		})
	}
	t.Run("the log ends at the mark, the batch was not complete", func(t *testing.T) {
		w := partial(t)
		w.log = newLog()
		w.log.Reset(key, w.mark().Head())
		w.opts.Stateful = true
		w.wantOutcome(committer.Resume)
	})
}

// The rules for opening hold again when the mark moves under a running lane.
func TestMovedWhileRunning(t *testing.T) {
	setup := func(t *testing.T) (*world, memory.Snapshot) {
		w := newWorld(t)
		w.open()
		w.add(1, recs(1, 10)...)
		w.drain()
		snap := w.store.Snapshot()
		w.add(2, recs(11, 20)...)
		w.drain()
		return w, snap
	}
	t.Run("rolled back, heals", func(t *testing.T) {
		w, snap := setup(t)
		w.store.Restore(snap, true)
		w.add(3, recs(21, 30)...)
		w.drain()
		w.want(recs(1, 30)...)
	})
	t.Run("rolled back too far", func(t *testing.T) {
		w, snap := setup(t)
		w.log.drop(key, 0)
		w.store.Restore(snap, true)
		w.add(3, recs(21, 30)...)
		w.wantStop(committer.ErrLedgerBehind, "moved under the running lane", "open the lane again")
		w.want(recs(1, 10)...)
	})
	t.Run("emptied", func(t *testing.T) {
		w, _ := setup(t)
		w.store.Restore(memory.NewStore().Snapshot(), true)
		w.add(3, recs(21, 30)...)
		w.wantStop(committer.ErrLedgerMissing)
		w.want()
	})
}

func TestC065C066LedgerIsPerLane(t *testing.T) {
	store := memory.NewStore()
	for _, id := range []sinks.LaneID{laneA, {Sink: sinkID, Lane: "b"}, {Sink: "other", Lane: "a"}} {
		log := newLog()
		c, err := committer.New(memory.Open(store, memory.Options{}), id.Sink, log, committer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := c.Open(t.Context(), id.Lane)
		if err != nil || o.Mark.Seq != 0 {
			t.Fatalf("%v: %+v, %v: it sees what another lane committed", id, o, err)
		}
		log.add(id.String(), 1, id.String())
		if err := errors.Join(c.Drain(t.Context()), c.Close()); err != nil {
			t.Fatal(err)
		}
		if got := store.Records(id); len(got) != 1 || string(got[0]) != id.String() {
			t.Fatalf("%v shows %q", id, got)
		}
	}
}

func TestOpenArguments(t *testing.T) {
	w := newWorld(t)
	if _, err := committer.New(memory.Open(w.store, w.mopts), "not/valid", w.log, w.opts); err == nil {
		t.Error("a bad sink id is taken")
	}
	w.open()
	_, err := w.tryOpen()
	wantErr(t, err, nil, "open already")
	_, err = w.c.Open(t.Context(), "..")
	wantErr(t, err, nil, "lane")
	w.close()
	_, err = w.c.Open(t.Context(), "b")
	wantErr(t, err, committer.ErrClosed)
}

func TestOpenErrorsOfTheLog(t *testing.T) {
	for _, op := range []string{"reset", "commit"} {
		w := threeIn(t)
		if op == "reset" {
			w.log = newLog()
		}
		w.log.fail = func(o string) error {
			if o == op {
				return errors.New("disk")
			}
			return nil
		}
		w.start()
		_, err := w.tryOpen()
		wantErr(t, err, nil, "disk")
		w.log.fail = nil
		if _, err := w.tryOpen(); err != nil {
			t.Fatal(err)
		}
	}
}

// E07, E08: an old process wakes up after a new one has taken over.
func TestE07E08SecondOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.RetryMax = time.Second
		w.open()
		w.add(1, recs(1, 10)...)
		w.drain()
		old, oldLog, oldSink := w.c, w.log, w.sink
		copied := w.log.clone()

		gate := make(chan struct{})
		oldSink.flush = func(int, *sinks.Step) fault { <-gate; return fault{} }
		w.add(2, recs(11, 20)...)
		synctest.Wait() // A is inside its flush

		w.log = copied // B runs on a copy of the state
		w.open()
		w.add(2, recs(11, 15)...)
		w.add(3, recs(16, 20)...)
		w.drain()
		w.want(recs(1, 20)...)

		close(gate)
		<-old.Failed()
		wantErr(t, old.Err(), nil, "a newer owner has taken the lane over", "fence 1 was raised to 2")
		if !errorIs(old.Err(), sinks.Fenced) {
			t.Fatalf("error %v is not Fenced", old.Err())
		}
		w.want(recs(1, 20)...)
		if _, committed, _ := oldLog.Head(key); committed != 1 {
			t.Fatalf("the old owner believes in batch %d", committed)
		}
		w.add(4, "on")
		w.drain()
		w.want(append(recs(1, 20), "on")...)
	})
}

func errorIs(err error, k sinks.Kind) bool { return sinks.KindOf(err) == k }
