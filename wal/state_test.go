package wal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/walsink/walsink/record"
)

// reopen closes a log and opens it again.
func reopen(t testing.TB, l *Log) *Log {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return mustOpen(t, l.dir, l.opts)
}

func seqs(batches []record.Batch) (out []uint64) {
	for _, b := range batches {
		out = append(out, b.Seq)
	}
	return out
}

func wantBatches(t testing.TB, l *Log, lane string, want ...uint64) {
	t.Helper()
	if got := seqs(l.Batches(lane)); !slices.Equal(got, want) {
		t.Fatalf("batches %d, want %d", got, want)
	}
}

func appendSeal(t testing.TB, l *Log, lane string, checkpoint uint64, rec string) record.Batch {
	t.Helper()
	ln := mustLane(t, l, lane)
	if err := ln.Append(t.Context(), []byte(rec)); err != nil {
		t.Fatal(err)
	}
	b, ok, err := ln.Seal(checkpoint, []byte(rec), "f", false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return b
}

var small = Options{GenerationBytes: 1 << 20, Logger: quiet}

func TestC017CompleteCoversLowerIDs(t *testing.T) {
	l := mustOpen(t, t.TempDir(), small)
	for c := uint64(1); c <= 4; c++ {
		appendSeal(t, l, testLane, c, "r")
	}
	wantBatches(t, l, testLane)
	complete := func(c uint64) {
		t.Helper()
		if err := l.Complete(c, []byte{byte(c)}); err != nil {
			t.Fatal(err)
		}
	}
	complete(2) // C018: 3 and 4 are not visible
	wantBatches(t, l, testLane, 1, 2)
	complete(2) // C019
	complete(1) // C025
	wantBatches(t, l, testLane, 1, 2)
	if c, pos := l.Completed(); c != 2 || !bytes.Equal(pos, []byte{2}) {
		t.Errorf("completed %d at %v", c, pos)
	}
	l = reopen(t, l)
	wantBatches(t, l, testLane, 1, 2)
	complete = func(c uint64) {
		if err := l.Complete(c, nil); err != nil {
			t.Fatal(err)
		}
	}
	complete(4) // C016: sealed before the restart, completed after it
	wantBatches(t, l, testLane, 1, 2, 3, 4)
	if _, err := l.Note(testLane, 9); err == nil {
		t.Error("a note of a batch that is not there")
	}
}

func TestC007EmptyLane(t *testing.T) {
	l := mustOpen(t, t.TempDir(), small)
	ln := mustLane(t, l, testLane)
	if _, ok, err := ln.Seal(1, nil, "", false); ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := l.Complete(1, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := l.Head(testLane); ok {
		t.Error("a lane without batches is known")
	}
	// force carries the mark of an idle lane forward.
	b, ok, err := ln.Seal(2, []byte("far"), "f", true)
	if err != nil || !ok || b.Records != 0 || b.Digest != record.NewHasher().Sum() {
		t.Fatal(b, ok, err)
	}
	if err := l.Complete(2, nil); err != nil {
		t.Fatal(err)
	}
	l = reopen(t, l)
	wantBatches(t, l, testLane, 1)
	if got := readBatch(t, l, testLane, 1); len(got) != 0 {
		t.Errorf("%d records", len(got))
	}
	if head, _, ok := l.Head(testLane); !ok || string(head.Position) != "far" {
		t.Errorf("head %+v, %v", head, ok)
	}
}

func TestCheckpointsRise(t *testing.T) {
	l := mustOpen(t, t.TempDir(), small)
	appendSeal(t, l, testLane, 5, "r")
	ln := mustLane(t, l, testLane)
	_ = ln.Append(t.Context(), []byte("s"))
	for _, c := range []uint64{5, 4} {
		if _, _, err := ln.Seal(c, nil, "", false); err == nil {
			t.Errorf("seal %d after 5", c)
		}
	}
	if _, _, err := ln.Seal(6, make([]byte, record.MaxPosition+1), "", false); !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("a long position: %v", err)
	}
	// After refusals the batch is as it was.
	b, ok, err := ln.Seal(6, nil, "", false)
	if err != nil || !ok || b.Records != 1 || b.Seq != 2 {
		t.Fatal(b, ok, err)
	}
}

// The chain of the batches is the one that record defines.
func TestChain(t *testing.T) {
	l := mustOpen(t, t.TempDir(), small)
	prev := record.Genesis("sink", "lane")
	for c := uint64(1); c <= 3; c++ {
		b := appendSeal(t, l, testLane, c, "r")
		if b.Prev != prev || b.Seq != c || b.Bytes != 1 || string(b.Position) != "r" || b.Format != "f" {
			t.Fatalf("batch %+v", b)
		}
		prev = b.Chain()
		if c == 2 {
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
			l = reopen(t, l)
		}
	}
}

func TestC021TruncateNeverTouchesCompleted(t *testing.T) {
	l := mustOpen(t, t.TempDir(), small)
	appendSeal(t, l, testLane, 1, "one")
	if err := l.Complete(1, nil); err != nil {
		t.Fatal(err)
	}
	appendSeal(t, l, testLane, 2, "two")
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	ln := mustLane(t, l, testLane)
	_ = ln.Append(t.Context(), make([]byte, 700<<10)) // open, in part written
	_ = ln.Append(t.Context(), []byte("open"))
	for range 2 {
		if err := l.Truncate(); err != nil {
			t.Fatal(err)
		}
	}
	if n, size := ln.Pending(); n != 0 || size != 0 {
		t.Errorf("%d records are open", n)
	}
	l = reopen(t, l)
	if d := l.Stat().Damage; len(d) > 0 {
		t.Fatalf("damage: %v", d)
	}
	b := appendSeal(t, l, testLane, 3, "three")
	if b.Seq != 2 {
		t.Errorf("batch %d after the truncation, want 2", b.Seq)
	}
	if err := l.Complete(3, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantBatches(t, l, testLane, 1, 2)
		if got := readBatch(t, l, testLane, 2); !slices.Equal(got, []string{"three"}) {
			t.Errorf("batch 2 is %q", got)
		}
		l = reopen(t, l)
	}
}

func TestReset(t *testing.T) {
	l := mustOpen(t, t.TempDir(), small)
	for c := uint64(1); c <= 3; c++ {
		put(t, l, testLane, c, []byte("old"))
	}
	ln := mustLane(t, l, testLane)
	_ = ln.Append(t.Context(), []byte("open"))
	head := record.Head{Seq: 70, Chain: record.Chain{9}, Checkpoint: 50, Position: []byte("there")}
	if err := l.Reset(testLane, head); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		wantBatches(t, l, testLane)
		got, committed, ok := l.Head(testLane)
		if !ok || committed != 70 || got.Seq != 70 || got.Chain != head.Chain || string(got.Position) != "there" {
			t.Fatalf("head %+v, committed %d, %v", got, committed, ok)
		}
	}
	check()
	l = reopen(t, l)
	check()
	b := appendSeal(t, l, testLane, 51, "new")
	if b.Seq != 71 || b.Prev != head.Chain || b.Records != 1 {
		t.Errorf("batch %+v does not continue the head", b)
	}
	if err := l.Complete(51, nil); err != nil {
		t.Fatal(err)
	}
	// Back to a lower head, as after a store that was rolled back.
	if err := l.Reset(testLane, record.Head{Seq: 2, Chain: record.Chain{2}}); err != nil {
		t.Fatal(err)
	}
	l = reopen(t, l)
	if got, committed, _ := l.Head(testLane); got.Seq != 2 || committed != 2 {
		t.Errorf("head %d, committed %d, want 2", got.Seq, committed)
	}
	if err := l.Reset(testLane, record.Head{Position: make([]byte, record.MaxPosition+1)}); !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("a long position: %v", err)
	}
}

