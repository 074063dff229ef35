package wal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// smallDisk mounts a tmpfs of so many MiB.
func smallDisk(t testing.TB, mib int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a file system")
	}
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+strconv.Itoa(mib)+"m", "tmpfs", dir).CombinedOutput()
	if err != nil {
		t.Skipf("mount tmpfs: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fillDisk takes all that is left and returns how to give it back.
func fillDisk(t testing.TB, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// fillLog appends and seals batches of 1 MiB until Append fails, and returns how
// many were made durable.
func fillLog(t testing.TB, l *Log, from uint64) (sealed uint64, err error) {
	t.Helper()
	ln := mustLane(t, l, testLane)
	rec := bytes.Repeat([]byte("x"), 16<<10)
	for c := from; ; c++ {
		for range 64 {
			if err := ln.Append(context.Background(), rec); err != nil {
				return c - 1, err
			}
		}
		if _, _, err := ln.Seal(c, nil, "", false); err != nil {
			t.Fatal(err)
		}
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func checkHeld(t testing.TB, l *Log, upTo uint64) {
	t.Helper()
	held := l.Batches(testLane)
	if len(held) == 0 || held[len(held)-1].Checkpoint != upTo {
		t.Fatalf("held %d batches, want them up to checkpoint %d", len(held), upTo)
	}
	for _, b := range held {
		if n := len(readBatch(t, l, testLane, b.Seq)); n != 64 {
			t.Fatalf("batch %d has %d records, want 64", b.Seq, n)
		}
	}
}

func TestB17DiskFull(t *testing.T) {
	disk := smallDisk(t, 32)
	dir := filepath.Join(disk, "log")
	opts := Options{GenerationBytes: 4 << 20, Retain: -1}
	l := mustOpen(t, dir, opts)
	sealed, err := fillLog(t, l, 1)
	if !errors.Is(err, ErrNoSpace) {
		t.Fatalf("append on a full disk: %v, want ErrNoSpace", err)
	}
	if sealed < 8 {
		t.Fatalf("only %d MiB fit on a disk of 32", sealed)
	}
	empty := fillDisk(t, disk)

	// Q06: all that lets a flush go on works without new space.
	if err := l.Complete(sealed, []byte("here")); err != nil {
		t.Fatal(err)
	}
	checkHeld(t, l, sealed)
	if err := l.PutNote(testLane, 1, []byte("note")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	fillDisk(t, disk) // what closing gave back

	l = mustOpen(t, dir, opts)
	checkHeld(t, l, sealed)
	if note, err := l.Note(testLane, 1); err != nil || string(note) != "note" {
		t.Fatalf("note is %q, %v", note, err)
	}
	if err := l.PutNote(testLane, 2, []byte("note")); err != nil {
		t.Fatal(err)
	}
	before := l.Stat().Generations
	for seq := uint64(1); seq <= sealed; seq++ {
		if err := l.Commit(testLane, seq); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, l, func(s Stat) bool { return s.Generations < before/2 })
	empty()
	if _, err := fillLog(t, l, sealed+100); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("append after there was room: %v, want ErrNoSpace in the end", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits until the state of the log is as wanted.
func waitFor(t testing.TB, l *Log, ok func(Stat) bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		s := l.Stat()
		if ok(s) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log does not get there: %+v", s)
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		}
	}
}
