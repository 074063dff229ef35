package file

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/paired"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// BenchmarkFlushRatio writes the same NDJSON blocks by a plain buffered writer with
// fsync, rename and fsync of the directory, and by the sink.
func BenchmarkFlushRatio(b *testing.B) {
	blocks := benchBlocks(16 << 20)
	dir := b.TempDir()
	flush := benchSink(b, filepath.Join(dir, "sink"), blocks)
	paired.Run(b, func() time.Duration {
		return paired.Time(func() { benchPlain(b, dir, blocks) })
	}, flush)
}

func benchBlocks(size int) (blocks []record.Block) {
	var b record.Builder
	line := []byte(`{"id":1234567,"name":"some name","amount":12.50,"day":"2024-05-01","text":"abcdefghijklmnopqrstu"}` + "\n")
	for total := 0; total < size; total += b.Size() {
		b.Reset()
		for !b.Full() {
			if err := b.Append(line); err != nil {
				panic(err)
			}
		}
		block, err := record.Decode(append([]byte(nil), b.Finish(record.NewHasher())...), record.Block{})
		if err != nil {
			panic(err)
		}
		blocks = append(blocks, block)
	}
	return blocks
}

func benchPlain(b *testing.B, dir string, blocks []record.Block) {
	tmp, name := filepath.Join(dir, ".tmp"), filepath.Join(dir, "plain")
	f, err := os.Create(tmp)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(f, bufferSize)
	for _, block := range blocks {
		_, _ = w.Write(block.Payload())
	}
	for _, step := range []func() error{w.Flush, f.Sync, f.Close, func() error { return os.Rename(tmp, name) }, func() error { return syncPath(dir) }} {
		if err := step(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchSink returns a function that flushes the blocks as the next batch.
func benchSink(b *testing.B, dir string, blocks []record.Block) func() time.Duration {
	o := acquire(b, dir, Options{})
	var records int64
	for _, block := range blocks {
		records += int64(block.Len())
	}
	runs := func(yield func(sinks.Run, error) bool) {
		first := uint64(0)
		for _, block := range blocks {
			if !yield(sinks.Run{First: first, Block: block}, nil) {
				return
			}
			first += uint64(block.Len())
		}
	}
	n := uint64(0)
	return func() time.Duration {
		n++
		step := stepAfter(orders, o.mark, batch{checkpoint: n})
		step.Runs, step.Records = runs, records
		took := paired.Time(func() {
			if _, err := o.lane.Flush(b.Context(), step); err != nil {
				b.Fatal(err)
			}
		})
		o.mark = step.Next
		if err := os.Remove(filepath.Join(dir, fmt.Sprintf("orders+main+%020d+00000.ndjson", n))); err != nil {
			b.Fatal(err)
		}
		return took
	}
}

func BenchmarkEncoder(b *testing.B) {
	line := []byte(`{"id":1234567,"name":"some name","amount":12.50,"day":"2024-05-01","text":"abcdefghijklmnopqrstu"}`)
	for _, opts := range []Options{{}, {BucketField: "day"}} {
		b.Run("field="+opts.BucketField, func(b *testing.B) {
			e := mustEncoder(b, opts)
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst, _ = e.Append(dst[:0], line)
			}
		})
	}
}

// BenchmarkBuckets flushes 20,000 records of 100 bytes to 500 parts.
func BenchmarkBuckets(b *testing.B) {
	o := acquire(b, b.TempDir(), Options{Buckets: true})
	src := bucketSource(1, 20_000, 500)
	for n := uint64(1); b.Loop(); n++ {
		step := stepAfter(orders, o.mark, batch{n, src[0].recs})
		if _, err := o.lane.Flush(b.Context(), step); err != nil {
			b.Fatal(err)
		}
		o.mark = step.Next
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N)/500, "ms/part")
}
