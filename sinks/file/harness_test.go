package file

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

var orders = sinks.LaneID{Sink: "orders", Lane: "main"}

// batch is what a test puts into a lane under one checkpoint.
type batch struct {
	checkpoint uint64
	recs       []string
}

func lines(checkpoint uint64, recs ...string) batch {
	b := batch{checkpoint: checkpoint}
	for _, r := range recs {
		b.recs = append(b.recs, r+"\n")
	}
	return b
}

func inBucket(bucket, rec string) string {
	return string([]byte{byte(len(bucket))}) + bucket + rec + "\n"
}

// stepAfter builds the step that the engine would build from the batches after a
// mark. Runs yields blocks of at most five records.
func stepAfter(id sinks.LaneID, prev sinks.Mark, batches ...batch) *sinks.Step {
	step := &sinks.Step{ID: id, Prev: prev, Next: prev}
	head := prev.Head()
	for _, b := range batches {
		h := record.NewHasher()
		for _, r := range b.recs {
			h.Add(record.BlockOf([]byte(r)))
		}
		rb := record.Batch{
			Seq: head.Seq + 1, Checkpoint: b.checkpoint, Prev: head.Chain,
			Records: h.Records(), Bytes: h.Bytes(), Digest: h.Sum(), Position: fmt.Appendf(nil, "after %d", b.checkpoint),
		}
		head = rb.Head()
		step.Batches = append(step.Batches, sinks.Audit{Batch: rb})
		step.Records += int64(rb.Records)
		step.Bytes += int64(rb.Bytes)
	}
	n := &step.Next
	n.Seq, n.Chain, n.Checkpoint, n.Position = head.Seq, head.Chain, head.Checkpoint, head.Position
	n.Records += uint64(step.Records)
	step.Runs = runsOf(batches)
	return step
}

func runsOf(batches []batch) iter.Seq2[sinks.Run, error] {
	return func(yield func(sinks.Run, error) bool) {
		for i, b := range batches {
			first := uint64(0)
			for some := range slices.Chunk(b.recs, 5) {
				recs := make([][]byte, len(some))
				for k, r := range some {
					recs[k] = []byte(r)
				}
				if !yield(sinks.Run{Batch: i, First: first, Block: record.BlockOf(recs...)}, nil) {
					return
				}
				first += uint64(len(some))
			}
		}
	}
}

// A lane under test, with the mark that its owner believes in.
type owner struct {
	t    testing.TB
	sink *Sink
	lane sinks.Lane
	mark sinks.Mark
}

func open(t testing.TB, dir string, opts Options) *Sink {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func acquire(t testing.TB, dir string, opts Options) *owner {
	t.Helper()
	s := open(t, dir, opts)
	l, m, err := s.Acquire(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	return &owner{t, s, l, m}
}

// try flushes one step of the batches and, if that works, believes in its mark.
func (o *owner) try(batches ...batch) error {
	step := stepAfter(orders, o.mark, batches...)
	_, err := o.lane.Flush(context.Background(), step)
	if err == nil {
		o.mark, err = o.lane.Mark(context.Background())
	}
	return err
}

func (o *owner) flush(batches ...batch) {
	o.t.Helper()
	if err := o.try(batches...); err != nil {
		o.t.Fatal(err)
	}
}

// visible returns the contents of all parts by path, decompressed.
func visible(t testing.TB, dir string) map[string]string {
	t.Helper()
	parts := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == hidden:
			return fs.SkipDir
		case d.IsDir() || strings.HasPrefix(d.Name(), "lost+found"):
			return nil
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		parts[rel] = decompress(t, name, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// decompress wants exactly one stream, without a byte after it.
func decompress(t testing.TB, name string, data []byte) string {
	t.Helper()
	in := bytes.NewReader(data)
	var r io.Reader = in
	switch filepath.Ext(name) {
	case ".gz":
		z, err := gzip.NewReader(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		z.Multistream(false)
		r = z
	case ".zst":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer z.Close()
		r = z
	}
	out, err := io.ReadAll(r)
	if err != nil || in.Len() != 0 {
		t.Fatalf("%s: %v, %d bytes after the stream", name, err, in.Len())
	}
	return string(out)
}

// concat is the sorted concatenation of all parts.
func concat(t testing.TB, dir string) string {
	t.Helper()
	parts := visible(t, dir)
	var b strings.Builder
	for _, name := range sortedKeys(parts) {
		b.WriteString(parts[name])
	}
	return b.String()
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func wantConcat(t testing.TB, dir, want string) {
	t.Helper()
	if got := concat(t, dir); got != want {
		t.Fatalf("the parts hold %d bytes, want %d:\n%.400q\nwant\n%.400q", len(got), len(want), got, want)
	}
}

func wantKind(t testing.TB, err error, want sinks.Kind) {
	t.Helper()
	if got := sinks.KindOf(err); got != want {
		t.Fatalf("error %v is %s, want %s", err, got, want)
	}
}

// staging returns the names below the lane's stage directory.
func staging(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, laneDir(orders.Sink, orders.Lane), "stage"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func manifests(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, laneDir(orders.Sink, orders.Lane), "log", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestMain(m *testing.M) {
	if job := os.Getenv("FILE_TEST_CHILD"); job != "" {
		child(job)
	}
	goleak.VerifyTestMain(m)
}

// wantBuckets wants the records of each bucket in order, and no others.
func wantBuckets(t *testing.T, dir string, src source) {
	t.Helper()
	got, want := bucketsIn(t, dir), src.buckets(t)
	if len(got) != len(want) {
		t.Errorf("%d buckets, want %d", len(got), len(want))
	}
	for bucket, text := range want {
		if got[bucket] != text {
			t.Errorf("bucket %s holds %.200q, want %.200q", bucket, got[bucket], text)
		}
	}
}

// buckets returns the records of each bucket.
func (s source) buckets(t testing.TB) map[string]string {
	t.Helper()
	recs := map[string][]byte{}
	for _, b := range s {
		for _, r := range b.recs {
			name, rec, err := splitBucket([]byte(r))
			if err != nil {
				t.Fatal(err)
			}
			recs[string(name)] = append(recs[string(name)], rec...)
		}
	}
	text := map[string]string{}
	for name, all := range recs {
		text[name] = string(all)
	}
	return text
}

// bucketsIn returns the sorted concatenation of the parts of each bucket.
func bucketsIn(t testing.TB, dir string) map[string]string {
	t.Helper()
	text := map[string]string{}
	parts := visible(t, dir)
	for _, name := range sortedKeys(parts) {
		bucket, _, _ := strings.Cut(name, "/")
		text[bucket] += parts[name]
	}
	return text
}
