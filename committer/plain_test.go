package committer_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

func TestC001ThreeRounds(t *testing.T) {
	w := newWorld(t)
	if o := w.open(); o.Outcome != committer.Covered {
		t.Fatalf("a new lane is %v", o.Outcome)
	}
	for i := range 3 {
		w.add(uint64(i+1), recs(i*20+1, i*20+20)...)
	}
	w.drain()
	w.want(recs(1, 60)...)
}

func TestC002C003NothingBeforeCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open()
		w.log.seal(key, 1, recs(1, 20)...)
		w.c.Notify()
		synctest.Wait()
		w.want()
		if f, m := w.sink.calls(); f+m != 0 {
			t.Fatalf("%d flushes, %d mark reads", f, m)
		}
	})
}

func TestC004SealedSurvivesClose(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.log.seal(key, 1, recs(1, 20)...)
	w.close()
	w.want()
	w.log.finish(key, 1)
	w.open()
	w.drain()
	w.want(recs(1, 20)...)
}

func TestC005ConnectionClosedUnderTheSink(t *testing.T) {
	w := newWorld(t)
	w.opts.MaxAttempts = 2
	w.open()
	w.sink.flush = times(9, sinks.Transient, false)
	w.add(1, "x")
	w.wantStop(nil)
	w.want()
}

func TestC007C020NothingPending(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.c.Notify()
	w.c.Notify()
	w.drain()
	if f, m := w.sink.calls(); f+m != 0 {
		t.Fatalf("%d flushes, %d mark reads", f, m)
	}
	if m := w.mark(); m.Seq != 0 {
		t.Fatalf("mark %+v", m)
	}
}

// C008: empty checkpoints make no batch, so only 2 and 3 are there to commit.
func TestC008OnlyFullCheckpointsCommit(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.log.seal(key, 2, recs(1, 10)...)
	w.log.seal(key, 3, recs(11, 20)...)
	w.log.finish(key, 2)
	w.c.Notify()
	w.drain()
	w.want(recs(1, 10)...)
	w.log.finish(key, 4)
	w.c.Notify()
	w.drain()
	w.want(recs(1, 20)...)
	if st := w.status(); st.Batches != 2 || st.Mark.Checkpoint != 3 {
		t.Fatalf("status %+v", st)
	}
}

func TestC015Counters(t *testing.T) {
	w := newWorld(t)
	var told committer.StepInfo
	w.opts.Observer.Flushed = func(_ string, s committer.StepInfo, _ time.Duration) { told = s }
	w.open()
	w.add(7, "a", "bb", "ccc")
	w.drain()
	if st := w.status(); st.Records != 3 || st.Steps != 1 || st.Batches != 1 || st.Dead != 0 {
		t.Fatalf("status %+v", st)
	}
	w.close()
	phases := told.Phases
	told.Phases = committer.Phases{}
	if want := (committer.StepInfo{Checkpoint: 7, First: 1, Last: 1, Batches: 1, Records: 3, Bytes: 6}); told != want || phases.Store <= 0 || phases.Read <= 0 {
		t.Fatalf("observer was told %+v", told)
	}
}

// Notices: the engine looks at the log, so that what a notice says, or whether it
// comes, does not matter.
func TestNotices(t *testing.T) {
	setup := func(t *testing.T) *world {
		w := newWorld(t)
		w.open()
		for i := range 3 {
			w.log.seal(key, uint64(i+1), recs(i*10+1, i*10+10)...)
		}
		return w
	}
	t.Run("C016LostNotice", func(t *testing.T) {
		w := setup(t)
		w.log.finish(key, 1)
		w.log.finish(key, 2)
		w.c.Notify()
		w.drain()
		w.want(recs(1, 20)...)
	})
	t.Run("C017LateNotice", func(t *testing.T) {
		w := setup(t)
		w.log.finish(key, 3)
		w.c.Notify()
		w.drain()
		w.log.finish(key, 2)
		w.c.Notify()
		w.drain()
		w.want(recs(1, 30)...)
	})
	t.Run("C018C023OnlyWhatIsComplete", func(t *testing.T) {
		w := setup(t)
		w.log.finish(key, 2)
		w.c.Notify()
		w.drain()
		w.want(recs(1, 20)...)
	})
	t.Run("C019C025SameNoticeAgain", func(t *testing.T) {
		w := setup(t)
		w.log.finish(key, 2)
		for range 5 {
			w.c.Notify()
			w.drain()
		}
		w.want(recs(1, 20)...)
		if st := w.status(); st.Batches != 2 {
			t.Fatalf("status %+v", st)
		}
	})
	t.Run("C021C022AbortNeverDiscards", func(t *testing.T) {
		w := setup(t) // checkpoint 1 is aborted: it never completes by itself
		w.log.finish(key, 2)
		w.c.Notify()
		w.drain()
		w.want(recs(1, 20)...)
	})
}

