package sinktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/walsink/walsink/sinks"
)

func endedContext(e *env) (context.Context, context.CancelFunc) { return context.WithCancel(e.ctx) }

func fence(e *env) {
	t := e.tape("main").fill(2, 2, 2)
	s := e.open()
	for name, next := range map[string]func() *owner{
		"by the same sink": func() *owner { return t.acquireOn(s) },
		"by another sink":  t.acquire,
	} {
		old := t.acquireOn(s)
		prev := old.mark
		now := next()
		old.refused(t.step(prev, t.end()), "a step by an owner that was replaced "+name, sinks.Fenced)
		if _, err := old.lane.Mark(e.ctx); sinks.KindOf(err) != sinks.Fenced {
			e.violated("mark by an owner that was replaced %s: %v", name, err)
		}
		now.reread()
		if int(now.mark.Seq) < len(t.batches) {
			now.flush(place{batches: int(now.mark.Seq) + 1})
		}
		old.refused(t.step(prev, t.end()), "a step with another tip by an owner that was replaced "+name, sinks.Fenced)
		now.reread()
		t.fill(1)
	}
	t.acquire().finish()
}

// patience is how long an Acquire may wait for a step that is under way before the
// step goes on.
const patience = 5 * time.Second

type acquired struct {
	lane sinks.Lane
	mark sinks.Mark
	err  error
}

func fenceInFlight(e *env) {
	for at := range 4 {
		t := e.tape(fmt.Sprint("run-", at)).fill(8, 2)
		old := t.acquire()
		s := e.open()
		answer := make(chan acquired, 1)
		acquire := sync.OnceFunc(func() {
			go func() {
				l, m, err := s.Acquire(e.ctx, t.id)
				answer <- acquired{l, m, err}
			}()
		})
		done := false
		st := hook(t.step(old.mark, place{batches: 1}), func(n int) error {
			if n != at {
				return nil
			}
			acquire()
			select {
			case a := <-answer:
				done = true
				answer <- a
			case <-time.After(patience): // it waits for the step, which is as good
			}
			return nil
		})
		if err := old.try(e.ctx, st); err == nil && done {
			e.violated("a new owner acquired before run %d, and flush of the former one succeeded", at)
		}
		t.loose = true
		acquire() // if the sink did not look for this run
		got := <-answer
		if got.err != nil {
			e.violated("acquire before run %d of a former owner: %v", at, got.err)
		}
		next := t.own(got.lane, got.mark)
		next.arrived(t.place(got.mark))
		old.refused(t.step(old.mark, place{batches: 1}), "the step that was under way", sinks.Fenced)
		next.finish()
	}
}

func restart(e *env) {
	t := e.tape("main")
	for i := range 4 {
		t.fill(3, 1)
		s := e.h.Open(e.TB)
		l, m, err := s.Acquire(e.ctx, t.id)
		if err != nil {
			e.violated("acquire %d: %v", i, err)
		}
		t.verify(m)
		o := &owner{tape: t, lane: l, mark: m, fence: m.Fence}
		o.flush(t.end())
		closing(e.TB, "lane", l.Close)
		closing(e.TB, "sink", s.Close)
		t.verify(o.mark)
	}
	o := t.acquire()
	if o.fence < 5 {
		e.violated("the fence is %d after 5 owners", o.fence)
	}
	o.arrived(t.end())
}

// lanes writes lanes with names that a careless store mixes up, from one to many
// and back, at the same time.
func lanes(e *env) {
	s := e.open()
	names := []string{
		"a", "A", "a.b", "a-b", "a_b", "a-", "0", "00", "a.json", "ab", strings.Repeat("x", sinks.MaxName), strings.Repeat("x", sinks.MaxName-1),
	}
	var tapes []*tape
	for _, name := range names {
		tapes = append(tapes, e.tape(name))
	}
	other := &env{TB: e.TB, h: e.h, c: e.c, ctx: e.ctx, sink: e.sink + "-a", info: e.info}
	tapes = append(tapes, other.tape("a"), other.tape("b"))
	for _, n := range []int{1, 5, len(tapes), 2} {
		var work []*owner
		for _, t := range tapes[:n] {
			t.fill(2, 0, 7)
			work = append(work, t.acquireOn(s))
		}
		e.together(work)
		for _, o := range work {
			o.arrived(o.end())
		}
	}
	for _, t := range tapes {
		t.acquire().arrived(t.end())
	}
}

