package wal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestQ04Format: a newer format is refused, a missing one as well (Q12).
func TestQ04Format(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Options{Logger: quiet})
	put(t, l, testLane, 1, []byte("a"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, formatName)
	for content, want := range map[string]error{"walsink log 3\n": ErrFormat, "garbage": ErrDamaged, "": ErrDamaged} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{Logger: quiet}); !errors.Is(err, want) {
			t.Errorf("format %q: %v, want %v", content, err, want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{Logger: quiet}); !errors.Is(err, ErrDamaged) {
		t.Errorf("no format: %v", err)
	}
	if err := os.WriteFile(path, []byte(format), 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, Options{Logger: quiet})
}

// TestQ10Reopen: open and close a hundred times in one process, also after an
// Open that failed; the directory does not grow, descriptors do not pile up.
func TestQ10Reopen(t *testing.T) {
	dir := t.TempDir()
	opts := Options{GenerationBytes: 1 << 20, Logger: quiet}
	n := 100
	if testing.Short() {
		n = 20
	}
	before := 0
	for i := range n {
		l, err := Open(dir, opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, opts); !errors.Is(err, ErrLocked) {
			t.Fatalf("second open: %v", err)
		}
		put(t, l, testLane, uint64(i+1), []byte("a"))
		commit(t, l, testLane, uint64(i))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if i == n/2 {
			before = descriptors(t)
		}
	}
	if after := descriptors(t); after > before+2 {
		t.Errorf("%d open descriptors, %d half way", after, before)
	}
	l := mustOpen(t, dir, opts)
	if head, _, _ := l.Head(testLane); head.Seq != uint64(n) {
		t.Errorf("head %d, want %d", head.Seq, n)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(files)
}

// TestQ13Sizes: every size option may change from one opening to the next.
func TestQ13Sizes(t *testing.T) {
	dir := t.TempDir()
	sizes := []Options{
		{GenerationBytes: 1 << 20}, {GenerationBytes: 16 << 20}, {GenerationBytes: 2 << 20, MaxBytes: 64 << 20},
		{}, {GenerationBytes: 512 << 20}, {MaxBytes: 4 << 20}, {RetainBytes: 1},
	}
	rec := make([]byte, 300<<10)
	for i, o := range sizes {
		o.Logger = quiet
		l := mustOpen(t, dir, o)
		if o.MaxBytes != 4<<20 {
			put(t, l, testLane, uint64(i+1), rec, rec)
		}
		for _, b := range l.Batches(testLane) {
			if len(readBatch(t, l, testLane, b.Seq)) != 2 {
				t.Fatalf("opening %d: batch %d", i, b.Seq)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{GenerationBytes: -1}, {MaxBytes: 1000}, {GenerationBytes: 1 << 30}, {RetainBytes: -5}} {
		if _, err := Open(t.TempDir(), o); err == nil {
			t.Errorf("options %+v are taken", o)
		}
	}
}

// TestC110Budget: intake waits while the budget is used up, goes on when a flush
// frees something, and is refused when nothing can.
func TestC110Budget(t *testing.T) {
	opts := Options{GenerationBytes: 1 << 20, MaxBytes: 6 << 20, Retain: time.Hour, Logger: quiet}
	l := mustOpen(t, t.TempDir(), opts)
	rec := make([]byte, 64<<10)
	var appended atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { // commits what it sees, when told to
		for seq := uint64(1); ctx.Err() == nil; {
			held := l.Batches(testLane)
			if l.Stat().Waiting > 0 && len(held) > 0 && seq <= held[len(held)-1].Seq {
				if err := l.Commit(testLane, seq); err != nil {
					t.Error(err)
					return
				}
				seq++
				continue
			}
			runtime.Gosched()
		}
	})
	for c := uint64(1); c <= 40; c++ { // 20 MiB through a budget of 6
		put(t, l, testLane, c, slices.Repeat([][]byte{rec}, 8)...)
		appended.Add(8)
		if b := l.Stat().Bytes; b > opts.MaxBytes+opts.GenerationBytes {
			t.Fatalf("%d bytes are held", b)
		}
	}
	cancel()
	wg.Wait()

	// Nothing is complete: what is held can never be freed by a flush.
	ln := mustLane(t, l, "sink/open")
	head, _, _ := l.Head(testLane)
	commit(t, l, testLane, head.Seq)
	var err error
	for range 1000 {
		if err = ln.Append(t.Context(), rec); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want ErrFull", err)
	}
	if err := l.Truncate(); err != nil {
		t.Fatal(err)
	}
	if err := ln.Append(t.Context(), rec); err != nil {
		t.Errorf("append after truncate: %v", err)
	}
}

// A context that ends while Append waits ends the wait, and loses nothing.
func TestC114CancelWhileWaiting(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{GenerationBytes: 1 << 20, MaxBytes: 4 << 20, Logger: quiet})
	rec := make([]byte, 64<<10)
	c := uint64(1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		waitFor(t, l, func(s Stat) bool { return s.Waiting > 0 })
		cancel()
	})
	ln := mustLane(t, l, testLane)
	var err error
	appended := 0
	for err == nil && c < 1000 {
		for range 8 {
			if err = ln.Append(ctx, rec); err != nil {
				break
			}
			appended++
		}
		if err == nil {
			if _, _, err := ln.Seal(c, nil, "", false); err != nil {
				t.Fatal(err)
			}
			if err := l.Complete(c, nil); err != nil {
				t.Fatal(err)
			}
			c++
		}
	}
	wg.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that of the context", err)
	}
	if records, _ := ln.Pending(); int(records)+8*int(c-1) != appended {
		t.Errorf("%d records in the open batch and %d batches, appended %d", records, c-1, appended)
	}
}

