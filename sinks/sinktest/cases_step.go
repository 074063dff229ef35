package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

func acquireCase(e *env) {
	t := e.tape("main")
	first := t.acquire()
	if why := differs(sinks.Mark{Chain: t.id.Genesis()}, first.mark); why != "" {
		e.violated("the first mark of a lane: %s", why)
	}
	t.fill(3)
	first.finish()
	last := first
	for range 3 {
		next := t.acquire()
		if next.fence <= last.fence {
			e.violated("fence %d was raised to %d", last.fence, next.fence)
		}
		next.arrived(t.end())
		last = next
	}
}

func visibility(e *env) {
	t := e.tape("main").fill(1, 5, 2)
	o := t.acquire()
	for i := range t.batches {
		o.flush(place{batches: i + 1})
	}
	if got := len(e.h.Visible(e.TB, sinks.LaneID{Sink: e.sink, Lane: "other"})); got != 0 {
		e.violated("a lane that was never written has %d visible records", got)
	}
}

func order(e *env) {
	t := e.tape("main")
	o := t.acquire()
	for _, size := range []int{1, 2, 7, 1000} {
		t.fill(40, 1, 13, 29)
		if err := o.try(e.ctx, o.stepIn(o.mark, t.end(), size)); err != nil {
			e.violated("flush of 4 batches in runs of %d records: %v", size, err)
		}
		o.arrived(t.end())
	}
}

func tip(e *env) {
	t := e.tape("main").fill(2, 3)
	o := t.acquire()
	genesis := o.mark
	o.flush(place{batches: 1})
	first := o.mark
	o.flush(place{batches: 2})
	t.fill(2)
	other := e.tape("main").fill(2, 4, 2)
	for what, st := range map[string]*sinks.Step{
		"genesis":                     t.step(genesis, t.end()),
		"batch 1":                     t.step(first, t.end()),
		"a batch 2 of other contents": other.step(other.mark(place{batches: 2}), other.end()),
	} {
		o.refused(st, "a step that builds on "+what+", with batch 2 in the store,", sinks.Moved)
		o.arrived(place{batches: 2})
	}
	loose := o.mark
	loose.Fence, loose.UpdatedAt = 0, loose.UpdatedAt.AddDate(-1, 0, 0)
	if err := o.try(e.ctx, t.step(loose, t.end())); err != nil {
		e.violated("flush on a mark that differs in fence and time only: %v", err)
	}
	o.arrived(t.end())
}

func replay(e *env) {
	t := e.tape("main").fill(4, 2)
	o := t.acquire()
	steps := []*sinks.Step{t.step(o.mark, place{batches: 1}), t.step(o.mark, t.end())}
	o.flush(place{batches: 1})
	o.refused(steps[0], "the same step once more", sinks.Moved)
	o.refused(steps[1], "a step over a batch that is in and one that is not", sinks.Moved)
	o.arrived(place{batches: 1})
	o.flush(t.end())
	next := t.acquire()
	for range 2 {
		next.refused(steps[0], "a step by a new owner that took place under the former one", sinks.Moved)
		next.refused(steps[1], "a step by a new owner that took place in two steps", sinks.Moved)
	}
	next.arrived(t.end())
}

func nextFence(e *env) {
	t := e.tape("main").fill(2, 2, 2)
	o := t.acquire()
	for i, fence := range []uint64{0, o.fence + 5, 1} {
		st := t.step(o.mark, place{batches: i + 1})
		st.Next.Fence = fence
		if err := o.try(e.ctx, st); err != nil {
			e.violated("flush of a step with Next.Fence %d by the owner with fence %d: %v", fence, o.fence, err)
		}
		o.arrived(place{batches: i + 1})
	}
}

func markFields(e *env) {
	t := e.tape("main")
	o := t.acquire()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, b := range []record.Batch{
		{Checkpoint: 11, Position: every},
		{Checkpoint: 12},
		{Checkpoint: 1<<53 + 1, Position: []byte(`{"a":"\u0000'"}`), SealedAt: -1},
		{Checkpoint: 1<<62 + 1, Position: bytes.Repeat([]byte{0xff, 0}, record.MaxPosition/2), SealedAt: math.MaxInt64},
		{Checkpoint: math.MaxInt64, Position: []byte(" \n")},
	} {
		t.seal([]item{t.item(), t.item()}, func(s *record.Batch) {
			s.Checkpoint, s.Position, s.SealedAt = b.Checkpoint, b.Position, b.SealedAt
		})
		if e.info.Chunked {
			o.flush(place{len(t.batches) - 1, 1})
		}
		o.flush(t.end())
		if got := t.acquire(); differs(o.mark, got.mark) != "" {
			e.violated("the mark as the next owner finds it: %s", differs(o.mark, got.mark))
		} else {
			o = got
		}
	}
}

func emptyBatch(e *env) {
	t := e.tape("main").fill(0)
	o := t.acquire()
	o.flush(t.end())
	t.fill(2, 0, 0, 3, 0)
	o.flush(t.end())
	t.acquire().arrived(t.end())
}

func hugeBatch(e *env) {
	t := e.tape("main")
	o := t.acquire()
	if !e.info.Chunked {
		t.fill(20_000)
		if err := o.try(e.ctx, t.stepIn(o.mark, t.end(), 700)); err != nil {
			e.violated("flush of 20,000 records: %v", err)
		}
	}
	for range 300 {
		t.fill(1)
	}
	o.reread()
	o.flush(t.end())
	if e.info.Chunked {
		t.fill(20_000)
		o.finish()
	}
	t.acquire().arrived(t.end())
}

