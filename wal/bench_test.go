package wal

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
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
