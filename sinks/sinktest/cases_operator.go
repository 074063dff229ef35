package sinktest

import (
	"bytes"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// none are the runs of a step without records.
func none(func(sinks.Run, error) bool) {}

func override(e *env) {
	t := e.tape("main").fill(3, 2)
	o := t.acquire()
	o.flush(t.end())
	before := len(e.h.Visible(e.TB, t.id))
	next := o.mark
	next.Seq, next.Chain, next.Checkpoint, next.Position = 9, record.Chain{9}, 90, []byte("elsewhere")
	row := record.Batch{Seq: 9, Checkpoint: 90, Prev: o.mark.Chain, Position: next.Position, Digest: record.NewHasher().Sum(), Format: e.info.Format}
	st := &sinks.Step{ID: t.id, Prev: o.mark, Next: next, Batches: []sinks.Audit{{Batch: row}}, Runs: none}
	o.override(st, "a mark of another history")
	o.refused(st, "the same mark once more", sinks.Moved)

	b := o.one(next)
	o.override(b, "a batch behind it") // an ordinary step
	if got := len(e.h.Visible(e.TB, t.id)); got != before+1 {
		e.violated("%d records are visible, want the %d from before and one more", got, before)
	}
	if !e.info.Chunked {
		return
	}
	part := e.tape("part").fill(2, 5)
	o = part.acquire()
	o.flush(place{1, 2})
	next = o.mark
	next.Partial = nil
	o.override(&sinks.Step{ID: part.id, Prev: o.mark, Next: next, Runs: none}, "a mark that forgets a part of a batch")
}

// override performs a step that is not of the tape, which must succeed, and compares
// the mark.
func (o *owner) override(st *sinks.Step, what string) {
	o.Helper()
	if _, err := o.lane.Flush(o.ctx, st); err != nil {
		o.violated("flush of %s: %v", what, err)
	}
	for range 2 {
		m, err := o.lane.Mark(o.ctx)
		if err != nil {
			o.violated("mark: %v", err)
		}
		if why := differs(st.Next, m); why != "" {
			o.violated("the mark after %s: %s", what, why)
		}
		next := o.acquire() // and from the store alone
		*o = *next
	}
}

// one is the step of one record behind a mark.
func (o *owner) one(from sinks.Mark) *sinks.Step {
	it := o.item()
	h := record.NewHasher()
	h.Add(record.BlockOf(it.wire))
	b := record.Batch{
		Seq: from.Seq + 1, Checkpoint: from.Checkpoint + 10, Prev: from.Chain, Records: 1, Bytes: h.Bytes(), Digest: h.Sum(),
		Format: o.info.Format, Position: []byte("after one"),
	}
	st := &sinks.Step{ID: o.id, Prev: from, Next: from, Batches: []sinks.Audit{{Batch: b}}, Records: 1, Bytes: int64(len(it.wire))}
	head := b.Head()
	st.Next.Seq, st.Next.Chain, st.Next.Checkpoint, st.Next.Position = head.Seq, head.Chain, head.Checkpoint, head.Position
	st.Next.Records++
	st.Runs = func(yield func(sinks.Run, error) bool) { yield(sinks.Run{Block: record.BlockOf(it.wire)}, nil) }
	return st
}

func givenUp(e *env) {
	for done := range 3 {
		if done > 0 && !e.info.Chunked {
			break
		}
		t := e.tape("main-"+string(rune('0'+done))).fill(3, 4, 2)
		o := t.acquire()
		o.flush(place{batches: 1})
		if done > 0 {
			o.flush(place{1, done})
		}
		for n := done; n < 4; n++ {
			t.items[1][n].lost = true
		}
		lost := uint64(4 - done)
		st := &sinks.Step{ID: t.id, Prev: o.mark, Next: t.mark(place{batches: 2}), Lost: lost, Runs: none}
		st.Next.Fence, st.Next.UpdatedAt = o.mark.Fence, o.mark.UpdatedAt
		st.Batches = []sinks.Audit{{Batch: t.batches[1], Dead: lost}}
		if err := o.try(e.ctx, st); err != nil {
			e.violated("flush of a batch that is given up after %d records: %v", done, err)
		}
		o.arrived(place{batches: 2})
		o.refused(st, "the same batch once more", sinks.Moved)
		o = t.acquire()
		o.finish()
		t.auditedDead()
	}
}

func deadLetterBox(e *env) {
	t := e.tape("main").mixed(5, 1, 3).mixed(3).mixed(4, 0, 1, 3)
	t.known()
	o := t.acquire()
	o.flush(place{batches: 1})
	o.flush(t.end())
	b := e.open().(sinks.DeadLetterBox)
	all := t.boxed(b, sinks.LetterID{})
	if why := t.compareDead(all, t.end()); why != "" {
		e.violated("%s", why)
	}
	for i, d := range all {
		if d.Reason != "known to be bad" || d.Field != "field" || d.Code != "22P02" {
			e.violated("dead letter %s has field %q, code %q, reason %q", d.ID(), d.Field, d.Code, d.Reason)
		}
		if rest := t.boxed(b, d.ID()); len(rest) != len(all)-i-1 {
			e.violated("above %s there are %d dead letters, want %d", d.ID(), len(rest), len(all)-i-1)
		}
	}
	if other := e.tape("other").boxed(b, sinks.LetterID{}); len(other) > 0 {
		e.violated("a lane that was never written has %d dead letters", len(other))
	}
	drop := []sinks.LetterID{all[1].ID(), all[2].ID(), all[4].ID(), {Checkpoint: 999, Number: 1}}
	for range 2 {
		if err := b.DropDeadLetters(e.ctx, t.id, drop); err != nil {
			e.violated("drop dead letters: %v", err)
		}
		left := t.boxed(b, sinks.LetterID{})
		if len(left) != 2 || left[0].ID() != all[0].ID() || left[1].ID() != all[3].ID() || !bytes.Equal(left[1].Record, all[3].Record) {
			e.violated("%d dead letters are left of %d, want the first and the fourth", len(left), len(all))
		}
	}
	if why := t.compare(e.h.Visible(e.TB, t.id), t.end()); why != "" {
		e.violated("after dead letters were dropped %s", why)
	}
	l, m, err := e.open().Acquire(e.ctx, t.id)
	if err != nil {
		e.violated("acquire: %v", err)
	}
	e.Cleanup(func() { closing(e.TB, "lane", l.Close) })
	if why := differs(t.mark(t.end()), m); why != "" {
		e.violated("after dead letters were dropped the mark: %s", why)
	}
}

// boxed are the dead letters above one.
func (t *tape) boxed(b sinks.DeadLetterBox, after sinks.LetterID) (out []sinks.DeadLetter) {
	t.Helper()
	for d, err := range b.DeadLetters(t.ctx, t.id, after) {
		if err != nil {
			t.violated("dead letters: %v", err)
		}
		d.Record = bytes.Clone(d.Record)
		if n := len(out); n > 0 && out[n-1].ID().Compare(d.ID()) >= 0 {
			t.violated("dead letter %s comes after %s", d.ID(), out[n-1].ID())
		}
		out = append(out, d)
	}
	return out
}

func reconcile(e *env) {
	t, empty := e.tape("main").fill(3, 1, 0, 40), e.tape("empty")
	if e.h.Bad != nil && e.h.DeadLetters != nil {
		t.mixed(5, 1, 3).known()
	}
	t.fill(2)
	o := t.acquire()
	empty.acquire()
	o.flush(place{batches: 2})
	o.flush(t.end())
	if e.info.Chunked {
		t.fill(6)
		o.flush(place{len(t.batches) - 1, 4})
	}
	s := e.open()
	marks, err := s.(sinks.Ledger).Marks(e.ctx, e.sink)
	if err != nil {
		e.violated("marks: %v", err)
	}
	var lanes []sinks.LaneRows
	for _, m := range marks {
		l := sinks.LaneRows{LaneMark: m}
		for row, err := range s.(sinks.Ledger).Audit(e.ctx, m.LaneID, 0) {
			if err != nil {
				e.violated("audit: %v", err)
			}
			l.Rows = append(l.Rows, row)
		}
		lanes = append(lanes, l)
	}
	r, err := s.(sinks.Reconciler).Reconcile(e.ctx, lanes)
	switch {
	case err != nil:
		e.violated("reconcile: %v", err)
	case len(r.Differences) > 0:
		e.violated("reconcile: %+v", r.Differences[0])
	case len(r.Compared)+len(r.Unchecked) == 0:
		e.violated("reconcile says neither what it compared nor what it could not")
	}
	o.finish()
}
