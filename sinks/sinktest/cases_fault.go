package sinktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/walsink/walsink/sinks"
)

// A death comes at one of the calls that an owner makes of its sink.
type death struct {
	at    int
	after bool // the call is made, and nobody hears of the outcome
	calls int
}

var errDead = errors.New("the owner died")

// do makes a call, unless the owner dies.
func (d *death) do(call func() error) error {
	d.calls++
	if d.calls < d.at {
		return call()
	}
	if d.after {
		_ = call() // nobody hears of it
	}
	return errDead
}

// live writes a tape as the engine does, until the owner dies.
func (t *tape) live(d *death) (*owner, error) {
	s := t.open()
	o := &owner{tape: t}
	err := d.do(func() error {
		l, m, err := s.Acquire(t.ctx, t.id)
		if err == nil {
			t.Cleanup(func() { closing(t.TB, "lane", l.Close) })
			o.lane, o.mark, o.fence = l, m, m.Fence
		}
		return err
	})
	for err == nil && t.place(o.mark) != t.end() {
		st := t.step(o.mark, t.stop(o))
		if err = d.do(func() error { return o.ask(t.ctx, st) }); err == nil {
			err = d.do(func() error {
				m, err := o.lane.Mark(t.ctx)
				if err == nil {
					o.mark = m
				}
				return err
			})
		}
	}
	return o, err
}

// stop is where the next step of o ends: in the middle of a batch if it may.
func (t *tape) stop(o *owner) place {
	at := t.place(o.mark)
	if t.info.Chunked && at.records == 0 && len(t.items[at.batches]) > 2 {
		return place{at.batches, 2}
	}
	return place{batches: at.batches + 1}
}

func kill(e *env) {
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			t := e.tape(fmt.Sprintf("call-%d-%t", at, after)).fill(5, 0, 3)
			dead, err := t.live(&death{at: at, after: after})
			if err == nil {
				e.eachInstant((*tape).succeed)
				return
			}
			if !errors.Is(err, errDead) {
				e.violated("before the death at call %d: %v", at, err)
			}
			t.succeed(dead)
		}
	}
}

// succeed replaces an owner that is taken for dead, and wakes that one up.
func (t *tape) succeed(dead *owner) {
	t.Helper()
	next := t.acquire()
	next.reread()
	if dead.lane != nil && dead.place(dead.mark) != t.end() {
		dead.refused(t.step(dead.mark, t.end()), "an owner that was taken for dead", sinks.Fenced)
	}
	next.finish()
	t.verify(next.mark)
}

func storeRollback(e *env) {
	t := e.tape("main").fill(3, 2)
	o := t.acquire()
	o.flush(t.end())
	kept := o.mark
	restore := e.h.Snapshot(e.TB)
	t.fill(4, 1)
	st := t.step(o.mark, place{batches: 3})
	o.finish()
	newest := o.mark
	t.fill(2)
	restore()
	if err := o.try(e.ctx, t.step(newest, t.end())); err == nil {
		e.violated("flush on top of batches that the store has lost went through")
	}
	next := t.acquire()
	if next.mark.Tip() != kept.Tip() {
		e.violated("the store went back to batch %d, and the mark is at batch %d", kept.Seq, next.mark.Seq)
	}
	next.reread()
	if err := next.try(e.ctx, st); err != nil {
		e.violated("flush of a step that the store has lost: %v", err)
	}
	next.finish()
	t.acquire().arrived(t.end())
}

// callTime bounds a call of a store that is broken.
const callTime = 10 * time.Second

func outage(e *env) {
	t := e.tape("main").fill(3, 4, 2)
	o := t.acquire()
	o.flush(place{batches: 1})
	other := e.open()
	heal := e.faulty(e.h.Break)
	ctx, cancel := context.WithTimeout(e.ctx, callTime)
	defer cancel()
	if err := o.try(ctx, t.step(o.mark, place{batches: 2})); !unanswered(err) {
		e.violated("flush to a broken store: %v", err)
	}
	// A sink whose marks are elsewhere may well answer these.
	if _, err := o.lane.Mark(ctx); err != nil && !unanswered(err) {
		e.violated("mark of a broken store: %v", err)
	}
	l, _, err := other.Acquire(ctx, e.tape("other").id)
	if err != nil && !unanswered(err) {
		e.violated("acquire from a broken store: %v", err)
	}
	if err == nil {
		closing(e.TB, "lane", l.Close)
	}
	heal()
	o.recovered()
	o.finish()
	t.acquire().arrived(t.end())
}

