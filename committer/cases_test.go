package committer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

func TestC045OnlyTheCheckpointIsRestored(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.add(1, recs(1, 20)...)
	w.drain()
	w.log.seal(key, 2, recs(21, 40)...)
	o := w.restart() // discards what was not complete
	if o.Mark.Checkpoint != 1 || string(o.Mark.Position) != "p1" {
		t.Fatalf("C052: mark %+v", o.Mark)
	}
	w.add(2, recs(41, 60)...)
	w.drain()
	w.want(append(recs(1, 20), recs(41, 60)...)...)
}

// C054: nothing but what is on disk and in the store is needed.
func TestC054FreshProcess(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.close()
	w.log.add(key, 1, recs(1, 10)...)
	w.log = w.log.clone()
	w.open()
	w.drain()
	w.want(recs(1, 10)...)
}

func TestC071C072Bookkeeping(t *testing.T) {
	w := newWorld(t)
	w.mopts.StepBytes = 1
	w.open()
	for i := range 3 {
		w.log.seal(key, uint64(i+1), fmt.Sprint(i+1))
	}
	w.log.finish(key, 2)
	w.c.Notify()
	w.drain()
	w.drain() // gives none
	w.want("1", "2")
	if !slices.Equal(w.log.commits, []uint64{1, 2}) {
		t.Fatalf("commits %v", w.log.commits)
	}
	w.sink.flush = func(int, *sinks.Step) fault { return fault{err: kind(sinks.Permanent)} }
	w.log.finish(key, 3)
	w.c.Notify()
	_ = w.stopped()
	if st := w.status(); st.Batches != 2 || st.Errors["permanent"] != 1 || st.PendingBatches != 1 {
		t.Fatalf("status %+v", st)
	}
}

// C081: nothing is flushed by what was sealed, however much it is.
func TestC081OnlyCompletionFlushes(t *testing.T) {
	w := newWorld(t)
	w.opts.FlushBytes = 1
	w.open()
	for i := range 50 {
		w.log.seal(key, uint64(i+1), recs(i, i)...)
	}
	w.c.Notify()
	w.drain()
	w.want()
	w.log.finish(key, 50)
	w.c.Notify()
	w.drain()
	w.want(recs(0, 49)...)
}