// borrowed hands out memory that is overwritten as soon as the contract allows.
func borrowed(e *env) {
	t := e.tape("main").fill(7, 9)
	o := t.acquire()
	st := t.step(o.mark, t.end())
	var wrote error
	st.Runs = scrambled(st.Runs, &wrote)
	if err := o.try(e.ctx, st); err != nil {
		e.violated("flush: %v", err)
	}
	if wrote != nil {
		e.violated("%v", wrote)
	}
	clear(st.Batches)
	o.arrived(t.end())
	t.acquire().arrived(t.end())
}

type runs = func(yield func(sinks.Run, error) bool)

// scrambled yields each run in one and the same memory, which it overwrites before
// it goes on, and sets wrote if the sink has changed it.
func scrambled(in runs, wrote *error) runs {
	return func(yield func(sinks.Run, error) bool) {
		var memory []byte
		var block record.Block
		for r, err := range in {
			if err != nil {
				yield(r, err)
				return
			}
			var b record.Builder
			for _, rec := range r.Block.All() {
				_ = b.Append(rec) // it is short
			}
			memory = append(memory[:0], b.Finish(record.NewHasher())...)
			if block, err = record.Decode(memory, block); err != nil {
				yield(sinks.Run{}, err)
				return
			}
			before := bytes.Clone(memory)
			r.Block = block
			if !yield(r, nil) {
				return
			}
			if !bytes.Equal(before, memory) {
				*wrote = errors.New("the sink wrote into a run")
			}
			for i := range memory {
				memory[i] = '#'
			}
		}
	}
}

func rawBytes(e *env) {
	t := e.tape("main")
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	o := t.acquire()
	for _, payloads := range [][]string{
		{""}, {string(every), "\x00", "\n", "\r\n", "\\", "\t", "'", "\"", "$1", "{x}", "\\.\n", "\xff\xfe"},
		{strings.Repeat("x\x00", 1<<19)},
	} {
		var items []item
		for _, p := range payloads {
			items = append(items, t.carry([]byte(p)))
		}
		t.seal(items)
		o.finish()
	}
	t.acquire().arrived(t.end())
}

func logError(e *env) {
	damaged := errors.New("block is damaged")
	t := e.tape("main").fill(8)
	o := t.acquire()
	for at := range 4 {
		st := hook(t.step(o.mark, t.end()), func(n int) error {
			if n == at {
				return damaged
			}
			return nil
		})
		if err := o.try(e.ctx, st); !errors.Is(err, damaged) {
			e.violated("the log failed before run %d, and flush says: %v", at, err)
		}
		o.arrived(place{})
	}
	o.finish()
}

func cancelledBefore(e *env) {
	t := e.tape("main").fill(3)
	o := t.acquire()
	for name, ctx := range map[string]func() (context.Context, context.CancelFunc){
		"cancelled":   func() (context.Context, context.CancelFunc) { return context.WithCancel(e.ctx) },
		"out of time": func() (context.Context, context.CancelFunc) { return context.WithTimeout(e.ctx, 0) },
	} {
		ctx, cancel := ctx()
		cancel()
		if err := o.try(ctx, t.step(o.mark, t.end())); sinks.KindOf(err) != sinks.Cancelled {
			e.violated("flush, %s: %v", name, err)
		}
		if _, err := o.lane.Mark(ctx); err != nil && sinks.KindOf(err) != sinks.Cancelled {
			e.violated("mark, %s: %v", name, err)
		}
		l, _, err := e.open().Acquire(ctx, sinks.LaneID{Sink: e.sink, Lane: fmt.Sprint("other", len(name))})
		if err != nil && sinks.KindOf(err) != sinks.Cancelled {
			e.violated("acquire, %s: %v", name, err)
		}
		if err == nil {
			closing(e.TB, "lane", l.Close)
		}
		o.reread()
	}
	o.finish()
}

func cancelledInFlight(e *env) {
	e.eachInstant(func(t *tape, o *owner) {
		mark := o.mark
		o.reread()
		if o.mark.Tip() != mark.Tip() {
			e.violated("the context ended, Mark said batch %d, and says batch %d now", mark.Seq, o.mark.Seq)
		}
		o.finish()
		t.acquire().arrived(t.end())
	})
}

// eachInstant has an owner interrupted at each run of a step, also of a sink that
// reads the step twice, and lets it read its mark.
func (e *env) eachInstant(then func(*tape, *owner)) {
	e.Helper()
	for pass := range 2 {
		for at := range 5 {
			t := e.tape(fmt.Sprintf("run-%d-%d", pass, at)).fill(11, 3)
			o := t.acquire()
			o.interrupted(pass, at)
			o.reread()
			then(t, o)
		}
	}
}

// interrupted asks for one step, whose context ends before a run of a pass.
func (o *owner) interrupted(pass, at int) {
	o.Helper()
	ctx, cancel := context.WithCancel(o.ctx)
	defer cancel()
	passes := -1
	st := hook(o.step(o.mark, o.next()), func(n int) error {
		if n == 0 {
			passes++
		}
		if n == at && passes == pass {
			cancel()
		}
		return nil
	})
	err := o.try(ctx, st)
	if k := sinks.KindOf(err); k != 0 && k != sinks.Cancelled && k != sinks.Ambiguous {
		o.violated("the context ended before run %d: %v", at, err)
	}
}
