package file

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// BenchmarkFlush writes the same NDJSON blocks of 256 KiB by a plain buffered writer
// with fsync, rename and fsync of the directory, and by the sink.
func BenchmarkFlush(b *testing.B) {
	for _, size := range []int{1 << 20, 16 << 20, 64 << 20} {
		blocks := benchBlocks(size)
		for _, how := range []struct {
			name  string
			flush func(b *testing.B, dir string, blocks []record.Block)
		}{{"plain", benchPlain}, {"sink", benchSink}} {
			b.Run(fmt.Sprintf("%dMiB/%s", size>>20, how.name), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				how.flush(b, b.TempDir(), blocks)
			})
		}
	}
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
	for n := 0; b.Loop(); n++ {
		tmp, name := filepath.Join(dir, ".tmp"), filepath.Join(dir, fmt.Sprint(n))
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
		os.Remove(name)
	}
}

func benchSink(b *testing.B, dir string, blocks []record.Block) {
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
	for n := uint64(1); b.Loop(); n++ {
		step := stepAfter(orders, o.mark, batch{checkpoint: n})
		step.Runs, step.Records = runs, records
		if _, err := o.lane.Flush(b.Context(), step); err != nil {
			b.Fatal(err)
		}
		o.mark = step.Next
		os.Remove(filepath.Join(dir, fmt.Sprintf("orders+main+%020d+00000.ndjson", n)))
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
