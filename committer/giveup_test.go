package committer_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// damage changes the last record of a batch behind the log's back.
func (f *fakeLog) damage(key string, seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.lane(key).sealed {
		if b.Seq == seq {
			blk := b.blocks[len(b.blocks)-1]
			blk[0] ^= 0xff
		}
	}
}

// wantChain makes sure that the audit rows of lane a are the chain of the log.
func (w *world) wantChain() {
	w.t.Helper()
	chain := laneA.Genesis()
	for row, err := range memory.Open(w.store, w.mopts).Audit(w.t.Context(), laneA, 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		if row.Prev != chain {
			w.t.Errorf("batch %d does not continue the one before", row.Seq)
		}
		chain = row.Chain()
	}
	head, _, _ := w.log.Head(key)
	if chain != head.Chain || w.mark().Chain != chain {
		w.t.Error("mark, audit rows and log do not end with the same chain")
	}
}

// A damaged batch stops the lane at each start. Given up, it is passed over, and what
// is behind it comes in; the lane's chain stays whole.
func TestGiveUp(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.add(1, "a", "b")
	w.drain()
	w.close()
	w.log.add(key, 2, "c", "d", "e", "f", "g")
	w.log.add(key, 3, "h")
	w.log.add(key, 4, "i", "j")
	w.log.damage(key, 2)
	for range 2 {
		w.open()
		if err := w.c.Drain(t.Context()); !errors.Is(err, committer.ErrDamaged) && !errors.Is(err, record.ErrCorrupt) {
			t.Fatalf("drain: %v, want damage", err)
		}
		w.close()
	}
	w.want("a", "b")

	if err := committer.GiveUp(w.log, key, 2); err != nil {
		t.Fatal(err)
	}
	b := w.log.Batches(key)[1]
	if ok, err := committer.GivenUp(w.log, key, b); !ok || err != nil {
		t.Fatalf("GivenUp: %v, %v", ok, err)
	}
	w.open()
	w.drain()
	w.want("a", "b", "h", "i", "j")
	if m := w.mark(); m.Records != 5 || m.Dead != 5 {
		t.Errorf("mark %+v, want 5 records and 5 dead", m)
	}
	w.wantChain()
	w.add(5, "k")
	w.drain()
	w.want("a", "b", "h", "i", "j", "k")
}

// Of a batch that is given up some records are in, two of them as dead letters: these
// stay as they are.
func TestGiveUpTheRest(t *testing.T) {
	w := newWorld(t)
	w.mopts = memory.Options{StepBytes: 2, Chunked: true, Reject: func(rec []byte) *sinks.Reject {
		if rec[0] == 'X' {
			return &sinks.Reject{Reason: "an X"}
		}
		return nil
	}}
	w.opts.DeadLetters, w.opts.MaxAttempts = true, 1
	w.start()
	w.sink.flush = func(n int, _ *sinks.Step) fault {
		if n > 4 {
			return fault{err: kind(sinks.Transient)}
		}
		return fault{}
	}
	if _, err := w.tryOpen(); err != nil {
		t.Fatal(err)
	}
	w.add(1, "a", "X", "b", "c", "d", "e", "f")
	if err := w.c.Drain(t.Context()); err == nil {
		t.Fatal("nothing stopped the lane")
	}
	w.close()
	m := w.mark()
	if m.Partial == nil || m.Partial.Done == 0 || len(m.Partial.Dead) != 1 {
		t.Fatalf("mark %+v, want a part of a batch with a dead record", m)
	}
	seen := slices.Clone(w.visible())

	if err := committer.GiveUp(w.log, key, 1); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.add(2, "y")
	w.drain()
	w.want(append(seen, "y")...)
	if m := w.mark(); m.Records != uint64(len(seen))+1 || m.Records+m.Dead != 8 {
		t.Errorf("mark %+v, want %d records of 8", m, len(seen)+1)
	}
	w.wantChain()
}

// The disk lost the note together with the records: the way out is open all the same.
func TestGiveUpWithALostNote(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.add(1, "a", "b")
	w.drain()
	w.close()
	w.log.add(key, 2, "c", "d")
	w.log.add(key, 3, "e")
	w.log.damage(key, 2)
	lost := fmt.Errorf("generation 1: %w", record.ErrCorrupt)
	w.log.fail = func(op string) error {
		if op == "note" {
			return lost
		}
		return nil
	}
	err := committer.GiveUp(w.log, key, 2)
	w.log.fail = nil
	if err != nil {
		t.Fatal(err)
	}
	w.open()
	w.drain()
	w.want("a", "b", "e")
	if m := w.mark(); m.Records != 3 || m.Dead != 2 {
		t.Errorf("mark %+v, want 3 records in and 2 dead", m)
	}
	w.wantChain()

	w.log.fail = func(string) error { return errors.ErrUnsupported }
	if err := committer.GiveUp(w.log, key, 3); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an error that is no damage: %v", err)
	}
	w.log.fail = nil
}

func TestGiveUpRefuses(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.add(1, "a")
	w.drain()
	if err := committer.GiveUp(w.log, key, 2); err == nil {
		t.Error("a batch that is not there was given up")
	}
	if err := w.log.PutNote(key, 1, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := committer.GiveUp(w.log, key, 1); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("a damaged note: %v", err)
	}
}
