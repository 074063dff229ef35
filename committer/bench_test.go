package committer_test

import (
	"bytes"
	"context"
	"iter"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A nullSink reads steps and keeps the mark, nothing else.
type nullSink struct {
	mark sinks.Mark
	info sinks.Info
	use  func(record.Block)
}

func (s *nullSink) Info() sinks.Info { return s.info }
func (s *nullSink) Close() error     { return nil }

func (s *nullSink) Acquire(_ context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	if s.mark.Fence == 0 {
		s.mark.Chain = id.Genesis()
	}
	s.mark.Fence++
	return nullLane{s}, s.mark, nil
}

type nullLane struct{ s *nullSink }

func (l nullLane) Close() error                             { return nil }
func (l nullLane) Mark(context.Context) (sinks.Mark, error) { return l.s.mark, nil }

func (l nullLane) Flush(_ context.Context, step *sinks.Step) (sinks.Result, error) {
	for run, err := range step.Runs {
		if err != nil {
			return sinks.Result{}, err
		}
		l.s.use(run.Block)
	}
	l.s.mark = step.Next
	return sinks.Result{}, nil
}

// A benchLog holds one batch, decoded, that it shows under ever new numbers.
type benchLog struct {
	*fakeLog
	blocks []record.Block
}

func newBenchLog(tb testing.TB, blocks int) (*benchLog, fakeBatch) {
	rec := bytes.Repeat([]byte("x"), 100)
	b, h := fakeBatch{}, record.NewHasher()
	l := &benchLog{fakeLog: newLog()}
	for range blocks {
		var builder record.Builder
		for !builder.Full() {
			if err := builder.Append(rec); err != nil {
				tb.Fatal(err)
			}
		}
		data := bytes.Clone(builder.Finish(h))
		block, err := record.Decode(data, record.Block{})
		if err != nil {
			tb.Fatal(err)
		}
		l.blocks = append(l.blocks, block)
	}
	b.Format, b.Records, b.Bytes, b.Digest = "bytes", h.Records(), h.Bytes(), h.Sum()
	return l, b
}

func (l *benchLog) Blocks(string, uint64) iter.Seq2[record.Block, error] {
	return func(yield func(record.Block, error) bool) {
		for _, b := range l.blocks {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// next completes the batch once more.
func (l *benchLog) next(b fakeBatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.lane(key)
	b.Seq, b.Checkpoint, b.Prev = lane.head.Seq+1, lane.head.Seq+1, lane.head.Chain
	lane.sealed, lane.complete, lane.head = []fakeBatch{b}, 1, b.Head()
}

// flushBench flushes the same 16 MiB again and again.
func flushBench(b *testing.B, info sinks.Info) {
	log, batch := newBenchLog(b, 64)
	info.Format = "bytes"
	var seen int
	c, err := committer.New(&nullSink{info: info, use: func(bl record.Block) { seen += len(bl.Payload()) }}, sinkID, log, committer.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Open(b.Context(), "a"); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(batch.Bytes))
	b.ReportAllocs()
	for b.Loop() {
		log.next(batch)
		c.Notify()
		if err := c.Drain(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(batch.Records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// The baseline is the log read and hashed, without an engine.
func BenchmarkFlush(b *testing.B) {
	b.Run("baseline", func(b *testing.B) {
		log, batch := newBenchLog(b, 64)
		b.SetBytes(int64(batch.Bytes))
		b.ReportAllocs()
		for b.Loop() {
			h := record.NewHasher()
			for block := range log.Blocks("", 1) {
				h.Add(block)
			}
			if h.Sum() != batch.Digest {
				b.Fatal("digest")
			}
		}
		b.ReportMetric(float64(batch.Records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
	b.Run("whole", func(b *testing.B) { flushBench(b, sinks.Info{}) })
	b.Run("chunks=1MiB", func(b *testing.B) { flushBench(b, sinks.Info{StepBytes: 1 << 20, Chunked: true}) })
}

// Small batches: what one step costs.
func BenchmarkStep(b *testing.B) {
	log, _ := newBenchLog(b, 0)
	small := build(record.Head{}, 1, 3, "x")
	log.blocks = []record.Block{record.BlockOf([]byte("x"))}
	c, err := committer.New(&nullSink{info: sinks.Info{Format: "bytes"}, use: func(record.Block) {}}, sinkID, log, committer.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Open(b.Context(), "a"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		log.next(small)
		c.Notify()
		if err := c.Drain(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// A flush takes no memory per record.
func TestFlushAllocatesNothingPerRecord(t *testing.T) {
	for _, info := range []sinks.Info{{}, {StepBytes: 1 << 20, Chunked: true}} {
		log, batch := newBenchLog(t, 64)
		info.Format = "bytes"
		c, err := committer.New(&nullSink{info: info, use: func(record.Block) {}}, sinkID, log, committer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Open(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		n := testing.AllocsPerRun(5, func() {
			log.next(batch)
			c.Notify()
			if err := c.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if per := n / float64(batch.Records); per > 0.01 {
			t.Errorf("%v allocations per record", per)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
