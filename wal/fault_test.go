package wal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// A ledger is what a caller of the log was told, and must find again.
type ledger struct {
	sealed    map[string][]string // records of acknowledged batches by lane and Seq
	completed uint64
	committed map[string]uint64
}

func newLedger() *ledger {
	return &ledger{sealed: make(map[string][]string), committed: make(map[string]uint64)}
}

func batchKey(lane string, seq uint64) string { return fmt.Sprintf("%s %d", lane, seq) }

var quiet = slog.New(slog.DiscardHandler)

// script drives a log through all that it can do, two lanes and generations of
// 1 MiB, and notes in the ledger what it was told. It ends at the first error.
func script(ctx context.Context, l *Log, led *ledger) error {
	lanes := []string{"s/a", "s/b"}
	for c := uint64(1); c <= 6; c++ {
		var fresh []string
		for i, name := range lanes {
			ln, err := l.Lane(name)
			if err != nil {
				return err
			}
			key := batchKey(name, c)
			recs := scriptRecords(c, i)
			led.sealed["unacknowledged "+key] = recs
			if err := scriptBatch(ctx, ln, c, recs); err != nil {
				return err
			}
			fresh = append(fresh, key)
		}
		if err := l.Sync(); err != nil {
			return err
		}
		for _, key := range fresh {
			led.sealed[key] = led.sealed["unacknowledged "+key]
		}
		if c%2 == 1 {
			continue
		}
		if err := l.Complete(c, fmt.Append(nil, c)); err != nil {
			return err
		}
		led.completed = c
		for _, name := range lanes {
			if err := l.PutNote(name, c, []byte("note")); err != nil {
				return err
			}
			led.committed[name] = c - 1 // the store has it, whatever the log answers
			if err := l.Commit(name, c-1); err != nil {
				return err
			}
		}
	}
	return nil
}

func scriptRecords(c uint64, lane int) (recs []string) {
	for i := range 9 {
		recs = append(recs, fmt.Sprintf("%d/%d/%d/%0*d", c, lane, i, 36000, i))
	}
	return recs
}

func scriptBatch(ctx context.Context, ln *Lane, c uint64, recs []string) error {
	for _, rec := range recs {
		if err := ln.Append(ctx, []byte(rec)); err != nil {
			return err
		}
	}
	b, ok, err := ln.Seal(c, fmt.Append(nil, c), "f", false)
	if err == nil && (!ok || b.Seq != c) {
		err = fmt.Errorf("seal says batch %d, %v", b.Seq, ok)
	}
	return err
}

// verify compares an open log with what its last owner was told.
func (led *ledger) verify(t *testing.T, l *Log) {
	t.Helper()
	if s := l.Stat(); len(s.Damage) > 0 {
		t.Errorf("damage: %v", s.Damage)
	}
	if c, _ := l.Completed(); c < led.completed {
		t.Errorf("completed is %d, was told %d", c, led.completed)
	}
	c, _ := l.Completed()
	if c < 6 { // lay open what was sealed and is not completed
		if err := l.Complete(6, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, lane := range []string{"s/a", "s/b"} {
		held := make(map[uint64]bool)
		for _, b := range l.Batches(lane) {
			held[b.Seq] = true
			want, ok := led.sealed["unacknowledged "+batchKey(lane, b.Seq)]
			if got := readBatch(t, l, lane, b.Seq); !ok || !slices.Equal(got, want) {
				t.Errorf("%s batch %d is not what was written", lane, b.Seq)
			}
		}
		for seq := uint64(1); led.sealed[batchKey(lane, seq)] != nil; seq++ {
			if !held[seq] && seq > led.committed[lane] {
				t.Errorf("%s batch %d was acknowledged and is gone", lane, seq)
			}
		}
	}
}

func TestEveryOperationFailsOnce(t *testing.T) {
	for _, kind := range []struct {
		name   string
		err    error
		sticky bool
	}{{"io", errInjected, false}, {"device gone", errInjected, true}, {"no space", ErrNoSpace, true}, {"no space once", ErrNoSpace, false}} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				if n > 1000 {
					t.Fatal("no end of operations")
				}
				if done := failOnce(t, n, kind.err, kind.sticky); done {
					t.Logf("%d operations were made to fail", n-1)
					return
				}
			}
		})
	}
}

// failOnce runs the script with operation n failing, cuts the power, opens again
// and compares. It reports whether there was no operation n.
func failOnce(t *testing.T, n int, failure error, sticky bool) (done bool) {
	t.Helper()
	m := newMemory()
	m.failAt, m.failErr, m.sticky = n, failure, sticky
	dir := t.TempDir()
	opts := Options{GenerationBytes: 1 << 20, Retain: -1, Logger: quiet, backend: m}
	led := newLedger()
	l, err := Open(dir, opts)
	if err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if errors.Is(failure, ErrNoSpace) && sticky {
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		}
		err = script(ctx, l, led)
		cancel()
		cerr := l.Close()
		if cerr != nil && !errors.Is(cerr, ErrFailed) {
			t.Errorf("operation %d: Close returns %v, which is not ErrFailed", n, cerr)
		}
		if err == nil {
			err = cerr
		}
	}
	m.mu.Lock()
	ops := m.ops
	m.mu.Unlock()
	if len(ops) < n {
		return err == nil
	}
	if err != nil && !errors.Is(err, failure) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("operation %d %s: error %v does not say why", n, ops[n-1], err)
	}
	for keep := range 3 {
		defer func() {
			if t.Failed() {
				t.Logf("operation %d %s failed with %v; the script ended with %v; power cut %d; operations: %v", n, ops[n-1], failure, err, keep, ops)
			}
		}()
		left := m.powerCut(keep)
		opts.backend, opts.Retain = left, 0
		l, err := Open(dir, opts)
		if err != nil {
			t.Fatalf("operation %d %s, open again: %v", n, ops[n-1], err)
		}
		led.verify(t, l)
		if err := l.Close(); err != nil {
			t.Errorf("operation %d %s, close again: %v", n, ops[n-1], err)
		}
	}
	if t.Failed() {
		t.Fatalf("after operation %d %s failed with %v", n, ops[n-1], err)
	}
	return false
}
