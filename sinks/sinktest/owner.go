package sinktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/walsink/walsink/sinks"
)

// An owner is an acquired lane, and the mark that its owner believes in.
type owner struct {
	*tape
	lane  sinks.Lane
	mark  sinks.Mark
	fence uint64
}

// acquire takes the lane over through a sink of its own, as another process does.
func (t *tape) acquire() *owner {
	t.Helper()
	return t.acquireOn(t.open())
}

func (t *tape) acquireOn(s sinks.Sink) *owner {
	t.Helper()
	l, m, err := s.Acquire(t.ctx, t.id)
	if err != nil {
		t.violated("acquire: %v", err)
	}
	return t.own(l, m)
}

// own is for a lane that was acquired without an error.
func (t *tape) own(l sinks.Lane, m sinks.Mark) *owner {
	t.Helper()
	t.Cleanup(func() { closing(t.TB, "lane", l.Close) })
	if m.Fence == 0 {
		t.violated("acquire returned a mark with fence 0")
	}
	t.adopt(m)
	return &owner{tape: t, lane: l, mark: m, fence: m.Fence}
}

// try asks for a step and returns the error, of which it checks the form.
func (o *owner) try(ctx context.Context, st *sinks.Step) error {
	o.Helper()
	err := o.ask(ctx, st)
	if why := malformed(err, o.id, st); why != "" {
		o.violated("flush: the error %q %s", err, why)
	}
	return err
}

// ask is try for another goroutine than that of the test.
func (o *owner) ask(ctx context.Context, st *sinks.Step) error {
	to := place{batches: int(st.Next.Seq)}
	if st.Next.Partial != nil {
		to.records = int(st.Next.Partial.Done)
	}
	if o.offered.before(to) {
		o.offered = to
	}
	res, err := o.lane.Flush(ctx, st)
	switch sinks.KindOf(err) {
	case 0:
		o.loose = false
	case sinks.Moved, sinks.Fenced: // at once, and nothing has changed
	default:
		o.loose = true
	}
	if err == nil && len(res.Rejected) > st.Tolerate {
		return fmt.Errorf("flush rejected %d records on its own, %d are tolerated", len(res.Rejected), st.Tolerate)
	}
	return err
}

// refused asks for a step that must be refused with an error of one of the kinds.
func (o *owner) refused(st *sinks.Step, why string, kinds ...sinks.Kind) {
	o.Helper()
	before := o.h.Visible(o.TB, o.id)
	err := o.try(o.ctx, st)
	if !slices.Contains(kinds, sinks.KindOf(err)) {
		o.violated("flush of %s: %v, want an error of kind %v", why, err, kinds)
	}
	if after := o.h.Visible(o.TB, o.id); o.exact() && len(after) != len(before) {
		o.violated("flush of %s was refused and left %d visible records where %d were before", why, len(after), len(before))
	}
}

// flush asks for the step to a place, which must succeed, and reads the mark.
func (o *owner) flush(to place) {
	o.Helper()
	if err := o.try(o.ctx, o.step(o.mark, to)); err != nil {
		o.violated("flush to batch %d, record %d: %v", to.batches, to.records, err)
	}
	o.arrived(to)
}

// arrived makes sure that the mark is at a place, and what is visible agrees.
func (o *owner) arrived(to place) {
	o.Helper()
	o.reread()
	if p := o.place(o.mark); p != to {
		o.violated("after the flush to batch %d, record %d the mark is at batch %d, record %d", to.batches, to.records, p.batches, p.records)
	}
}

// reread reads the mark, which must succeed, and compares what is visible with it.
func (o *owner) reread() {
	o.Helper()
	m, err := o.lane.Mark(o.ctx)
	if err != nil {
		o.violated("mark: %v", err)
	}
	o.mark = m
	o.adopt(m)
	if m.Fence != o.fence {
		o.violated("the mark has fence %d, the owner got %d", m.Fence, o.fence)
	}
	o.verify(m)
}

// finish writes all that is left, as the engine does: after an error the mark
// decides, and bad records are put aside.
func (o *owner) finish() {
	o.Helper()
	o.reread()
	for tries := 0; o.place(o.mark) != o.end(); tries++ {
		if tries > 20+10*len(o.batches) {
			o.violated("no progress beyond batch %d", o.mark.Seq)
		}
		st := o.step(o.mark, o.next())
		if err := o.try(o.ctx, st); sinks.KindOf(err) == sinks.Poison {
			o.condemn(st, err)
		} else if err != nil {
			o.violated("flush to batch %d: %v", st.Next.Seq, err)
		}
		o.reread()
	}
}

// next is where a step from the mark ends: at the end of the next batch, or where
// the sink wants it to be cut.
func (o *owner) next() place {
	from := o.place(o.mark)
	to := place{batches: from.batches + 1}
	if !o.info.Chunked || o.info.StepBytes == 0 {
		return to
	}
	size := int64(0)
	for n, it := range o.items[from.batches][from.records:] {
		if size += int64(len(it.wire)); size > o.info.StepBytes && n > 0 {
			return place{from.batches, from.records + n}
		}
	}
	return to
}

// condemn puts aside what a sink named as bad.
func (o *owner) condemn(st *sinks.Step, err error) {
	o.Helper()
	e, _ := errors.AsType[*sinks.Error](err)
	for _, r := range e.Bad {
		at := [2]int{int(st.Prev.Seq) + r.Batch, int(r.Number)}
		if at[1] >= len(o.items[at[0]]) || !o.items[at[0]][at[1]].bad {
			o.violated("record %d of batch %d is named as bad and is not", at[1], at[0])
		}
		if _, twice := o.split[at]; twice {
			o.violated("record %d of batch %d is named as bad and was not in the step", at[1], at[0])
		}
		o.split[at] = r
	}
}

// recovered reads the mark until the store answers again.
func (o *owner) recovered() {
	o.Helper()
	for {
		_, err := o.lane.Mark(o.ctx)
		if err == nil {
			return
		}
		if k := sinks.KindOf(err); k != sinks.Transient && k != sinks.Ambiguous {
			o.violated("mark of a store that is whole again: %v", err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-o.ctx.Done():
			o.violated("mark of a store that is whole again: %v", err)
		}
	}
}

// malformed says what is wrong with the form of an error.
func malformed(err error, id sinks.LaneID, st *sinks.Step) string {
	e, ok := errors.AsType[*sinks.Error](err)
	if !ok {
		return ""
	}
	switch {
	case e.Kind < sinks.Transient || e.Kind > sinks.Cancelled:
		return fmt.Sprintf("has %s", e.Kind)
	case e.Op == "":
		return "does not say what was being done"
	case e.Lane != id && e.Lane != sinks.LaneID{}:
		return fmt.Sprintf("is about lane %s, the step was of %s", e.Lane, id)
	case e.Kind == sinks.Poison && len(e.Bad) == 0:
		return "names no bad record"
	}
	for i, r := range e.Bad {
		switch {
		case r.Batch < 0 || r.Batch >= len(st.Batches) || r.Number >= st.Batches[r.Batch].Records:
			return fmt.Sprintf("names record %d of batch %d of the step, which does not exist", r.Number, r.Batch)
		case i > 0 && (r.Batch < e.Bad[i-1].Batch || r.Batch == e.Bad[i-1].Batch && r.Number <= e.Bad[i-1].Number):
			return "names bad records that do not ascend"
		}
	}
	return ""
}
