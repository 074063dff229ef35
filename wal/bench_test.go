package wal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/walsink/walsink/internal/paired"
)

const (
	benchRecord = 100
	benchSync   = 500_000
)

var benchRec = func() []byte {
	b := make([]byte, benchRecord)
	for i := range b {
		b[i] = byte('a' + i%26)
	}
	return b
}()

// BenchmarkAppend appends records of 100 bytes with a durable seal each 500,000.
func BenchmarkAppend(b *testing.B) {
	l := mustOpen(b, b.TempDir(), Options{Retain: -1})
	appendRecords(b, l, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func appendRecords(b *testing.B, l *Log, n int) {
	ln := mustLane(b, l, testLane)
	ctx := context.Background()
	checkpoint := uint64(1)
	for i := range n {
		if err := ln.Append(ctx, benchRec); err != nil {
			b.Fatal(err)
		}
		if (i+1)%benchSync == 0 || i+1 == n {
			sealed, _, err := ln.Seal(checkpoint, nil, "", false)
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Complete(checkpoint, nil); err != nil {
				b.Fatal(err)
			}
			if err := l.Commit(testLane, sealed.Seq); err != nil {
				b.Fatal(err)
			}
			checkpoint++
		}
	}
}

// BenchmarkPlainFile is the limit: the same records and syncs, a buffered file.
func BenchmarkPlainFile(b *testing.B) {
	plainFile(b, filepath.Join(b.TempDir(), "plain"), b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func plainFile(b *testing.B, path string, n int) {
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 256<<10)
	for i := range n {
		if _, err := w.Write(benchRec); err != nil {
			b.Fatal(err)
		}
		if (i+1)%benchSync == 0 || i+1 == n {
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkAppendRatio is both by turns.
func BenchmarkAppendRatio(b *testing.B) {
	const n = 2_000_000
	dir := b.TempDir()
	paired.Run(b, func() time.Duration {
		path := filepath.Join(dir, "plain")
		defer os.Remove(path)
		return paired.Time(func() { plainFile(b, path, n) })
	}, func() time.Duration {
		return withLog(b, dir, func(l *Log) { appendRecords(b, l, n) })
	})
}

// withLog is how long fn takes with a fresh log.
func withLog(b *testing.B, dir string, fn func(l *Log)) time.Duration {
	state := filepath.Join(dir, "state")
	l := mustOpen(b, state, Options{Retain: -1})
	took := paired.Time(func() { fn(l) })
	if err := errors.Join(l.Close(), os.RemoveAll(state)); err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkLanes appends the same records to one lane and to sixteen, with as many
// checkpoints: one each 10,000 records of a lane.
func BenchmarkLanes(b *testing.B) {
	const rounds, perLane, lanes = 20, 10_000, 16
	dir := b.TempDir()
	run := func(lanes, perLane int) time.Duration {
		return withLog(b, dir, func(l *Log) {
			for c := range uint64(rounds) {
				checkpointLanes(b, l, c+1, lanes, perLane)
			}
		})
	}
	paired.Run(b, func() time.Duration { return run(1, lanes*perLane) }, func() time.Duration { return run(lanes, perLane) })
}

// checkpointLanes appends to lanes at the same time and takes a checkpoint.
func checkpointLanes(b *testing.B, l *Log, checkpoint uint64, lanes, perLane int) {
	var tasks errgroup.Group
	seqs := make([]uint64, lanes)
	for i := range lanes {
		ln := mustLane(b, l, fmt.Sprintf("bench/%03d", i))
		tasks.Go(func() error {
			for range perLane {
				if err := ln.Append(b.Context(), benchRec); err != nil {
					return err
				}
			}
			sealed, _, err := ln.Seal(checkpoint, nil, "", false)
			seqs[i] = sealed.Seq
			return err
		})
	}
	err := tasks.Wait()
	if err == nil {
		err = l.Complete(checkpoint, nil)
	}
	for i, seq := range seqs {
		if err == nil {
			err = l.Commit(fmt.Sprintf("bench/%03d", i), seq)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMemory appends ten million records in one checkpoint and reports the
// memory of the process: what is its own, and all with the mapped files, which
// the kernel can take back at any time.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		l := mustOpen(b, b.TempDir(), Options{Retain: -1})
		ln := mustLane(b, l, testLane)
		var anon, all int64
		for i := range 10_000_000 {
			if err := ln.Append(b.Context(), benchRec); err != nil {
				b.Fatal(err)
			}
			if i%100_000 == 0 {
				a, f := residentMemory(b)
				anon, all = max(anon, a), max(all, a+f)
			}
		}
		if _, _, err := ln.Seal(1, nil, "", false); err != nil {
			b.Fatal(err)
		}
		if err := l.Sync(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(anon>>20), "anon-MiB")
		b.ReportMetric(float64(all>>20), "rss-MiB")
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// residentMemory returns the resident bytes of the process, anonymous and mapped.
func residentMemory(b *testing.B) (anon, file int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			anon = kib << 10
		}
		if n, _ := fmt.Sscanf(line, "RssFile: %d kB", &kib); n == 1 {
			file = kib << 10
		}
	}
	return anon, file
}
