package wal

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir) // see kill_test.go
		return
	}
	// A Badger that panics while it opens damaged files, or on a full disk, leaves these
	// behind; one that is open and was forgotten has others.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).updateSize"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).flushMemtable"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4/y.(*WaterMark).process"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"))
}

const testLane = "sink/lane"

func mustOpen(t testing.TB, dir string, opts Options) *Log {
	t.Helper()
	l, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func mustLane(t testing.TB, l *Log, name string) *Lane {
	t.Helper()
	ln, err := l.Lane(name)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// readBatch returns the records of a batch as strings.
func readBatch(t testing.TB, l *Log, lane string, seq uint64) []string {
	t.Helper()
	var recs []string
	for b, err := range l.Blocks(lane, seq) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.All() {
			recs = append(recs, string(r))
		}
	}
	return recs
}

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, MaxBytes: 1 << 30})
	ln := mustLane(t, l, testLane)
	n := 0
	for c := range 5 {
		for range 20000 {
			if err := ln.Append(context.Background(), fmt.Appendf(nil, "record %090d", n)); err != nil {
				t.Fatal(err)
			}
			n++
		}
		b, ok, err := ln.Seal(uint64(c+1), []byte("pos"), "f", false)
		if err != nil || !ok || b.Records != 20000 {
			t.Fatal(b, ok, err)
		}
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Complete(4, nil); err != nil {
		t.Fatal(err)
	}
	check := func(l *Log) {
		t.Helper()
		bs := l.Batches(testLane)
		if len(bs) != 4 {
			t.Fatalf("%d batches", len(bs))
		}
		i := 0
		for _, b := range bs {
			for _, r := range readBatch(t, l, testLane, b.Seq) {
				if want := fmt.Sprintf("record %090d", i); r != want {
					t.Fatalf("got %q want %q", r, want)
				}
				i++
			}
		}
	}
	check(l)
	t.Logf("%+v", l.Stat())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, Options{GenerationBytes: 1 << 20})
	check(l)
	t.Logf("%+v", l.Stat())
	if err := l.Truncate(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
