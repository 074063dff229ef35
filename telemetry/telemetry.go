// Package telemetry tells OpenTelemetry what an output does: figures through a
// metric.MeterProvider, spans through a trace.TracerProvider. It holds no exporter;
// the program chooses one. The core packages know nothing of it.
//
//	tel, err := telemetry.New(telemetry.Options{Meters: meters, Tracers: tracers})
//	orders := tel.Output("orders")
//	out, err := walsink.Open(ctx, sink, orders.Instrument(opts))
//	defer orders.Watch(out)()
//
// # Figures
//
// docs/monitoring.md lists them with their meaning. Most are read from the status of
// the output when they are collected, and cost nothing in between. Each has the name
// of its output; those of the backlog have that of the lane as well, for the first
// Options.MaxLanes lanes in order of name, and "other" for the rest together. All
// other labels have a bounded number of values: dead letters have the code that the
// store gave as their reason, for the first 32 codes, and "other" for the rest.
//
// # Spans
//
// A span "walsink flush" covers a step from its first attempt to its end, retries
// being events in it. It is the parent of what the sink's driver makes of its context,
// and it is linked to the spans in whose context the records were appended: up to 16
// different ones of a batch, 128 of a step, and of 1024 batches of a lane that are not
// in the store yet. They are kept in memory only: what a process finds in its log at
// the start has no links.
//
// # Cost
//
// What is not set costs nothing: Instrument leaves out the observers that have no
// provider. With a tracer an append looks for a span in its context.
package telemetry

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
)

// scope is the name of the meter and of the tracer.
const scope = "github.com/walsink/walsink/telemetry"

// Options are where to tell it. Either provider may be nil.
type Options struct {
	Meters  metric.MeterProvider
	Tracers trace.TracerProvider
	// MaxLanes is the number of lanes of an output that have figures of their own.
	// Default 64.
	MaxLanes int
}

const defaultLanes = 64

// A Telemetry makes the observers of outputs. It is safe for concurrent use.
type Telemetry struct {
	maxLanes int
	meters   *meters      // nil without a provider
	tracer   trace.Tracer // nil without a provider

	mu      sync.Mutex
	watched []*watch
}

// A watch is an output that is open.
type watch struct {
	output *Output
	out    Statuser
}

// New returns a Telemetry. An error is the provider's, about one of the instruments.
func New(o Options) (*Telemetry, error) {
	t := &Telemetry{maxLanes: o.MaxLanes}
	if t.maxLanes <= 0 {
		t.maxLanes = defaultLanes
	}
	if o.Tracers != nil {
		t.tracer = o.Tracers.Tracer(scope)
	}
	if o.Meters != nil {
		m, err := newMeters(o.Meters.Meter(scope))
		if err == nil {
			_, err = m.meter.RegisterCallback(t.collect, m.observables...)
		}
		if err != nil {
			return nil, err
		}
		t.meters = m
	}
	return t, nil
}

// An Output is what is told of one output.
type Output struct {
	tel    *Telemetry
	name   string
	set    attribute.Set
	counts counts
	spans  spans
}

// Output returns the telemetry of the output of that name.
func (t *Telemetry) Output(name string) *Output {
	o := &Output{tel: t, name: name, set: attribute.NewSet(attribute.String("output", name))}
	o.counts.init(t.meters, name)
	o.spans.init(t.tracer, name)
	return o
}

// Instrument returns opts with the observers added that have a provider. Those that
// are set already are called first.
func (o *Output) Instrument(opts walsink.Options) walsink.Options {
	if o.tel.meters != nil {
		opts.Flush.Observer = committer.Observers(opts.Flush.Observer, o.counts.observer())
	}
	if o.tel.tracer != nil {
		opts.Flush.Observer = committer.Observers(opts.Flush.Observer, o.spans.observer())
		opts.Observer = walsink.Observers(opts.Observer, walsink.Observer{Appended: o.spans.appended, Sealed: o.spans.sealed})
	}
	return opts
}

// A Statuser is an open output: a [walsink.Output], or what pipeline.Walsink opens.
type Statuser interface{ Status() walsink.Status }

// Watch reads the status of out whenever figures are collected, until stop is called.
func (o *Output) Watch(out Statuser) (stop func()) {
	w := &watch{o, out}
	o.tel.mu.Lock()
	defer o.tel.mu.Unlock()
	o.tel.watched = append(o.tel.watched, w)
	return func() {
		o.tel.mu.Lock()
		defer o.tel.mu.Unlock()
		o.tel.watched = slices.DeleteFunc(slices.Clone(o.tel.watched), func(x *watch) bool { return x == w })
	}
}

// collect is called by the meter.
func (t *Telemetry) collect(_ context.Context, to metric.Observer) error {
	t.mu.Lock()
	watched := t.watched
	t.mu.Unlock()
	for _, w := range watched {
		t.meters.observe(to, w.output, w.out.Status(), t.maxLanes)
	}
	return nil
}