func TestNotes(t *testing.T) {
	l := mustOpen(t, t.TempDir(), small)
	put(t, l, testLane, 1, []byte("r"))
	put(t, l, testLane, 2, []byte("r"))
	if n, err := l.Note(testLane, 1); n != nil || err != nil {
		t.Fatalf("note %q, %v", n, err)
	}
	long := bytes.Repeat([]byte("n"), MaxNote)
	for _, note := range [][]byte{[]byte("first"), long, []byte("last")} {
		if err := l.PutNote(testLane, 1, note); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Note(testLane, 1); err != nil || !bytes.Equal(got, note) {
			t.Fatalf("note of %d bytes before reopen, %v", len(got), err)
		}
		put(t, l, "sink/other", l.complete.checkpoint+1, make([]byte, 900<<10)) // next generation
		l = reopen(t, l)
		if got, err := l.Note(testLane, 1); err != nil || !bytes.Equal(got, note) {
			t.Fatalf("note of %d bytes, %v", len(got), err)
		}
	}
	if got, err := l.Note(testLane, 2); got != nil || err != nil {
		t.Errorf("the note of another batch: %q, %v", got, err)
	}
	if err := l.PutNote(testLane, 1, append(long, 'n')); !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("a long note: %v", err)
	}
	if err := l.PutNote(testLane, 3, nil); err == nil {
		t.Error("a note for a batch that is not there")
	}
}

