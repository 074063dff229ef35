package sinktest

import (
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
