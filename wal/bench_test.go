package wal

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// BenchmarkAppendRatio runs both in turn and reports the ratio of their rates.
func BenchmarkAppendRatio(b *testing.B) {
	const n = 2_000_000
	var log, plain time.Duration
	for b.Loop() {
		start := time.Now()
		plainFile(b, filepath.Join(b.TempDir(), "plain"), n)
		plain += time.Since(start)
		l := mustOpen(b, b.TempDir(), Options{Retain: -1})
		start = time.Now()
		appendRecords(b, l, n)
		log += time.Since(start)
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(plain.Seconds()/log.Seconds(), "ratio")
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
