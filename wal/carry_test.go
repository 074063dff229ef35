package wal

import (
	"errors"
	"testing"
)

// TestCarriedCompletion: the power is cut while a checkpoint is being completed and the
// state of the lanes is carried into a newer generation. The disk may by then have what
// was written to the newer one, and not what was written to the older: a completed
// checkpoint must still have its batches.
func TestCarriedCompletion(t *testing.T) {
	m, dir := newMemory(), t.TempDir()
	l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet, backend: m})
	appendSeal(t, l, testLane, 1, "one")
	if err := l.Checkpoint(1, nil); err != nil {
		t.Fatal(err)
	}
	appendSeal(t, l, testLane, 2, "two")
	old := l.active
	old.syncing.Lock() // from here on nothing of it gets to the disk
	if _, err := l.writeComplete(&completeState{checkpoint: 2}, old); err != nil {
		t.Fatal(err)
	}
	nextGeneration(t, l)
	carried := make(chan error)
	go func() {
		_, err := l.carry()
		carried <- err
	}()
	done := false
	for syncing := false; !done && !syncing; {
		select {
		case err := <-carried:
			if done = true; err != nil {
				t.Error(err)
			}
		default:
			if syncing = !l.rounds.running.TryLock(); !syncing {
				l.rounds.running.Unlock()
			}
		}
	}
	left := m.kill()
	g := left.gens[old.number]
	g.appends = g.appends[:g.synced]
	old.syncing.Unlock()
	if !done {
		if err := <-carried; err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}

	l = mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet, backend: left})
	completed, _ := l.Completed()
	if held := l.Batches(testLane); completed != 1 || len(held) != 1 {
		t.Errorf("checkpoint %d is complete, and %d batches are held", completed, len(held))
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// nextGeneration makes the next generation the active one.
func nextGeneration(t *testing.T, l *Log) {
	t.Helper()
	for {
		l.mu.Lock()
		err, changed := l.advance(0), l.changed
		l.mu.Unlock()
		if err == nil {
			return
		}
		if !errors.Is(err, errWait) {
			t.Fatal(err)
		}
		<-changed
	}
}
