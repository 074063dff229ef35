package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A store fails as its function says, which gets the number of the call.
type store struct {
	sinks.Sink
	calls atomic.Int64
	fail  func(n int64) error // if it is ambiguous, the step is in all the same
}

func (s *store) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, m, err := s.Sink.Acquire(ctx, id)
	return &storeLane{l, s}, m, err
}

type storeLane struct {
	sinks.Lane
	s *store
}

func (l *storeLane) Flush(ctx context.Context, st *sinks.Step) (sinks.Result, error) {
	err := error(nil)
	if l.s.fail != nil {
		err = l.s.fail(l.s.calls.Add(1))
	}
	if err != nil && sinks.KindOf(err) != sinks.Ambiguous {
		return sinks.Result{}, err
	}
	res, ferr := l.Lane.Flush(ctx, st)
	return res, errors.Join(err, ferr)
}

func kind(k sinks.Kind) error { return &sinks.Error{Kind: k, Op: "flush", Err: errors.New("injected")} }

func options(t testing.TB, lanes ...string) walsink.Options {
	return walsink.Options{
		Dir: filepath.Join(t.TempDir(), "state"), ID: "job", Lanes: lanes, Logger: slog.New(slog.DiscardHandler),
		Flush: committer.Options{RetryMin: 1, RetryMax: 1, DeadLetters: true},
	}
}

func open(t testing.TB, s sinks.Sink, opts walsink.Options) *walsink.Output {
	t.Helper()
	out, err := walsink.Open(t.Context(), s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func add(t testing.TB, out *walsink.Output, recs ...string) {
	t.Helper()
	for _, r := range recs {
		if err := out.Append(t.Context(), []byte(r)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := out.Checkpoint(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// figures collects, and returns each number by name and labels.
func figures(t *testing.T, r metric.Reader) map[string]float64 {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	put := func(name string, at attribute.Set, v float64) {
		for _, kv := range at.ToSlice() {
			name += " " + string(kv.Key) + "=" + kv.Value.AsString()
		}
		got[name] = v
	}
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Count))
				}
			default:
				t.Fatalf("%s is a %T", m.Name, d)
			}
		}
	}
	return got
}

func newTelemetry(t *testing.T, o telemetry.Options) (*telemetry.Telemetry, metric.Reader) {
	t.Helper()
	reader := metric.NewManualReader()
	o.Meters = metric.NewMeterProvider(metric.WithReader(reader))
	tel, err := telemetry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return tel, reader
}

