package telemetry

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
)

// What is remembered of the spans that appended.
const (
	maxOfBatch = 16
	maxOfStep  = 128
	maxBatches = 1024
)

// spans makes the spans of an output.
type spans struct {
	tracer trace.Tracer
	output string

	mu    sync.RWMutex
	lanes map[string]*laneSpans
}

// laneSpans are those of a lane.
type laneSpans struct {
	mu     sync.Mutex
	open   []trace.SpanContext // that appended to the open batch
	sealed []batchSpans        // of batches not in the store, in order
	flush  trace.Span          // of the step under way, or nil
}

type batchSpans struct {
	seq  uint64
	from []trace.SpanContext
}

func (s *spans) init(t trace.Tracer, output string) {
	s.tracer, s.output, s.lanes = t, output, map[string]*laneSpans{}
}

func (s *spans) observer() committer.Observer {
	return committer.Observer{Flushing: s.flushing, Flushed: s.flushed, Retrying: s.retrying}
}

func (s *spans) lane(name string) *laneSpans {
	s.mu.RLock()
	l := s.lanes[name]
	s.mu.RUnlock()
	if l != nil {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.lanes[name]; l == nil {
		l = new(laneSpans)
		s.lanes[name] = l
	}
	return l
}

// appended remembers the span of ctx for the open batch, once.
func (s *spans) appended(ctx context.Context, lane string) {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsSampled() {
		return
	}
	l := s.lane(lane)
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(o trace.SpanContext) bool { return o.SpanID() == sc.SpanID() && o.TraceID() == sc.TraceID() }
	if len(l.open) < maxOfBatch && !slices.ContainsFunc(l.open, same) {
		l.open = append(l.open, sc)
	}
}

func (s *spans) sealed(lane string, b record.Batch) {
	l := s.lane(lane)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) > 0 && len(l.sealed) < maxBatches {
		l.sealed = append(l.sealed, batchSpans{b.Seq, slices.Clone(l.open)})
	}
	l.open = l.open[:0]
}

// links are to the spans that appended to batches from first to last.
func (l *laneSpans) links(first, last uint64) (links []trace.Link) {
	for _, b := range l.sealed {
		if b.seq < first || b.seq > last {
			continue
		}
		for _, sc := range b.from {
			if len(links) < maxOfStep {
				links = append(links, trace.Link{SpanContext: sc})
			}
		}
	}
	return links
}

func (s *spans) flushing(ctx context.Context, lane string, step committer.StepInfo) (context.Context, func(error)) {
	l := s.lane(lane)
	l.mu.Lock()
	links := l.links(step.First, step.Last)
	l.mu.Unlock()
	ctx, span := s.tracer.Start(ctx, "walsink flush", trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links...),
		trace.WithAttributes(
			attribute.String("walsink.output", s.output), attribute.String("walsink.lane", lane),
			attribute.Int64("walsink.checkpoint", int64(step.Checkpoint)),
			attribute.Int64("walsink.batch.first", int64(step.First)), attribute.Int64("walsink.batch.last", int64(step.Last)),
		))
	l.mu.Lock()
	l.flush = span
	l.mu.Unlock()
	return ctx, func(err error) {
		l.mu.Lock()
		l.flush = nil
		l.mu.Unlock()
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// under returns the span of the step under way, if there is one.
func (l *laneSpans) under() trace.Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flush
}

func (s *spans) flushed(lane string, step committer.StepInfo, _ time.Duration) {
	l := s.lane(lane)
	if step.Batches > 0 {
		l.mu.Lock()
		l.sealed = slices.DeleteFunc(l.sealed, func(b batchSpans) bool { return b.seq <= step.Last })
		l.mu.Unlock()
	}
	span, p := l.under(), step.Phases
	if span == nil {
		return
	}
	span.SetAttributes(
		attribute.Int64("walsink.records", step.Records), attribute.Int64("walsink.bytes", step.Bytes),
		attribute.Int64("walsink.dead", step.Dead), attribute.Bool("walsink.settled", step.Settled),
		attribute.Float64("walsink.read_seconds", p.Read.Seconds()), attribute.Float64("walsink.store_seconds", p.Store.Seconds()),
		attribute.Float64("walsink.verify_seconds", p.Verify.Seconds()), attribute.Float64("walsink.wait_seconds", p.Wait.Seconds()),
		attribute.Float64("walsink.commit_seconds", p.Commit.Seconds()),
	)
}

func (s *spans) retrying(lane string, r committer.Retry) {
	if span := s.lane(lane).under(); span != nil {
		span.AddEvent("retry", trace.WithAttributes(
			attribute.String("walsink.kind", r.Kind.String()), attribute.Int("walsink.attempt", r.Attempt),
			attribute.Float64("walsink.wait_seconds", r.Wait.Seconds()), attribute.String("error", r.Err.Error()),
		))
	}
}
