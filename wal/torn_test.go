package wal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestTornAppend: a power cut during Void leaves the entries in the index, and of the
// lane's state, which is long, a part. The append counts as a whole or not at all: the
// batch is held, or the lane ends before it and says so.
func TestTornAppend(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
	position := bytes.Repeat([]byte("p"), 2*inline)
	for c := uint64(1); c <= 2; c++ {
		ln := mustLane(t, l, testLane)
		if err := ln.Append(t.Context(), []byte("record")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ln.Seal(c, position, "f", false); err != nil {
			t.Fatal(err)
		}
		if err := l.Checkpoint(c, position); err != nil {
			t.Fatal(err)
		}
	}
	st, ok := l.active.st.(*badgerStore)
	if !ok {
		t.Fatal("not the store of Badger")
	}
	synced := st.values.synced.Load()
	if err := l.void(mustLane(t, l, testLane), 2); err != nil {
		t.Fatal(err)
	}
	end := st.values.used.Load()
	if end-synced < inline {
		t.Fatalf("only %d bytes were written after the sync", end-synced)
	}
	for size := synced; size <= end; size += (end - synced) / 4 {
		left := copyDir(t, dir)
		if err := os.Truncate(filepath.Join(left, filepath.Base(st.dir), valueFile), size); err != nil {
			t.Fatal(err)
		}
		for range 2 { // after the first, what was dropped is known to be synced
			wantTorn(t, left, size == end)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// wantTorn opens the log after the cut: batch 2 is void, or as before.
func wantTorn(t *testing.T, dir string, void bool) {
	t.Helper()
	l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
	want := uint64(2)
	if void {
		want = 1
	}
	head, _, _ := l.Head(testLane)
	held := l.Batches(testLane)
	if head.Seq != want || len(held) != int(want) || l.Restarted() != void {
		t.Errorf("void %v: head %d, %d batches, restarted %v", void, head.Seq, len(held), l.Restarted())
	}
	if d := l.Stat().Damage; len(d) > 0 {
		t.Errorf("void %v: damage %v", void, d)
	}
	if err := l.Sync(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