// TestQ09Readers: many lanes write, are read and committed at once.
func TestQ09Concurrent(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{GenerationBytes: 1 << 20, Retain: -1, Logger: quiet})
	var ids sync.Mutex
	next := uint64(0)
	lanes := []string{"s/0", "s/1", "s/2", "s/3"}
	rounds := 12
	var wg sync.WaitGroup
	for _, name := range lanes {
		ln := mustLane(t, l, name)
		wg.Go(func() {
			for range rounds {
				seq := ln.log.tipOf(ln) + 1
				for _, r := range killRecords(name, seq) {
					if err := ln.Append(t.Context(), r); err != nil {
						t.Error(err)
						return
					}
				}
				ids.Lock() // checkpoints rise over all lanes
				next++
				c := next
				_, _, err := ln.Seal(c, nil, "", false)
				if err == nil {
					err = l.Complete(c, nil)
				}
				ids.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for done := 0; done < rounds; {
				for _, b := range l.Batches(name) {
					if int(b.Seq) <= done {
						continue
					}
					if got := readBatch(t, l, name, b.Seq); len(got) != len(killRecords(name, b.Seq)) {
						t.Errorf("%s batch %d: %d records", name, b.Seq, len(got))
					}
					if err := l.Commit(name, b.Seq); err != nil {
						t.Error(err)
					}
					done = int(b.Seq)
				}
				if t.Failed() {
					return
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	for _, name := range lanes {
		if head, committed, ok := l.Head(name); !ok || head.Seq != uint64(rounds) || committed != head.Seq {
			t.Errorf("%s: head %d, committed %d, %v", name, head.Seq, committed, ok)
		}
	}
}

func (l *Log) tipOf(ln *Lane) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ln.tip().Seq
}

func TestAppendAllocatesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	l := mustOpen(t, t.TempDir(), Options{Logger: quiet})
	ln := mustLane(t, l, testLane)
	rec := make([]byte, 100)
	gc := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(gc)
	const n = 20000
	if got := testing.AllocsPerRun(5, func() {
		for range n {
			if err := ln.Append(context.Background(), rec); err != nil {
				t.Fatal(err)
			}
		}
	}) / n; got > 0.05 { // Badger allocates for each block of 2,600 records
		t.Errorf("%.3f allocations per record", got)
	}
}
