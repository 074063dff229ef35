package committer_test

import (
	"fmt"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/wal"
)

// An engine over the real log: the rules that the fake one stands for hold there.
type walWorld struct {
	t     *testing.T
	dir   string
	store *memory.Store
	mopts memory.Options
	opts  committer.Options
	log   *wal.Log
	lane  *wal.Lane
	c     *committer.Committer
	next  uint64
}

func newWalWorld(t *testing.T) *walWorld {
	return &walWorld{t: t, dir: t.TempDir(), store: memory.NewStore()}
}

func (w *walWorld) open() committer.Opening {
	w.t.Helper()
	var err error
	if w.log, err = wal.Open(w.dir, wal.Options{GenerationBytes: 4 << 20}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.log.Truncate(); err != nil {
		w.t.Fatal(err)
	}
	if w.c, err = committer.New(memory.Open(w.store, w.mopts), sinkID, w.log, w.opts); err != nil {
		w.t.Fatal(err)
	}
	o, err := w.c.Open(w.t.Context(), "a")
	if err != nil {
		w.t.Fatal(err)
	}
	if w.lane, err = w.log.Lane(key); err != nil {
		w.t.Fatal(err)
	}
	done, _ := w.log.Completed()
	w.next = max(done, o.Mark.Checkpoint) + 1
	return o
}

func (w *walWorld) close() {
	w.t.Helper()
	if err := w.c.Close(); err != nil {
		w.t.Error(err)
	}
	if err := w.log.Close(); err != nil {
		w.t.Error(err)
	}
}

func (w *walWorld) checkpoint(recs ...string) {
	w.t.Helper()
	for _, r := range recs {
		if err := w.lane.Append(w.t.Context(), []byte(r)); err != nil {
			w.t.Fatal(err)
		}
	}
	position := fmt.Appendf(nil, "p%d", w.next)
	if _, _, err := w.lane.Seal(w.next, position, "bytes", false); err != nil {
		w.t.Fatal(err)
	}
	if err := w.log.Complete(w.next, position); err != nil {
		w.t.Fatal(err)
	}
	w.c.Notify()
	w.next++
}

func (w *walWorld) drained(want []string) {
	w.t.Helper()
	if err := w.c.Drain(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	got := w.store.Records(laneA)
	if len(got) != len(want) {
		w.t.Fatalf("the store shows %d records, want %d", len(got), len(want))
	}
	for i := range got {
		if string(got[i]) != want[i] {
			w.t.Fatalf("record %d is %q, want %q", i, got[i], want[i])
		}
	}
}

func TestRealLog(t *testing.T) {
	w := newWalWorld(t)
	if o := w.open(); o.Outcome != committer.Covered {
		t.Fatalf("outcome %v", o.Outcome)
	}
	w.checkpoint(recs(0, 99)...)
	w.checkpoint(recs(100, 199)...)
	w.drained(recs(0, 199))
	snap := w.store.Snapshot()
	w.checkpoint(recs(200, 299)...)
	w.drained(recs(0, 299))
	w.close()

	if o := w.open(); o.Outcome != committer.Covered || o.Mark.Seq != 3 {
		t.Fatalf("opening %+v", o)
	}
	w.close()

	w.store.Restore(snap, false) // heals from what is retained
	if o := w.open(); o.Outcome != committer.Connected || o.Mark.Seq != 2 {
		t.Fatalf("opening %+v", o)
	}
	w.drained(recs(0, 299))
	w.close()

	w.dir = t.TempDir() // another machine
	if o := w.open(); o.Outcome != committer.Resume || string(o.Mark.Position) != "p3" {
		t.Fatalf("opening %+v", o)
	}
	w.checkpoint(recs(300, 309)...)
	w.drained(recs(0, 309))
	w.close()
}

func TestRealLogChunksAndDeadLetters(t *testing.T) {
	w := newWalWorld(t)
	w.mopts = memory.Options{StepBytes: 300 << 10, Chunked: true, Reject: badRecord}
	w.opts.DeadLetters = true
	w.open()
	list := recs(0, 299_999) // some blocks
	spoil(list, 7, 150_000, 299_999)
	w.checkpoint(list...)
	w.drained(goodOnes(list))
	w.close()

	w.store = memory.NewStore() // the split is in the log
	w.opts.DeadLetters, w.opts.Accept = false, committer.AcceptDuplicates
	w.open()
	w.drained(goodOnes(list))
	if st := w.c.Status()[0]; st.Errors[sinks.Poison.String()] != 0 || st.Dead != 3 {
		t.Fatalf("status %+v", st)
	}
	w.close()
}
