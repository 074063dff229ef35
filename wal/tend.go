package wal

import (
	"errors"
	"slices"
	"time"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
)

// tend is the task that makes generations ahead of need, closes full ones, and
// drops those that nobody needs.
func (l *Log) tend() {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-l.wake:
		case <-t.C:
		}
		l.retireFull()
		l.prepareNext()
		t.Reset(l.forget())
		l.dropUnneeded()
	}
}

// retireFull syncs and closes the generations that are no longer active.
func (l *Log) retireFull() {
	for {
		l.mu.Lock()
		if len(l.retiring) == 0 || l.failure() != nil {
			l.mu.Unlock()
			return
		}
		g := l.retiring[0]
		l.mu.Unlock()
		size, err := g.retire()
		l.mu.Lock()
		if err != nil {
			_ = l.failLocked(err)
		} else {
			l.retiring = l.retiring[1:]
			g.values, g.index = size, 0
		}
		l.broadcast()
		l.mu.Unlock()
	}
}

// prepareNext makes the next generation if somebody wants it.
func (l *Log) prepareNext() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.wantNext || l.next != nil || l.failure() != nil {
		l.wantNext = false
		return
	}
	l.number++
	n, first := l.number, l.active == nil
	if !first { // without an active one, others would make one as well
		l.mu.Unlock()
	}
	g, err := l.createGeneration(n, false)
	if !first {
		l.mu.Lock()
	}
	l.wantNext, l.nextErr = false, nil
	switch {
	case err == nil:
		l.next = g
	case errors.Is(err, ErrNoSpace):
		l.nextErr = err
	default:
		_ = l.failLocked(err)
	}
	l.broadcast()
}

// forget lets go of batches whose time is over and returns when to look again.
func (l *Log) forget() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, wait := l.opts.now(), time.Hour
	over := l.retained() - l.opts.RetainBytes
	for _, ln := range l.lanes {
		done := func(b *batch, over *int64) bool {
			left := l.opts.Retain - now.Sub(b.since)
			if b.pins > 0 {
				return false
			}
			if left <= 0 || l.hungry > 0 || *over > 0 {
				*over -= int64(b.Bytes)
				return true
			}
			wait = min(wait, left)
			return false
		}
		for len(ln.batches) > 0 && l.isCommitted(ln, ln.batches[0]) && done(ln.batches[0], &over) {
			l.release(ln.batches[0])
			ln.batches = ln.batches[1:]
		}
		for len(ln.aside) > 0 && done(ln.aside[0], &over) {
			l.release(ln.aside[0])
			ln.aside = ln.aside[1:]
		}
	}
	return wait
}

func (l *Log) isCommitted(ln *Lane, b *batch) bool {
	if plant.Active(plant.DropBeforeCommit) {
		return b.Checkpoint <= l.complete.checkpoint
	}
	return b.Seq <= ln.committed
}

// retained is the bytes of batches that are held only because of retention.
func (l *Log) retained() int64 {
	var sum int64
	for _, ln := range l.lanes {
		for _, b := range ln.batches {
			if b.Seq > ln.committed {
				break
			}
			sum += int64(b.Bytes)
		}
		for _, b := range ln.aside {
			sum += int64(b.Bytes)
		}
	}
	return sum
}

// dropUnneeded removes the generations that no batch needs. What they alone hold,
// the state of the lanes, is carried into the active one and synced before.
func (l *Log) dropUnneeded() {
	unneeded := l.unneeded()
	if len(unneeded) == 0 {
		return
	}
	g, err := l.carry()
	if err == nil {
		err = l.Sync()
	}
	if err != nil {
		if !errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrClosed) {
			_ = l.fail(err)
		}
		return
	}
	l.mu.Lock()
	g.carried = true
	l.mu.Unlock()
	for _, g := range unneeded {
		if err := l.dropGeneration(g); err != nil {
			l.mu.Lock()
			_ = l.failLocked(err)
			l.mu.Unlock()
			return
		}
		crash.Point(crash.DropDone)
		l.mu.Lock()
		delete(l.gens, g.number)
		for id, n := range l.voids {
			if n == g.number {
				delete(l.voids, id)
			}
		}
		l.broadcast()
		l.mu.Unlock()
	}
}

// unneeded returns the generations that can go, the oldest first. Damaged ones
// stay until every damaged lane was reset.
func (l *Log) unneeded() []*generation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure() != nil {
		return nil
	}
	whole := true
	for _, ln := range l.lanes {
		whole = whole && ln.broken == nil
	}
	var out []*generation
	for _, n := range l.numbers() {
		g := l.gens[n]
		if g.live == 0 && g != l.active && !slices.Contains(l.retiring, g) && (g.damage == nil || whole) {
			out = append(out, g)
		}
	}
	return out
}

// numbers returns the numbers of all generations, ascending.
func (l *Log) numbers() []uint64 {
	numbers := make([]uint64, 0, len(l.gens))
	for n := range l.gens {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

// checkpoints are the highest that was completed and those that were sealed.
type checkpoints struct {
	completed completeState
	sealed    sealedState
}

// checkpoints returns those that were written, durable or not.
func (l *Log) checkpoints() checkpoints {
	l.mu.Lock()
	defer l.mu.Unlock()
	return checkpoints{completed: l.completing, sealed: l.ended}
}

// carry writes what must outlive the older generations into the active one, and
// returns it. Nothing is durable there yet, but the checkpoints are where they were
// written first: a power cut could else keep the completion here and take the footers
// that it completes from an older generation.
func (l *Log) carry() (*generation, error) {
	g, err := l.carryAfter(checkpoints{})
	for errors.Is(err, errWait) {
		durable := l.checkpoints()
		if err = l.Sync(); err == nil {
			g, err = l.carryAfter(durable)
		}
	}
	return g, err
}

// carryAfter is carry if no checkpoint was written after those that are durable, and
// otherwise fails with errWait.
func (l *Log) carryAfter(durable checkpoints) (*generation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, err := l.writable()
	if err != nil {
		return nil, err
	}
	if !g.carried && (l.completing.above(&durable.completed) || l.ended.above(&durable.sealed)) {
		return nil, errWait
	}
	var entries []entry
	for _, ln := range l.lanes {
		switch {
		case ln.stored && (!g.carried || ln.written != ln.head.Seq):
			entries = append(entries, entry{laneKey(kindLane, ln.name), ln.encode()})
		case ln.stored && l.uncertain:
			c := committedState{floor: ln.floor, seq: ln.committed}
			entries = append(entries, entry{laneKey(kindCommitted, ln.name), c.encode()})
		}
	}
	if !g.carried {
		entries = append(entries, entry{[]byte{kindComplete}, l.completing.encode()},
			entry{[]byte{kindSealed}, l.ended.encode()})
		for id := range l.voids {
			entries = append(entries, entry{idKey(kindVoid, id), begin()})
		}
		entries = append(entries, entry{[]byte{kindAll}, begin()})
	}
	for group := range slices.Chunk(entries, maxGroup) {
		if _, err := l.control(urgent, group...); err != nil {
			return nil, err
		}
	}
	l.uncertain = false
	for _, ln := range l.lanes {
		ln.written = ln.head.Seq
	}
	return g, nil
}

func ignoreNoSpace(err error) error {
	if errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrFailed) {
		return nil
	}
	return err
}
