package telemetry_test

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/telemetry"
)

func batch(seq uint64) record.Batch { return record.Batch{Seq: seq} }

// instrumented returns an output with what o sets.
func instrumented(tb testing.TB, o telemetry.Options) (out *walsink.Output, opts walsink.Options) {
	tb.Helper()
	tel, err := telemetry.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	opts = tel.Output("orders").Instrument(options(tb))
	out = open(tb, memory.Open(memory.NewStore(), memory.Options{}), opts)
	tb.Cleanup(func() { out.Close() })
	return out, opts
}

// providers are the ways to instrument an output.
func providers() map[string]telemetry.Options {
	return map[string]telemetry.Options{
		"none":    {},
		"metrics": {Meters: metric.NewMeterProvider()},
		"traces":  {Tracers: sdk.NewTracerProvider()},
	}
}

// What is not set is not there, so it costs nothing; what is set allocates nothing
// for a record.
func TestAppendAllocatesNothing(t *testing.T) {
	line := []byte(`{"id":1,"name":"x"}`)
	for name, o := range providers() {
		t.Run(name, func(t *testing.T) {
			out, opts := instrumented(t, o)
			f, a := opts.Flush.Observer, opts.Observer
			if told := f.Flushed != nil || f.Flushing != nil || f.Dead != nil || f.Retrying != nil || f.Stopped != nil; told != (name != "none") {
				t.Errorf("the flush is observed: %v", told)
			}
			if told := a.Appended != nil || a.Sealed != nil; told != (name == "traces") {
				t.Errorf("the append is observed: %v", told)
			}
			ctx := t.Context()
			if o.Tracers != nil {
				ctx, _ = o.Tracers.Tracer("test").Start(ctx, "request")
			}
			if n := testing.AllocsPerRun(1000, func() {
				if err := out.Append(ctx, line); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations per record", n)
			}
		})
	}
}

// BenchmarkAppend compares appends with nothing set, which is the baseline, with
// metrics, and with a span in the context.
func BenchmarkAppend(b *testing.B) {
	line := make([]byte, 100)
	for _, name := range []string{"none", "metrics", "traces"} {
		b.Run(name, func(b *testing.B) {
			o := providers()[name]
			out, _ := instrumented(b, o)
			ctx := b.Context()
			if o.Tracers != nil {
				ctx, _ = o.Tracers.Tracer("test").Start(ctx, "request")
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if err := out.Append(ctx, line); err != nil {
					b.Fatal(err)
				}
				if n++; n%100_000 == 0 {
					b.StopTimer()
					add(b, out)
					if err := out.Drain(ctx); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
		})
	}
}