// A step that fails in every way does not touch what the log says is complete.
func TestC024FailingFlushKeepsTheCheckpoint(t *testing.T) {
	w := newWorld(t)
	w.opts.MaxAttempts = 1
	w.open()
	w.sink.flush = times(1, sinks.Transient, false)
	w.add(1, recs(1, 5)...)
	w.wantStop(nil)
	if head, committed, _ := w.log.Head(key); head.Checkpoint != 1 || committed != 0 {
		t.Fatalf("head %+v, committed %d", head, committed)
	}
	w.restart()
	w.drain()
	w.want(recs(1, 5)...)
}

func TestE01ReopenKeepsTheLedger(t *testing.T) {
	w := newWorld(t)
	w.open()
	for i := range 3 {
		w.add(uint64(i+1), recs(i*10+1, i*10+10)...)
	}
	w.drain()
	for range 3 {
		if o := w.restart(); o.Outcome != committer.Covered || o.Mark.Checkpoint != 3 {
			t.Fatalf("opening %+v", o)
		}
		w.log.finish(key, 3)
		w.c.Notify()
		w.drain()
	}
	w.want(recs(1, 30)...)
	var rows []uint64
	for row, err := range w.sink.Sink.(sinks.Ledger).Audit(t.Context(), laneA, 0) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row.Checkpoint)
	}
	if !slices.Equal(rows, []uint64{1, 2, 3}) {
		t.Fatalf("audit rows %v", rows)
	}
}

func TestCoalescing(t *testing.T) {
	w := newWorld(t)
	w.opts.StepBytes = 40 // of 4 bytes a record
	w.open()
	w.close()
	for i := range 10 {
		w.log.seal(key, uint64(i+1), recs(i*4+1, i*4+4)...)
	}
	w.log.seal(key, 11, recs(41, 60)...) // larger than a step
	w.log.seal(key, 12)                  // empty, carries the mark forward
	w.log.finish(key, 12)
	w.open()
	w.drain()
	w.want(recs(1, 60)...)
	var sizes []int
	for _, s := range w.sink.steps {
		sizes = append(sizes, len(s.Batches))
	}
	if !slices.Equal(sizes, []int{2, 2, 2, 2, 2, 1, 1}) {
		t.Fatalf("batches per step %v", sizes)
	}
	if m := w.mark(); m.Seq != 12 || m.Checkpoint != 12 || string(m.Position) != "p12" || m.Records != 60 {
		t.Fatalf("mark %+v", m)
	}
}

func TestSinkWantsSmallerSteps(t *testing.T) {
	w := newWorld(t)
	w.mopts.StepBytes = 8
	w.open()
	w.close()
	for i := range 4 {
		w.log.add(key, uint64(i+1), recs(i+1, i+1)...)
	}
	w.open()
	w.drain()
	w.want(recs(1, 4)...)
	if n, _ := w.sink.calls(); n != 2 {
		t.Fatalf("%d steps", n)
	}
}

func TestWrongFormat(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.add(1, "old")
	w.drain()
	w.close()
	w.log.add(key, 2, "old too")
	w.log.add(key, 3, "new")
	w.log.find(key, 3).Format = "other"
	w.open()
	w.wantStop(committer.ErrFormat, `"other"`, `"bytes"`, "checkpoint 3", "drain")
	w.want("old", "old too")
}

// A batch in another wire form that the sink takes is flushed, together with others.
func TestTakenFormat(t *testing.T) {
	w := newWorld(t)
	w.takes = "earlier"
	w.open()
	w.close()
	for i := range 3 {
		w.log.add(key, uint64(i+1), recs(i+1, i+1)...)
	}
	w.log.find(key, 2).Format = "earlier"
	w.open()
	w.drain()
	w.want(recs(1, 3)...)
	if n, _ := w.sink.calls(); n != 1 {
		t.Fatalf("%d steps", n)
	}
}

func TestStatusText(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.add(1, "x")
	w.drain()
	w.close()
	data, err := json.Marshal(w.status())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"lane":"a"`, `"state":"closed"`, `"checkpoint":1`, `"steps":1`, `"pending_batches":0`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s does not hold %s", data, want)
		}
	}
	for got, want := range map[string]string{
		committer.Connected.String(): "connected", committer.Covered.String(): "covered", committer.Resume.String(): "resume",
		committer.Outcome(9).String(): "outcome(9)", committer.StateVerifying.String(): "verifying", committer.State(99).String(): "state(99)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