// lanesOf opens lanes of a store in a new committer over the log.
func lanesOf(t *testing.T, store *memory.Store, log *fakeLog, names ...string) *committer.Committer {
	t.Helper()
	c, err := committer.New(memory.Open(store, memory.Options{}), sinkID, log, committer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for _, name := range names {
		if _, err := c.Open(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func drained(t *testing.T, cs ...*committer.Committer) {
	t.Helper()
	for _, c := range cs {
		c.Notify()
		if err := c.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// wantLane compares a lane with the records "<lane>-1" to "<lane>-n".
func wantLane(t *testing.T, store *memory.Store, lane string, n int) {
	t.Helper()
	got := store.Records(sinks.LaneID{Sink: sinkID, Lane: lane})
	for i, rec := range got {
		if string(rec) != fmt.Sprintf("%s-%d", lane, i+1) {
			t.Fatalf("lane %s record %d is %s", lane, i, rec)
		}
	}
	if len(got) != n {
		t.Fatalf("lane %s shows %d records, want %d", lane, len(got), n)
	}
}

func laneRecs(lane string, from, to int) (out []string) {
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("%s-%d", lane, i))
	}
	return out
}

// Rescaling moves lanes, whole, with their log. Order, ledger and identity belong
// to the lane, not to who works on it.
func TestC059C069TwoOwnersBecomeOne(t *testing.T) {
	store, log := memory.NewStore(), newLog()
	first := lanesOf(t, store, log, "a", "b")
	log.seal(sinkID+"/a", 1, laneRecs("a", 1, 10)...)
	log.seal(sinkID+"/b", 1, laneRecs("b", 1, 11)...)
	_ = first.Close()
	one := lanesOf(t, store, log, "a", "b")
	log.seal(sinkID+"/a", 2, laneRecs("a", 11, 22)...)
	log.finish(sinkID+"/a", 2)
	log.finish(sinkID+"/b", 2)
	drained(t, one)
	wantLane(t, store, "a", 22)
	wantLane(t, store, "b", 11)
}

func TestC060C061OneOwnerBecomesTwo(t *testing.T) {
	store, log := memory.NewStore(), newLog()
	one := lanesOf(t, store, log, "a", "b")
	_ = one.Close()
	log.add(sinkID+"/a", 7, laneRecs("a", 1, 10)...)
	log.add(sinkID+"/b", 7, laneRecs("b", 1, 11)...)
	other := log.clone()
	left, right := lanesOf(t, store, log, "a"), lanesOf(t, store, other, "b")
	other.add(sinkID+"/b", 8, laneRecs("b", 12, 21)...)
	drained(t, left, right)
	wantLane(t, store, "a", 10)
	wantLane(t, store, "b", 21)
	if st := left.Status(); len(st) != 1 || st[0].Lane != "a" || st[0].Mark.Checkpoint != 7 {
		t.Fatalf("status %+v", st)
	}
}

// C067: a later batch can never be in before an earlier one, so that there is
// nothing to publish afterwards.
func TestC067LaterBatchFirst(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.close()
	w.log.add(key, 1, "one")
	w.log.add(key, 2, "two")
	task1 := w.log.clone()
	l := task1.lane(key)
	l.sealed, l.complete = l.sealed[1:], 1 // it got the second only
	own := w.log
	w.log = task1
	w.refuse(committer.ErrLedgerMissing)
	w.want()
	w.log = own
	w.open()
	w.drain()
	w.want("one", "two")
}

func TestE02Rescale(t *testing.T) {
	store, log := memory.NewStore(), newLog()
	names := []string{"a", "b", "c", "d"}
	_ = lanesOf(t, store, log, names...).Close()
	for _, n := range names {
		log.add(sinkID+"/"+n, 1, laneRecs(n, 1, 100)...)
	}
	half := log.clone()
	x, y := lanesOf(t, store, log, "a", "b"), lanesOf(t, store, half, "c", "d")
	drained(t, x, y)
	_, _ = x.Close(), y.Close()
	var eight []*committer.Committer
	for i, n := range append(names, "e", "f", "g", "h") { // four of them are new
		l := log
		if i > 1 {
			l = half
		}
		eight = append(eight, lanesOf(t, store, l.clone(), n))
	}
	drained(t, eight...)
	for _, n := range names {
		wantLane(t, store, n, 100)
	}
}

// E11: what is in is never sent again, so that nothing can be overwritten.
func TestE11ReplaySendsNothing(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.add(4, recs(1, 10)...)
	w.drain()
	for range 3 {
		w.close()
		w.log.lane(key).committed = 0
		w.open()
		w.c.Notify()
		w.drain()
		if n, _ := w.sink.calls(); n != 0 {
			t.Fatalf("%d flushes", n)
		}
	}
}

// C041: a failure in recovery fails the start, and stays one.
func TestC041FailureInRecovery(t *testing.T) {
	w := newWorld(t)
	w.opts.MaxAttempts = 1
	w.open()
	w.close()
	w.log.add(key, 1, "x")
	for range 2 {
		w.start()
		w.sink.acquire = func(int) error { return kind(sinks.Permanent) }
		_, err := w.tryOpen()
		wantErr(t, err, nil, "injected")
		w.close()
	}
	w.open()
	w.drain()
	w.want("x")
}

// C108: records without bytes are records.
func TestC108EmptyRecordsSurvive(t *testing.T) {
	for _, chunk := range []int64{0, 1} {
		w := newWorld(t)
		w.mopts.StepBytes, w.mopts.Chunked = chunk, chunk > 0
		w.open()
		w.add(1, "", "", "a", "", "b", "")
		w.add(2, "", "", "")
		w.drain()
		w.want("", "", "a", "", "b", "", "", "", "")
	}
}
