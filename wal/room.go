package wal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/walsink/walsink/internal/crash"
)

// blockIndex is what a block and the footer of its batch take of an index.
const blockIndex = 3*inline + 2*entryCost

// errWait says that room is being made.
var errWait = errors.New("wait")

// promise gets room for so many more bytes in the open block of a lane. Blocks of
// the file system are taken now, so that writing cannot fail for lack of them.
func (l *Log) promise(ctx context.Context, ln *Lane, bytes int64, first bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := false
	defer func() {
		if waiting {
			l.hungry--
		}
	}()
	for {
		if err := firstErr(l.failure(), ln.broken); err != nil {
			return err
		}
		err := l.makeRoom(bytes, first)
		switch {
		case err == nil:
			l.promised += bytes
			if first {
				l.open++
			}
			return nil
		case errors.Is(err, errWait):
		case !errors.Is(err, ErrFull) && !errors.Is(err, ErrNoSpace):
			return l.failLocked(err)
		case !l.freeable():
			return err
		case !waiting:
			waiting = true
			l.hungry++
			l.kick()
		}
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
}

// recheck is how often one who waits for room on a full disk looks again, since
// nobody tells when others free some.
const recheck = time.Second

// wait returns when something changed, or after a while. The caller holds mu,
// which is released meanwhile.
func (l *Log) wait(ctx context.Context) error {
	changed := l.changed
	l.mu.Unlock()
	defer l.mu.Lock()
	t := time.NewTimer(recheck)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// makeRoom makes sure that the active generation has room for so many bytes more
// than it has promised, and for the index of one more block if first is set. It
// goes to the next generation when this one is full. Errors: errWait, ErrFull,
// ErrNoSpace, or that of the storage. The caller holds mu.
func (l *Log) makeRoom(bytes int64, first bool) error {
	if held := l.held(); held+l.promised+bytes > l.opts.MaxBytes {
		return fmt.Errorf("%w: %d bytes are held and %d more wanted, the budget is %d", ErrFull, held+l.promised, bytes, l.opts.MaxBytes)
	}
	open := int64(l.open)
	if first {
		open++
	}
	for {
		g := l.active
		if g != nil && !g.small && !l.outgrown(g, bytes, open) {
			l.prefetch(g)
			return g.reserve(g.values + l.promised + bytes + g.shape.headroom)
		}
		if err := l.advance(bytes); err != nil {
			return err
		}
	}
}

// outgrown reports whether records should go to the next generation. A fresh one
// takes whatever was promised.
func (l *Log) outgrown(g *generation, bytes, open int64) bool {
	return g.values > 0 && g.values+l.promised+bytes > l.opts.GenerationBytes ||
		g.index > g.shape.intake/2 && g.index+open*blockIndex > g.shape.intake
}

// prefetch has the next generation made ahead of need.
func (l *Log) prefetch(g *generation) {
	if l.next == nil && !l.wantNext && (g.values > l.opts.GenerationBytes/2 || g.index > g.shape.intake/2) {
		l.wantNext = true
		l.kick()
	}
}

// turnOver goes to the next generation if the active one is full and the next
// is ready, and has it made if not. Entries that are not records fill the index
// too, also when no record comes. The caller holds mu and has room for its own
// entry either way.
func (l *Log) turnOver() {
	g := l.active
	switch {
	case g == nil:
	case !g.small && !l.outgrown(g, 0, int64(l.open)):
		l.prefetch(g)
	case l.next != nil:
		_ = l.advance(0) // another time, if it cannot be now
	case !l.wantNext:
		l.wantNext = true
		l.kick()
	}
}

// advance makes the next generation the active one, if it has room for all that
// was promised. The caller holds mu.
func (l *Log) advance(bytes int64) error {
	if l.next == nil {
		if err := l.nextErr; err != nil {
			l.nextErr = nil
			return err
		}
		l.wantNext = true
		l.kick()
		return errWait
	}
	if err := l.next.reserve(l.promised + bytes + l.next.shape.headroom); err != nil {
		return err
	}
	l.activate(l.next)
	l.next = nil
	crash.Point(crash.Rotated)
	l.kick()
	return nil
}

// activate makes g the active generation. The caller holds mu.
func (l *Log) activate(g *generation) {
	if l.active != nil {
		l.retiring = append(l.retiring, l.active)
	}
	l.active = g
	l.gens[g.number] = g
}

// held is the bytes in all generations.
func (l *Log) held() int64 {
	var sum int64
	for _, g := range l.gens {
		sum += g.values + g.index
	}
	return sum
}

// freeable reports whether waiting can free anything: a completed batch is still
// to be flushed, or something is still to be dropped.
func (l *Log) freeable() bool {
	for _, g := range l.gens {
		if g.live == 0 && g != l.active {
			return true
		}
	}
	for _, ln := range l.lanes {
		if len(ln.aside) > 0 || len(ln.batches) > 0 && ln.batches[0].Checkpoint <= l.complete.checkpoint {
			return true
		}
	}
	return false
}

// A tier says how much of a generation a control entry may use.
type tier uint8

const (
	normal tier = iota // footers, notes, commits
	urgent             // what lets a generation be dropped
)

// control writes entries that are not records to the active generation, making
// one if there is none. ErrNoSpace leaves the log usable; any other error
// latches it. The caller holds mu.
func (l *Log) control(t tier, entries ...entry) (*generation, error) {
	if err := l.failure(); err != nil {
		return nil, err
	}
	g, err := l.writable()
	if err != nil {
		return nil, err
	}
	index, values := cost(entries...)
	limit := g.shape.control
	if t == urgent {
		limit = g.shape.index
	}
	if g.index+int64(l.open)*blockIndex+index > limit {
		return nil, fmt.Errorf("%w: the index of generation %d is full", ErrNoSpace, g.number)
	}
	err = g.reserve(g.values + l.promised + values)
	if err == nil {
		err = g.append(entries...)
	}
	if errors.Is(err, ErrNoSpace) {
		return nil, err
	}
	if err != nil {
		return nil, l.failLocked(err)
	}
	g.charge(entries...)
	return g, nil
}

// writable returns the active generation or makes one, of spare blocks if need
// be. The caller holds mu.
func (l *Log) writable() (*generation, error) {
	if l.active != nil {
		return l.active, nil
	}
	if g := l.next; g != nil {
		l.next = nil
		l.activate(g)
		return g, nil
	}
	l.number++
	g, err := l.createGeneration(l.number, false)
	if errors.Is(err, ErrNoSpace) {
		l.number++
		g, err = l.createGeneration(l.number, true)
	}
	if err != nil {
		if !errors.Is(err, ErrNoSpace) {
			err = l.failLocked(err)
		}
		return nil, err
	}
	l.activate(g)
	return g, nil
}