// TestRetention: committed batches stay for their time, with their generations.
func TestRetention(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	opts := small
	opts.Retain, opts.now = time.Minute, func() time.Time { return now }
	l := mustOpen(t, t.TempDir(), opts)
	for c := uint64(1); c <= 3; c++ {
		put(t, l, testLane, c, bytes.Repeat([]byte("x"), 900<<10))
	}
	commit(t, l, testLane, 2)
	if err := l.Commit(testLane, 4); err == nil {
		t.Error("commit of a batch that is not there")
	}
	wantBatches(t, l, testLane, 1, 2, 3)
	l = reopen(t, l) // the time begins anew, to be safe
	wantBatches(t, l, testLane, 1, 2, 3)
	if s := l.Stat(); s.Lanes[0].Retained != 2 || s.Lanes[0].Pending != 1 || s.Oldest.IsZero() {
		t.Errorf("state %+v", s)
	}
	l.mu.Lock()
	now = now.Add(2 * time.Minute)
	l.mu.Unlock()
	l.kick()
	waitFor(t, l, func(Stat) bool { return slices.Equal(seqs(l.Batches(testLane)), []uint64{3}) })
	waitFor(t, l, func(s Stat) bool { return s.Generations <= 3 })
	if got := readBatch(t, l, testLane, 3); len(got) != 1 {
		t.Error("the pending batch is gone")
	}
	l = reopen(t, l)
	if _, committed, _ := l.Head(testLane); committed != 2 {
		t.Errorf("committed %d, want 2", committed)
	}
	t.Run("rolled back", func(t *testing.T) {
		l := mustOpen(t, t.TempDir(), opts)
		for c := uint64(1); c <= 4; c++ {
			put(t, l, testLane, c, []byte("x"))
		}
		commit(t, l, testLane, 4)
		commit(t, l, testLane, 2)
		l.mu.Lock()
		now = now.Add(2 * time.Minute)
		l.mu.Unlock()
		l.kick()
		waitFor(t, l, func(Stat) bool { return slices.Equal(seqs(l.Batches(testLane)), []uint64{3, 4}) })
		commit(t, l, testLane, 1) // is no longer held: nothing that is gone becomes pending
		if s := l.Stat(); s.Lanes[0].Pending != 2 {
			t.Errorf("state %+v", s)
		}
		l = reopen(t, l)
		if s := l.Stat(); len(s.Damage) > 0 {
			t.Errorf("damage %v", s.Damage)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		opts.RetainBytes = 1 << 20
		l := mustOpen(t, t.TempDir(), opts)
		for c := uint64(1); c <= 4; c++ {
			b := put(t, l, testLane, c, bytes.Repeat([]byte("x"), 900<<10))
			commit(t, l, testLane, b.Seq)
		}
		waitFor(t, l, func(Stat) bool { return slices.Equal(seqs(l.Batches(testLane)), []uint64{4}) })
	})
}

// TestDroppedWhileRead: a batch that is read is not dropped.
func TestDroppedWhileRead(t *testing.T) {
	opts := small
	opts.Retain = -1
	l := mustOpen(t, t.TempDir(), opts)
	put(t, l, testLane, 1, slices.Repeat([][]byte{make([]byte, 300<<10)}, 10)...)
	n := 0
	for b, err := range l.Blocks(testLane, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			commit(t, l, testLane, 1)
			put(t, l, "sink/other", 2, make([]byte, 900<<10))
		}
		n += b.Len()
	}
	if n != 10 {
		t.Errorf("%d records", n)
	}
	waitFor(t, l, func(Stat) bool { return len(l.Batches(testLane)) == 0 })
}

