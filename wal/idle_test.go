package wal

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"github.com/walsink/walsink/record"
)

// Checkpoints without records go on for ever: each leaves a small entry, and no
// batch comes that would move the log to its next generation.
func TestEmptyCheckpointsForEver(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{GenerationBytes: 1 << 20, Logger: quiet, backend: newMemory()})
	making := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.wantNext
	}
	for c := range uint64(20_000) {
		for making() { // a disk takes longer for a sync than this backend for all of it
			runtime.Gosched()
		}
		if err := l.Complete(c+1, []byte("position of the source")); err != nil {
			t.Fatalf("checkpoint %d: %v", c+1, err)
		}
	}
}

// What was promised to a block that is not full does not grow with the record
// before it.
func TestSmallRecordAfterLargeOnes(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{GenerationBytes: 1 << 20, MaxBytes: 64 << 20, Logger: quiet})
	ln := mustLane(t, l, testLane)
	for _, size := range []int{40 << 20, 1} {
		if err := ln.Append(t.Context(), make([]byte, size)); err != nil {
			t.Fatalf("record of %d bytes: %v", size, err)
		}
	}
}

// Batches that began while the next generation was ready, and did not get to it,
// have ids in its name. A Reset by the next owner sets them aside all the same.
func TestResetCoversIDsOfAGenerationThatNeverCame(t *testing.T) {
	m := newMemory()
	opts := Options{GenerationBytes: 1 << 20, Logger: quiet, backend: m}
	l := mustOpen(t, t.TempDir(), opts)
	ln := mustLane(t, l, testLane)
	c := uint64(0)
	batch := func(size int) {
		t.Helper()
		c++
		if err := ln.Append(t.Context(), bytes.Repeat([]byte{'x'}, size)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ln.Seal(c, nil, "f", false); err != nil {
			t.Fatal(err)
		}
		if err := l.Complete(c, nil); err != nil {
			t.Fatal(err)
		}
	}
	batch(600 << 10) // more than half a generation: the next is made
	ready := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.next != nil
	}
	for !ready() {
		batch(1)
	}
	batch(1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	l = mustOpen(t, t.TempDir(), opts)
	head := record.Head{Seq: 1, Chain: record.Genesis("another", "history"), Checkpoint: 1}
	if err := l.Reset(testLane, head); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	l = mustOpen(t, t.TempDir(), opts)
	if got, _, _ := l.Head(testLane); got.Chain != head.Chain {
		t.Errorf("the lane ends with batch %d, want what Reset said", got.Seq)
	}
	if held := l.Batches(testLane); len(held) != 0 {
		t.Errorf("%d batches came back", len(held))
	}
	if s := l.Stat(); len(s.Damage) > 0 || s.Lanes[0].Broken != nil {
		t.Errorf("damage: %v, lane: %v", s.Damage, s.Lanes[0].Broken)
	}
}

// A generation to which the writer is just writing a block, the first there that
// is still needed, is not dropped although it is no longer the active one.
func TestGenerationIsNeededWhileABlockIsWritten(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{GenerationBytes: 1 << 20, Logger: quiet, backend: newMemory()})
	ln := mustLane(t, l, testLane)
	if err := ln.Append(t.Context(), []byte("record")); err != nil {
		t.Fatal(err)
	}
	g, b := l.target(ln)
	e := entry{blockKey(nil, b.id, 0), ln.cur.Finish(ln.hasher)}
	if err := g.append(e); err != nil {
		t.Fatal(err)
	}

	state := func(f func() bool) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return f()
	}
	state(func() bool { l.wantNext = true; l.kick(); return true })
	for !state(func() bool { return l.next != nil }) {
		runtime.Gosched()
	}
	if !state(func() bool { return l.advance(0) == nil }) {
		t.Fatal("no next generation")
	}
	for !state(func() bool { return len(l.retiring) == 0 }) {
		runtime.Gosched()
	}
	if slices.Contains(l.unneeded(), g) || state(func() bool { return l.gens[g.number] == nil }) {
		t.Fatal("the generation goes, and the block with it")
	}
	if !l.written(job{lane: ln}, g, b, e, nil) {
		t.Fatal("the block is to be written again")
	}
}
