package sinktest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

func partial(e *env) {
	for _, size := range []int{1, 2, 5} {
		t := e.tape("main-"+string(rune('0'+size))).fill(2, 9, 1, 4)
		o := t.acquire()
		for i, items := range t.items {
			for n := size; n < len(items); n += size {
				o.flush(place{i, n})
				o = t.acquire()
				o.arrived(place{i, n})
			}
			o.flush(place{batches: i + 1})
		}
	}
	t := e.tape("ends").fill(3, 4, 2)
	o := t.acquire()
	o.flush(place{1, 2}) // a whole batch and a part of the next
	o.flush(t.end())     // the rest of a batch and a whole one
}

func partialMismatch(e *env) {
	t := e.tape("main").fill(1, 6)
	o := t.acquire()
	o.flush(place{1, 3})
	for what, change := range map[string]func(*record.Batch){
		"digest":     func(b *record.Batch) { b.Digest[0] ^= 1 },
		"position":   func(b *record.Batch) { b.Position = []byte("elsewhere") },
		"checkpoint": func(b *record.Batch) { b.Checkpoint++ },
	} {
		other := *t
		other.batches = slices.Clone(t.batches)
		change(&other.batches[1])
		o.refused(other.step(other.mark(place{1, 3}), t.end()), "the rest of a batch with another "+what, sinks.Moved)
	}
	for _, done := range []int{0, 1, 2, 4} {
		o.refused(t.step(t.mark(place{1, done}), t.end()), fmt.Sprintf("a batch from record %d, with 3 of them in,", done), sinks.Moved)
	}
	o.refused(t.step(t.mark(place{1, 2}), place{1, 3}), "a part that is in", sinks.Moved)
	o.arrived(place{1, 3})
	o.finish()
}

// mixed seals a batch in which those records are bad that at names.
func (t *tape) mixed(n int, at ...int) *tape {
	items := make([]item, n)
	for i := range items {
		if slices.Contains(at, i) {
			items[i] = t.badItem()
		} else {
			items[i] = t.item()
		}
	}
	t.seal(items)
	return t
}

// known says that all bad records of the tape were found before.
func (t *tape) known() {
	for i, items := range t.items {
		for n, it := range items {
			if it.bad {
				t.split[[2]int{i, n}] = sinks.Reject{Field: "field", Code: "22P02", Reason: "known to be bad"}
			}
		}
	}
}

func deadLetterCase(e *env) {
	t := e.tape("main").mixed(5, 1).mixed(3).mixed(4, 0, 1, 3).mixed(2, 0, 1)
	t.known()
	o := t.acquire()
	o.flush(place{batches: 1})
	st := t.step(o.mark, t.end())
	o.flush(t.end())
	o.refused(st, "the same step with dead letters once more", sinks.Moved)
	o.arrived(t.end())
	t.mixed(6, 0, 2, 5)
	t.known()
	if e.info.Chunked {
		for n := range 6 {
			if n > 0 {
				o.flush(place{4, n})
				o = t.acquire()
			}
		}
	}
	o.finish()
	t.acquire().arrived(t.end())
	t.auditedDead()
}

// auditedDead makes sure that the audit rows count the dead letters.
func (t *tape) auditedDead() {
	t.Helper()
	l, ok := t.open().(sinks.Ledger)
	if !ok {
		return
	}
	for a, err := range l.Audit(t.ctx, t.id, 0) {
		if err != nil {
			t.violated("audit: %v", err)
		}
		want := uint64(0)
		for _, it := range t.items[a.Seq-1] {
			if it.dead() {
				want++
			}
		}
		if a.Dead != want {
			t.violated("the audit row of batch %d counts %d dead letters, want %d", a.Seq, a.Dead, want)
		}
	}
}

func poison(e *env) {
	for name, t := range map[string]*tape{
		"one":   e.tape("one").fill(2).mixed(9, 4).fill(2),
		"first": e.tape("first").mixed(5, 0),
		"many":  e.tape("many").mixed(8, 1, 3, 4, 7).mixed(3, 0, 2).fill(1),
		"all":   e.tape("all").mixed(3, 0, 1, 2),
	} {
		o := t.acquire()
		st := t.step(o.mark, t.end()) // more than one batch
		if err := o.try(e.ctx, st); sinks.KindOf(err) != sinks.Poison {
			e.violated("flush of %s bad: %v, want poison", name, err)
		} else {
			o.condemn(st, err)
		}
		o.reread()
		o.finish()
		t.acquire().arrived(t.end())
	}
}