// TestDamagedLane: a lane that may have lost batches takes no records, the others
// do, and Reset heals it.
func TestDamagedLane(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, small)
	put(t, l, "s/a", 1, slices.Repeat([][]byte{make([]byte, 100<<10)}, 30)...) // three generations
	put(t, l, "s/b", 2, []byte("b"))
	put(t, l, "s/a", 3, []byte("later"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files := &badgerDirs{dir: dir, generation: 1 << 20, log: quiet}
	numbers, err := files.list()
	if err != nil || len(numbers) < 3 {
		t.Fatal(numbers, err)
	}
	if err := files.drop(numbers[0]); err != nil { // somebody removed a directory
		t.Fatal(err)
	}
	l = mustOpen(t, dir, small)
	var d *Damage
	for _, err := range l.Blocks("s/a", 1) {
		if err != nil && !errors.As(err, &d) {
			t.Fatal(err)
		}
	}
	if d == nil || d.Generation != numbers[0] || d.Lane != "s/a" || d.Seq != 1 || d.Checkpoint != 1 || d.Block != 0 {
		t.Errorf("damage %+v", d)
	}
	if got := readBatch(t, l, "s/b", 1); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the other lane: %q", got)
	}
	found := 0
	for err := range l.Verify(t.Context()) {
		if !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		found++
	}
	if found == 0 {
		t.Error("verify finds nothing")
	}
	head, _, _ := l.Head("s/a")
	if err := l.Reset("s/a", head); err != nil {
		t.Fatal(err)
	}
	put(t, l, "s/a", 4, []byte("new"))
	wantBatches(t, l, "s/a", 3)
}

// TestForeignDirectory: a directory of something else is left as it is. What a crash
// of the first Open, or a mount, leaves is no such thing.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"LOCK", "FORMAT.new", "lost+found"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckDir(dir); err != nil {
			t.Errorf("with %s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{Logger: quiet}); !errors.Is(err, ErrForeign) {
		t.Fatalf("got %v, want ErrForeign", err)
	}
	if s, err := os.Stat(dir); err != nil || s.Mode().Perm() != 0o755 {
		t.Errorf("the directory is %v now, %v", s.Mode(), err)
	}
}

// What Truncate forgets does not count as sealed any more, also if the state of a
// caller who was told that it is sealed comes back.
func TestTruncatedIsNotSealed(t *testing.T) {
	l := mustOpen(t, t.TempDir(), small)
	appendSeal(t, l, testLane, 1, "a")
	if err := l.Complete(1, []byte("p")); err != nil {
		t.Fatal(err)
	}
	appendSeal(t, l, testLane, 2, "b")
	if err := l.SealDone(2); err != nil {
		t.Fatal(err)
	}
	if err := l.Truncate(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if first, last := l.Sealed(); first != 0 || last != 0 {
			t.Errorf("sealed are %d to %d", first, last)
		}
		if n, pos := l.Completed(); n != 1 || string(pos) != "p" {
			t.Errorf("completed is %d at %q", n, pos)
		}
		l = reopen(t, l)
	}
	for n := uint64(3); n <= 5; n++ {
		appendSeal(t, l, testLane, n, "c")
		if err := l.SealDone(n); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // 2 was forgotten
		if first, last := l.Sealed(); first != 3 || last != 5 {
			t.Errorf("sealed are %d to %d, want 3 to 5", first, last)
		}
		l = reopen(t, l)
	}
}
