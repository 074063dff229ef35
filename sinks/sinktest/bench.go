package sinktest

import (
	"fmt"
	"testing"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// Bench measures the calls of a sink: Flush by the number of records in a step,
// beside "Steps", which makes and reads the same steps without a sink, and Mark
// and Acquire.
func Bench(b *testing.B, h Harness) {
	for _, n := range []int{1, 100, 10_000} {
		name := fmt.Sprintf("records=%d", n)
		b.Run("Steps/"+name, func(b *testing.B) { benchSteps(b, h, n, nil) })
		b.Run("Flush/"+name, func(b *testing.B) {
			e := newEnv(b, h, testCase{name: "Flush"})
			benchSteps(b, h, n, e.tape("main").acquire())
		})
	}
	b.Run("Mark", func(b *testing.B) {
		o := newEnv(b, h, testCase{name: "Mark"}).tape("main").acquire()
		for b.Loop() {
			if _, err := o.lane.Mark(o.ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Acquire", func(b *testing.B) {
		e := newEnv(b, h, testCase{name: "Acquire"})
		s := e.open()
		for b.Loop() {
			l, _, err := s.Acquire(e.ctx, sinks.LaneID{Sink: e.sink, Lane: "main"})
			if err != nil {
				b.Fatal(err)
			}
			closing(b, "lane", l.Close)
		}
	})
}

// benchSteps makes steps of n records of about 100 bytes and flushes them, or only
// reads them if there is no owner.
func benchSteps(b *testing.B, h Harness, n int, o *owner) {
	e := newEnv(b, h, testCase{name: "Steps"})
	t := e.tape("main")
	if o != nil {
		t = o.tape
	}
	mark := t.mark(place{})
	made := 0
	for b.Loop() {
		st := t.benchStep(mark, n, &made)
		if o == nil {
			read := int64(0)
			for r, err := range st.Runs {
				if err != nil {
					b.Fatal(err)
				}
				read += int64(r.Block.Len())
			}
			if read != st.Records {
				b.Fatalf("%d records, want %d", read, st.Records)
			}
		} else if _, err := o.lane.Flush(o.ctx, st); err != nil {
			b.Fatal(err)
		}
		mark = st.Next
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "records/s")
}

// benchStep is one batch of n records in runs of 1,000 on top of a mark.
func (t *tape) benchStep(prev sinks.Mark, n int, made *int) *sinks.Step {
	var blocks []record.Block
	h := record.NewHasher()
	for at := 0; at < n; at += 1000 {
		var recs [][]byte
		for range min(1000, n-at) {
			*made++
			recs = append(recs, t.h.encode(t.id, fmt.Appendf(nil, "%080d", *made)))
		}
		block := record.BlockOf(recs...)
		h.Add(block)
		blocks = append(blocks, block)
	}
	batch := record.Batch{
		Seq: prev.Seq + 1, Checkpoint: prev.Checkpoint + 1, Prev: prev.Chain, Records: h.Records(), Bytes: h.Bytes(),
		Digest: h.Sum(), Position: fmt.Append(nil, *made), Format: t.info.Format,
	}
	st := &sinks.Step{ID: t.id, Prev: prev, Next: prev, Batches: []sinks.Audit{{Batch: batch}}, Records: int64(n), Bytes: int64(batch.Bytes)}
	head := batch.Head()
	st.Next.Seq, st.Next.Chain, st.Next.Checkpoint, st.Next.Position = head.Seq, head.Chain, head.Checkpoint, head.Position
	st.Next.Records += uint64(n)
	st.Runs = func(yield func(sinks.Run, error) bool) {
		first := uint64(0)
		for _, block := range blocks {
			if !yield(sinks.Run{First: first, Block: block}, nil) {
				return
			}
			first += uint64(block.Len())
		}
	}
	return st
}
