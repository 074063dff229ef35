package options_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/file"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/sources"
	"github.com/walsink/walsink/wal"
)

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// run takes the input through a pipeline whose options the seed draws.
func run(t *testing.T, r *rand.Rand, input []string, sink sinks.Sink) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	p := &pipeline.Pipeline{
		Sources: []pipeline.Input{{Name: "lines", Source: sources.Lines(input...)}},
		Lanes:   pick(r, 1, 2, 7), Route: pick(r, pipeline.Route{}, pipeline.ByField("key")), OpenBytes: pick[uint64](r, 0, 5000),
		Checkpoints: checkpoint.Options{
			Records: pick[uint64](r, 0, 7, 100), Interval: pick(r, 20*time.Millisecond, time.Second), MaxConcurrent: pick(r, 1, 3),
		},
		Logger: quiet,
	}
	if r.IntN(2) == 0 {
		p.Storage = &checkpoint.Memory{Retain: 2}
	}
	opts := walsink.Options{
		Dir: filepath.Join(t.TempDir(), "log"), ID: "job", Logger: quiet, CarryEvery: pick[uint64](r, 1, 100),
		Log: wal.Options{
			GenerationBytes: pick[int64](r, 1<<20, 4<<20), MaxBytes: pick[int64](r, 32<<20, 1<<30), Retain: pick(r, -1, time.Hour),
		},
		Flush: committer.Options{
			FlushBytes: pick[int64](r, 0, 10_000), FlushAge: pick(r, 0, time.Millisecond), StepBytes: pick[int64](r, 0, 1, 3000),
		},
	}
	p.Outputs = []pipeline.Sink{pipeline.Walsink("output", sink, opts, file.Line)}
	t.Logf("lanes %d, %v, checkpoints %+v, %+v, flush %+v", p.Lanes, p.Route, p.Checkpoints, opts.Log, opts.Flush)
	if sum, err := p.Run(t.Context()); err != nil || sum.Records != uint64(len(input)) {
		t.Fatalf("%d records: %v", sum.Records, err)
	}
}

// parts reads all parts of a directory.
func parts(t *testing.T, dir string) (rows []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "job+*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		var from io.Reader = f
		switch filepath.Ext(name) {
		case ".gz":
			from, err = gzip.NewReader(f)
		case ".zst":
			var d *zstd.Decoder
			if d, err = zstd.NewReader(f); err == nil {
				defer d.Close()
				from = d
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(from)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows = append(rows, slices.Collect(strings.Lines(string(b)))...)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// TestSameRowsUnderAllOptions draws options, memory and files in turn.
func TestSameRowsUnderAllOptions(t *testing.T) {
	seeds := uint64(6)
	switch {
	case os.Getenv("WALSINK_CAMPAIGN") != "":
		seeds = 1000
	case testing.Short():
		seeds = 2
	}
	var input, want []string
	for n := range 300 {
		line := fmt.Sprintf(`{"key":"k%d","n":%d,"pad":%q}`, n*n%13, n, strings.Repeat("x", n%40))
		input, want = append(input, line), append(want, line+"\n")
	}
	slices.Sort(want)
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var got []string
			if seed%2 == 0 {
				store := memory.NewStore()
				mopts := memory.Options{StepBytes: pick[int64](r, 0, 500), Chunked: r.IntN(2) == 0, Pin: r.IntN(2) == 0}
				run(t, r, input, memory.Open(store, mopts))
				for i := range 7 {
					for _, rec := range store.Records(sinks.LaneID{Sink: "job", Lane: fmt.Sprintf("%03d", i)}) {
						got = append(got, string(rec))
					}
				}
			} else {
				dir := filepath.Join(t.TempDir(), "out")
				out, err := file.Open(dir, file.Options{
					Format: pick(r, "ndjson", "raw"), Compress: pick(r, "", "gzip", "zstd"), MaxPartBytes: pick[int64](r, 0, 2000),
					StepBytes: pick[int64](r, 0, 1000), KeepAudit: pick(r, 0, 1),
				})
				if err != nil {
					t.Fatal(err)
				}
				run(t, r, input, out)
				got = parts(t, dir)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%d rows, want %d, each once", len(got), len(want))
			}
		})
	}
}