func tolerate(e *env) {
	t := e.tape("main").mixed(9, 2, 5, 6).fill(3).mixed(2, 1)
	o := t.acquire()
	for _, n := range []int{0, 1, 10} {
		st := t.step(o.mark, t.end())
		st.Tolerate = n
		err := o.try(e.ctx, st)
		switch k := sinks.KindOf(err); {
		case err == nil && n < t.unknown():
			e.violated("a flush that tolerates %d took %d bad records", n, t.unknown())
		case k == sinks.Poison:
			o.condemn(st, err)
		case err != nil:
			e.violated("a flush that tolerates %d: %v, want poison", n, err)
		}
		o.reread()
		if err == nil {
			break
		}
	}
	o.finish()
	t.auditedDead()
}

// unknown counts the bad records that nobody has found yet.
func (t *tape) unknown() (n int) {
	for _, items := range t.items {
		for _, it := range items {
			if it.bad {
				n++
			}
		}
	}
	return n - len(t.split)
}

func stateRollback(e *env) {
	e.eachInstant(func(t *tape, o *owner) {
		if t.untouched(o.mark) { // else what is in, or pinned, is what must go on
			again := e.tape(t.id.Lane).fill(4, 7, 3)
			again.offered = again.end()
			again.acquire().finish()
		}
	})
	t := e.tape("main").fill(3, 4)
	o := t.acquire()
	o.flush(t.end())
	lost := e.tape("main") // the same records, cut in another way
	lost.fill(5, 2)
	o = lost.acquireUnseen()
	o.refused(lost.step(lost.mark(place{}), place{batches: 1}), "a first batch of other size, with two batches in the store,", sinks.Moved)
	t.fill(1)
	o.tape = t
	o.finish()
	if e.info.Chunked {
		t.fill(6)
		o.flush(place{3, 4})
		again := e.tape("main").acquireUnseen()
		if p := again.mark.Partial; p == nil || p.Batch.Chain() != t.batches[3].Chain() {
			e.violated("the mark of a batch in progress does not name it")
		}
		again.tape = t
		again.finish()
	}
}

// acquireUnseen takes a lane over that holds other batches than the tape.
func (t *tape) acquireUnseen() *owner {
	t.Helper()
	l, m, err := t.open().Acquire(t.ctx, t.id)
	if err != nil {
		t.violated("acquire: %v", err)
	}
	o := t.own(l, m)
	o.split = map[[2]int]sinks.Reject{}
	return o
}

func audit(e *env) {
	t := e.tape("main")
	o := t.acquire()
	for _, n := range []int{2, 0, 5, 1} {
		items := make([]item, n)
		for i := range items {
			items[i] = t.item()
		}
		t.seal(items, func(b *record.Batch) { b.Position = []byte{0, 0xff, byte(b.Seq)} })
	}
	o.flush(place{batches: 1})
	o.flush(t.end())
	if e.info.Chunked {
		t.fill(4)
		o.flush(place{4, 2})
	}
	l := e.open().(sinks.Ledger)
	for after := range uint64(6) {
		seq := after
		for a, err := range l.Audit(e.ctx, t.id, after) {
			if err != nil {
				e.violated("audit after %d: %v", after, err)
			}
			if seq++; a.Seq != seq || seq > 4 {
				e.violated("audit after %d: batch %d where batch %d of 4 is due", after, a.Seq, seq)
			}
			if why := batchDiffers(t.batches[seq-1], a.Batch); why != "" {
				e.violated("audit row of batch %d: %s", seq, why)
			}
			if a.FlushedAt.IsZero() {
				e.violated("audit row of batch %d has no time", seq)
			}
		}
		if seq != max(after, 4) {
			e.violated("audit after %d ends at batch %d, want 4", after, seq)
		}
	}
	for _, err := range l.Audit(e.ctx, t.id, 0) { // and no more of it
		if err != nil {
			e.violated("audit: %v", err)
		}
		break
	}
	for _, err := range l.Audit(e.ctx, sinks.LaneID{Sink: e.sink, Lane: "none"}, 0) {
		e.violated("audit of a lane never seen has a row, or an error: %v", err)
	}
	ended, cancel := endedContext(e)
	cancel()
	for _, err := range l.Audit(ended, t.id, 0) {
		if k := sinks.KindOf(err); err != nil && k != sinks.Cancelled && !errors.Is(err, ended.Err()) {
			e.violated("audit with an ended context: %v", err)
		}
	}
	o.finish()
}