func TestFiguresOfARun(t *testing.T) {
	tel, reader := newTelemetry(t, telemetry.Options{})
	o := tel.Output("orders")
	mem := memory.NewStore()
	s := &store{Sink: memory.Open(mem, memory.Options{})}
	s.fail = func(n int64) error {
		switch n {
		case 1:
			return kind(sinks.Transient)
		case 2:
			return kind(sinks.Ambiguous) // and it is in
		case 3:
			return &sinks.Error{Kind: sinks.Poison, Bad: []sinks.Reject{{Number: 0, Code: "22P02"}}}
		}
		return nil
	}
	out := open(t, s, o.Instrument(options(t)))
	defer out.Close()
	stop := o.Watch(out)
	add(t, out, "a", "bb")
	if err := out.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(t, out, "bad", "ccc")
	if err := out.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	rival := memory.Open(mem, memory.Options{})
	if _, _, err := rival.Acquire(t.Context(), sinks.LaneID{Sink: "job", Lane: walsink.DefaultLane}); err != nil {
		t.Fatal(err)
	}
	add(t, out, "dddd")
	<-out.Failed()
	got := figures(t, reader)
	for name, want := range map[string]float64{
		"walsink.records.in output=orders":                        5,
		"walsink.bytes.in output=orders":                          13,
		"walsink.records.out output=orders":                       3,
		"walsink.bytes.out output=orders":                         6,
		"walsink.flush.steps output=orders":                       2,
		"walsink.flush.settled output=orders":                     1,
		"walsink.records.skipped output=orders":                   0,
		"walsink.backlog.batches lane=000 output=orders":          1,
		"walsink.backlog.size lane=000 output=orders":             4,
		"walsink.backlog.records lane=000 output=orders":          1,
		"walsink.log.failures output=orders":                      0,
		"walsink.log.limit output=orders":                         float64(out.Status().Log.MaxBytes),
		"walsink.log.waiting output=orders":                       0,
		"walsink.checkpoint.completed output=orders":              3,
		"walsink.lanes output=orders state=stopped":               1,
		"walsink.flush.errors kind=transient output=orders":       1,
		"walsink.flush.errors kind=ambiguous output=orders":       1,
		"walsink.flush.errors kind=poison output=orders":          1,
		"walsink.flush.errors kind=fenced output=orders":          1,
		"walsink.flush.retries kind=transient output=orders":      1,
		"walsink.fences.lost output=orders":                       1,
		"walsink.dead_letters output=orders reason=22P02":         1,
		"walsink.flush.duration output=orders":                    2,
		"walsink.flush.phase.duration output=orders phase=store":  2,
		"walsink.flush.phase.duration output=orders phase=read":   2,
		"walsink.flush.phase.duration output=orders phase=verify": 2,
		"walsink.flush.phase.duration output=orders phase=wait":   2,
		"walsink.flush.phase.duration output=orders phase=commit": 2,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
	if got["walsink.backlog.age lane=000 output=orders"] < 0 || got["walsink.log.size output=orders"] <= 0 {
		t.Errorf("age %v, log %v", got["walsink.backlog.age lane=000 output=orders"], got["walsink.log.size output=orders"])
	}
	stop()
	if _, ok := figures(t, reader)["walsink.records.in output=orders"]; ok {
		t.Error("an output that is no longer watched is reported")
	}
}

// However many lanes and codes there are, labels are few, and nothing is left out of
// the sums.
func TestLabelsAreBounded(t *testing.T) {
	tel, reader := newTelemetry(t, telemetry.Options{MaxLanes: 3})
	o := tel.Output("orders")
	var names []string
	for i := range 9 {
		names = append(names, fmt.Sprintf("lane%d", i))
	}
	s := &store{Sink: memory.Open(memory.NewStore(), memory.Options{}), fail: func(int64) error { return kind(sinks.Transient) }}
	opts := o.Instrument(options(t, names...))
	opts.Flush.RetryMin, opts.Flush.RetryMax = 1e12, 1e12
	out := open(t, s, opts)
	defer out.Close()
	defer o.Watch(out)()
	for i, name := range names {
		l, err := out.Lane(t.Context(), name)
		if err == nil {
			err = l.Append(t.Context(), make([]byte, i+1))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add(t, out)
	for i := range 100 {
		opts.Flush.Observer.Dead("lane0", 1, sinks.Reject{Code: fmt.Sprint("code", i)})
	}
	got := figures(t, reader)
	sizes, letters := map[string]float64{}, map[string]float64{}
	for name, v := range got {
		var label string
		if n, _ := fmt.Sscanf(name, "walsink.backlog.size lane=%s", &label); n == 1 {
			sizes[label] = v
		}
		if n, _ := fmt.Sscanf(name, "walsink.dead_letters output=orders reason=%s", &label); n == 1 {
			letters[label] = v
		}
	}
	if len(sizes) != 3 || sizes["lane0"] != 1 || sizes["lane1"] != 2 || sizes["other"] != 42 {
		t.Errorf("sizes %v", sizes)
	}
	if len(letters) != 33 || letters["code31"] != 1 || letters["other"] != 68 {
		t.Errorf("%d reasons: %v", len(letters), letters)
	}
}

func TestFlushSpansLinkToAppends(t *testing.T) {
	rec := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(rec))
	tel, err := telemetry.New(telemetry.Options{Tracers: provider})
	if err != nil {
		t.Fatal(err)
	}
	o := tel.Output("orders")
	var inner atomic.Value
	s := &store{Sink: memory.Open(memory.NewStore(), memory.Options{})}
	s.fail = func(n int64) error {
		if n == 1 {
			return kind(sinks.Transient)
		}
		return nil
	}
	opts := o.Instrument(options(t))
	flushing := opts.Flush.Observer.Flushing
	opts.Flush.Observer.Flushing = func(ctx context.Context, lane string, st committer.StepInfo) (context.Context, func(error)) {
		ctx, done := flushing(ctx, lane, st)
		inner.Store(trace.SpanContextFromContext(ctx).SpanID())
		return ctx, done
	}
	out := open(t, s, opts)
	var want []trace.SpanID
	for range 40 {
		ctx, span := provider.Tracer("test").Start(t.Context(), "request")
		for range 2 {
			if err := out.Append(ctx, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want, span.SpanContext().SpanID())
		span.End()
	}
	add(t, out, "without a span")
	if err := errors.Join(out.Drain(t.Context()), out.Close()); err != nil {
		t.Fatal(err)
	}
	var flush sdk.ReadOnlySpan
	for _, span := range rec.Ended() {
		if span.Name() == "walsink flush" {
			flush = span
		}
	}
	if flush == nil {
		t.Fatal("no span of a flush")
	}
	if len(flush.Links()) != 16 {
		t.Fatalf("%d links, want 16", len(flush.Links()))
	}
	for i, l := range flush.Links() {
		if l.SpanContext.SpanID() != want[i] {
			t.Errorf("link %d is to %v, want %v", i, l.SpanContext.SpanID(), want[i])
		}
	}
	if id := inner.Load(); id != flush.SpanContext().SpanID() {
		t.Errorf("the sink was called under span %v, not %v", id, flush.SpanContext().SpanID())
	}
	at := attribute.NewSet(flush.Attributes()...)
	for key, want := range map[attribute.Key]attribute.Value{
		"walsink.output": attribute.StringValue("orders"), "walsink.lane": attribute.StringValue("000"),
		"walsink.checkpoint": attribute.Int64Value(1), "walsink.batch.first": attribute.Int64Value(1), "walsink.records": attribute.Int64Value(81),
	} {
		if v, _ := at.Value(key); v != want {
			t.Errorf("%s is %v, want %v", key, v.AsInterface(), want.AsInterface())
		}
	}
	if ev := flush.Events(); len(ev) != 1 || ev[0].Name != "retry" {
		t.Errorf("events %v", ev)
	}
}

// A store that is down for long costs bounded memory, and a span has bounded links.
func TestLinksAreBounded(t *testing.T) {
	rec := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(rec), sdk.WithRawSpanLimits(sdk.SpanLimits{
		LinkCountLimit: -1, AttributeCountLimit: -1, EventCountLimit: -1, AttributeValueLengthLimit: -1,
		AttributePerEventCountLimit: -1, AttributePerLinkCountLimit: -1,
	}))
	tel, err := telemetry.New(telemetry.Options{Tracers: provider})
	if err != nil {
		t.Fatal(err)
	}
	opts := tel.Output("orders").Instrument(walsink.Options{})
	const batches = 5000
	for seq := range uint64(batches) {
		ctx, span := provider.Tracer("test").Start(t.Context(), "request")
		opts.Observer.Appended(ctx, "000")
		span.End()
		opts.Observer.Sealed("000", batch(seq+1))
	}
	links := 0
	for first := uint64(1); first < batches; first += 1000 {
		step := committer.StepInfo{First: first, Last: first + 999, Batches: 1000}
		_, done := opts.Flush.Observer.Flushing(t.Context(), "000", step)
		opts.Flush.Observer.Flushed("000", step, 0)
		done(nil)
		span := rec.Ended()[len(rec.Ended())-1]
		if len(span.Links()) > 128 {
			t.Errorf("a span with %d links", len(span.Links()))
		}
		links += len(span.Links())
	}
	if links != 128+24 {
		t.Errorf("%d links of the first 1024 batches, want 128 of the first step and 24 of the second", links)
	}
}