// meetingTime is how long a step waits for another one to be under way. A sink may
// do one after the other.
const meetingTime = 5 * time.Millisecond

// A meeting keeps a step waiting until another one is under way.
type meeting chan struct{}

func (m meeting) wait(int) error {
	select {
	case m <- struct{}{}:
	case <-m:
	case <-time.After(meetingTime):
	}
	return nil
}

// together has each owner flush all of its tape in one step, at the same time.
func (e *env) together(work []*owner) {
	e.Helper()
	errs := make([]error, len(work))
	var wg sync.WaitGroup
	meet := make(meeting)
	for i, o := range work {
		wg.Go(func() { errs[i] = o.ask(e.ctx, hook(o.step(o.mark, o.end()), meet.wait)) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			e.violated("flush of lane %s beside %d others: %v", work[i].id, len(work)-1, err)
		}
	}
}

// owners lets three owners fight for a lane.
func owners(e *env) {
	sizes := make([]int, 24)
	for i := range sizes {
		sizes[i] = i % 4
	}
	t := e.tape("main").fill(sizes...)
	t.offered, t.loose = t.end(), true
	var wg sync.WaitGroup
	meet, errs := make(meeting), make([]error, 3)
	for i := range errs {
		s := e.open()
		wg.Go(func() { errs[i] = t.fight(s, meet) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			e.violated("%v", err)
		}
	}
	t.acquire().finish()
}

// fight writes the tape as an owner that does not give up.
func (t *tape) fight(s sinks.Sink, meet meeting) error {
	var err error
	for range 12 {
		if err = t.advance(s, meet); err == nil {
			return nil
		}
		if k := sinks.KindOf(err); !slices.Contains([]sinks.Kind{sinks.Fenced, sinks.Transient, sinks.Ambiguous}, k) {
			return fmt.Errorf("an owner among others got: %w", err)
		}
	}
	return nil
}

// advance acquires the lane and writes until the end or until it is refused.
func (t *tape) advance(s sinks.Sink, meet meeting) error {
	l, m, err := s.Acquire(t.ctx, t.id)
	if err != nil {
		return err
	}
	for err == nil && int(m.Seq) < len(t.batches) {
		_, err = l.Flush(t.ctx, hook(t.step(m, place{batches: int(m.Seq) + 1}), meet.wait))
		if err == nil || sinks.KindOf(err) == sinks.Moved {
			m, err = l.Mark(t.ctx)
		}
	}
	return errors.Join(err, l.Close())
}

func marks(e *env) {
	l := e.open().(sinks.Ledger)
	if list, err := l.Marks(e.ctx, e.sink); err != nil || len(list) != 0 {
		e.violated("the marks of a sink id never seen: %v, %v", list, err)
	}
	want := map[string]*owner{}
	for _, name := range []string{"b", "a", "c-1", "c", "idle"} {
		t := e.tape(name).fill(2, 1)
		want[name] = t.acquire()
		if name != "idle" {
			want[name].flush(t.end())
		}
	}
	foreign := &env{TB: e.TB, h: e.h, c: e.c, ctx: e.ctx, sink: e.sink + "-x", info: e.info}
	foreign.tape("a").acquire()
	list, err := l.Marks(e.ctx, e.sink)
	if err != nil {
		e.violated("marks: %v", err)
	}
	var names []string
	for _, m := range list {
		names = append(names, m.Lane)
		o := want[m.Lane]
		switch {
		case m.Sink != e.sink || o == nil:
			e.violated("marks lists %s, which is not of sink %s", m.LaneID, e.sink)
		case m.Fence != o.fence:
			e.violated("marks lists %s with fence %d, want %d", m.LaneID, m.Fence, o.fence)
		}
		if why := differs(o.mark, m.Mark); why != "" {
			e.violated("marks lists %s: %s", m.LaneID, why)
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c", "c-1", "idle"}) {
		e.violated("marks lists the lanes %v", names)
	}
	for _, o := range want {
		o.finish()
	}
}
