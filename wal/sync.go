package wal

import (
	"slices"
	"sync"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
)

// syncRounds lets concurrent callers of Sync share one: those who come while one
// runs, which may have begun before what they wrote, share the next.
type syncRounds struct {
	running sync.Mutex // held by the one who syncs
	mu      sync.Mutex
	next    *syncRound // not begun
}

type syncRound struct {
	done chan struct{}
	err  error
}

// Sync makes durable what was sealed or otherwise written before the call. Callers
// at the same time share one sync. An error latches the log; sync is not tried
// again.
func (l *Log) Sync() error {
	if plant.Active(plant.AckBeforeSync) {
		go l.syncOnce() //nolint:errcheck // the planted bug
		return nil
	}
	r := &l.rounds
	r.mu.Lock()
	if round := r.next; round != nil {
		r.mu.Unlock()
		<-round.done
		return round.err
	}
	round := &syncRound{done: make(chan struct{})}
	r.next = round
	r.mu.Unlock()

	r.running.Lock()
	defer r.running.Unlock()
	r.mu.Lock()
	r.next = nil
	r.mu.Unlock()
	round.err = l.syncOnce()
	close(round.done)
	return round.err
}

// syncOnce syncs the generations that are being written, the oldest first, so
// that a footer is never durable before its blocks.
func (l *Log) syncOnce() error {
	l.mu.Lock()
	if err := l.failure(); err != nil {
		l.mu.Unlock()
		return err
	}
	sealed := l.sealed
	l.sealed = nil
	var foreign []*generation
	for _, n := range l.numbers() {
		if g := l.gens[n]; g.foreign {
			foreign = append(foreign, g)
		}
	}
	writing := slices.Clone(l.retiring)
	if l.active != nil {
		writing = append(writing, l.active)
	}
	l.mu.Unlock()
	if err := l.syncAll(foreign, writing); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.failLocked(err)
	}
	l.mu.Lock()
	for _, g := range foreign {
		g.foreign = false
	}
	for _, b := range sealed {
		if !b.gone {
			b.lane.durable = max(b.lane.durable, b.Seq)
		}
	}
	l.mu.Unlock()
	if len(sealed) > 0 {
		crash.Point(crash.SealSynced)
	}
	return nil
}

func (l *Log) syncAll(foreign, writing []*generation) error {
	if plant.Active(plant.SyncOff) {
		return nil
	}
	for _, g := range foreign {
		if err := l.syncForeign(g); err != nil {
			return err
		}
	}
	for _, g := range writing {
		if err := g.sync(); err != nil {
			return err
		}
	}
	return nil
}