// faulty makes the store faulty until heal, or until the case is over.
func (e *env) faulty(f func(testing.TB) func()) (heal func()) {
	heal = sync.OnceFunc(f(e.TB))
	e.Cleanup(heal)
	return heal
}

func unanswered(err error) bool {
	k := sinks.KindOf(err)
	return k == sinks.Transient || k == sinks.Ambiguous || k == sinks.Cancelled
}

func lostAnswer(e *env) {
	t := e.tape("main").fill(3, 4, 2)
	o := t.acquire()
	o.flush(place{batches: 1})
	o.unheard()
	o.unheard()
	o.finish()
	t.acquire().arrived(t.end())

	t = e.tape("again").fill(7, 2) // what comes again may be cut in another way
	o = t.acquire()
	o.unheard()
	if t.untouched(o.mark) {
		t = e.tape("again").fill(1, 8)
		t.offered = t.end()
	}
	t.acquire().finish()
}

// unheard asks for a step whose answer is lost.
func (o *owner) unheard() {
	o.Helper()
	if o.place(o.mark) == o.end() {
		return
	}
	heal := o.faulty(o.h.LoseAnswers)
	ctx, cancel := context.WithTimeout(o.ctx, callTime)
	defer cancel()
	before := o.mark
	err := o.try(ctx, o.step(o.mark, o.next()))
	heal()
	if err != nil && !unanswered(err) {
		o.violated("flush whose answer was lost: %v", err)
	}
	o.recovered()
	o.reread()
	if sinks.KindOf(err) == sinks.Transient && o.place(o.mark) != o.place(before) {
		o.violated("flush says that nothing was written (%v), and the mark has moved", err)
	}
}

// random lets owners come, write, stay behind and come back, and knows of each call
// what has to become of it.
func random(e *env) {
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		t := e.tape(fmt.Sprint("seed-", seed)).fill(2, 0, 3, 1, 5, 2, 2, 4)
		all := []*owner{t.acquire()}
		newest := all[0]
		for i := 0; i < 60 && t.place(newest.mark) != t.end(); i++ {
			o := all[rnd.IntN(len(all))]
			switch n := rnd.IntN(10); {
			case n == 0 && len(all) < 6:
				newest = t.acquire()
				all = append(all, newest)
			case n < 3:
				e.glance(o, newest)
			default:
				e.write(rnd, o, newest)
			}
			if newest.place(newest.mark) == t.end() {
				break
			}
		}
		newest = t.acquire()
		newest.finish()
	}
}

// glance reads the mark.
func (e *env) glance(o, newest *owner) {
	if o == newest {
		o.reread()
	} else if _, err := o.lane.Mark(e.ctx); sinks.KindOf(err) != sinks.Fenced {
		e.violated("mark of an owner with fence %d, the newest is %d: %v", o.fence, newest.fence, err)
	}
}

// write asks for a step from what an owner believes in to anywhere.
func (e *env) write(rnd *rand.Rand, o, newest *owner) {
	from := o.place(o.mark)
	if from == o.end() {
		return
	}
	to := place{batches: from.batches + 1 + rnd.IntN(len(o.batches)-from.batches)}
	if n := len(o.items[from.batches]); e.info.Chunked && n > from.records+1 && rnd.IntN(2) == 0 {
		to = place{from.batches, from.records + 1 + rnd.IntN(n-from.records-1)}
	}
	st := o.step(o.mark, to)
	if o != newest {
		o.refused(st, fmt.Sprintf("an owner with fence %d, the newest is %d,", o.fence, newest.fence), sinks.Fenced)
		return
	}
	if err := o.try(e.ctx, st); err != nil {
		e.violated("flush by the newest owner: %v", err)
	}
	if rnd.IntN(4) > 0 {
		o.arrived(to)
		return
	}
	o.refused(st, "a step that has just taken place", sinks.Moved)
	o.arrived(to)
}
