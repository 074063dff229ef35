package telemetry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

// meters are the instruments.
type meters struct {
	meter       metric.Meter
	observables []metric.Observable
	errs        []error

	// Of each lane.
	age                                             metric.Float64ObservableGauge
	pendingBytes, pendingBatches, pendingRecords    metric.Int64ObservableGauge
	logBytes, logLimit, logWaiting, lanes, complete metric.Int64ObservableGauge

	recordsIn, bytesIn, recordsOut, bytesOut, skipped metric.Int64ObservableCounter
	steps, settled, failures, logFailures             metric.Int64ObservableCounter

	flush, phase                   metric.Float64Histogram
	retries, fences, letters, lost metric.Int64Counter
}

// seconds are the bounds of the histograms.
var seconds = metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)

func newMeters(meter metric.Meter) (*meters, error) {
	m := &meters{meter: meter}
	age, err := meter.Float64ObservableGauge("walsink.backlog.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the oldest batch that is not in the store was sealed."))
	m.age = age
	m.observables = append(m.observables, age)
	m.errs = append(m.errs, err)
	m.pendingBytes = m.gauge("walsink.backlog.size", "By", "Record bytes that are complete and not in the store.")
	m.pendingBatches = m.gauge("walsink.backlog.batches", "{batch}", "Batches that are complete and not in the store.")
	m.pendingRecords = m.gauge("walsink.backlog.records", "{record}", "Records that are complete and not in the store.")
	m.logBytes = m.gauge("walsink.log.size", "By", "Bytes that the log holds, retained ones included.")
	m.logLimit = m.gauge("walsink.log.limit", "By", "Byte budget of the log.")
	m.logWaiting = m.gauge("walsink.log.waiting", "{append}", "Appends that wait for room in the log.")
	m.lanes = m.gauge("walsink.lanes", "{lane}", "Lanes by what their worker does.")
	m.complete = m.gauge("walsink.checkpoint.completed", "", "Number of the newest checkpoint that is complete.")

	m.recordsIn = m.observed("walsink.records.in", "{record}", "Records sealed in the log.")
	m.bytesIn = m.observed("walsink.bytes.in", "By", "Record bytes sealed in the log.")
	m.recordsOut = m.observed("walsink.records.out", "{record}", "Records brought into the store.")
	m.bytesOut = m.observed("walsink.bytes.out", "By", "Record bytes brought into the store.")
	m.skipped = m.observed("walsink.records.skipped", "{record}", "Records of a replay that the store was found to have already.")
	m.steps = m.observed("walsink.flush.steps", "{step}", "Atomic steps that are in the store.")
	m.settled = m.observed("walsink.flush.settled", "{step}", "Steps with an unknown outcome of which the mark told that they are in.")
	m.failures = m.observed("walsink.flush.errors", "{error}", "Errors of the sink by kind.")
	m.logFailures = m.observed("walsink.log.failures", "{failure}", "Failures of the log, after which it takes nothing more.")

	m.flush = m.histogram("walsink.flush.duration", "Time of a step from its first attempt until it is in.")
	m.phase = m.histogram("walsink.flush.phase.duration", "Time of a step by phase: read, store, verify, wait, commit.")
	m.retries = m.counter("walsink.flush.retries", "{retry}", "Calls of the sink that are made again, by kind of the error.")
	m.fences = m.counter("walsink.fences.lost", "{lane}", "Lanes that stopped because a newer owner took them over.")
	m.letters = m.counter("walsink.dead_letters", "{record}", "Records put to the dead letters, by the code that the store gave.")
	m.lost = m.counter("walsink.records.lost", "{record}", "Records of batches that an operator gave up.")
	return m, errors.Join(m.errs...)
}

func (m *meters) gauge(name, unit, text string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.observables = append(m.observables, g)
	m.errs = append(m.errs, err)
	return g
}

func (m *meters) observed(name, unit, text string) metric.Int64ObservableCounter {
	c, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.observables = append(m.observables, c)
	m.errs = append(m.errs, err)
	return c
}

func (m *meters) counter(name, unit, text string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.errs = append(m.errs, err)
	return c
}

func (m *meters) histogram(name, text string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), seconds)
	m.errs = append(m.errs, err)
	return h
}

// observe reports the status of an output.
func (m *meters) observe(to metric.Observer, o *Output, st walsink.Status, maxLanes int) {
	own := metric.WithAttributeSet(o.set)
	m.backlog(to, o.name, st.Lanes, maxLanes)
	var sum committer.Counters
	kinds, states := map[string]uint64{}, map[string]int64{}
	for _, l := range st.Lanes {
		sum.Records += l.Records
		sum.Bytes += l.Bytes
		sum.Skipped += l.Skipped
		sum.Steps += l.Steps
		sum.Settled += l.Settled
		states[l.State.String()]++
		for kind, n := range l.Errors {
			kinds[kind] += n
		}
	}
	var records, bytes uint64
	for _, l := range st.Log.Lanes {
		records += l.Records
		bytes += l.Bytes
	}
	count := func(c metric.Int64ObservableCounter, n uint64) { to.ObserveInt64(c, int64(n), own) }
	count(m.recordsIn, records)
	count(m.bytesIn, bytes)
	count(m.recordsOut, sum.Records)
	count(m.bytesOut, sum.Bytes)
	count(m.skipped, sum.Skipped)
	count(m.steps, sum.Steps)
	count(m.settled, sum.Settled)
	failures := uint64(0)
	if st.Log.Failed != nil {
		failures = 1
	}
	count(m.logFailures, failures)
	to.ObserveInt64(m.logBytes, st.Log.Bytes, own)
	to.ObserveInt64(m.logLimit, st.Log.MaxBytes, own)
	to.ObserveInt64(m.logWaiting, int64(st.Log.Waiting), own)
	to.ObserveInt64(m.complete, int64(st.Completed), own)
	for kind, n := range kinds {
		to.ObserveInt64(m.failures, int64(n), metric.WithAttributes(attribute.String("output", o.name), attribute.String("kind", kind)))
	}
	for state, n := range states {
		to.ObserveInt64(m.lanes, n, metric.WithAttributes(attribute.String("output", o.name), attribute.String("state", state)))
	}
}

// backlog reports what is pending, by lane; lanes beyond the limit are one.
func (m *meters) backlog(to metric.Observer, output string, lanes []committer.LaneStatus, maxLanes int) {
	if n := maxLanes - 1; len(lanes) > maxLanes {
		lanes = slices.SortedFunc(slices.Values(lanes), func(a, b committer.LaneStatus) int { return strings.Compare(a.Lane, b.Lane) })
		rest := committer.LaneStatus{Lane: "other"}
		for _, l := range lanes[n:] {
			rest.PendingBatches += l.PendingBatches
			rest.PendingBytes += l.PendingBytes
			rest.PendingRecords += l.PendingRecords
			rest.OldestAge = max(rest.OldestAge, l.OldestAge)
		}
		lanes = append(lanes[:n], rest)
	}
	for _, l := range lanes {
		at := metric.WithAttributes(attribute.String("output", output), attribute.String("lane", l.Lane))
		to.ObserveFloat64(m.age, l.OldestAge.Seconds(), at)
		to.ObserveInt64(m.pendingBytes, int64(l.PendingBytes), at)
		to.ObserveInt64(m.pendingBatches, int64(l.PendingBatches), at)
		to.ObserveInt64(m.pendingRecords, int64(l.PendingRecords), at)
	}
}

// maxReasons bounds the reasons of dead letters that are told apart.
const maxReasons = 32

// counts are the figures that events make. Labels are made once.
type counts struct {
	m      *meters
	output attribute.KeyValue
	own    []metric.RecordOption
	add    []metric.AddOption
	phases [5][]metric.RecordOption

	mu      sync.Mutex
	reasons map[string][]metric.AddOption
	kinds   map[sinks.Kind][]metric.AddOption
}

func (c *counts) init(m *meters, name string) {
	c.m, c.output = m, attribute.String("output", name)
	set := metric.WithAttributeSet(attribute.NewSet(c.output))
	c.own, c.add = []metric.RecordOption{set}, []metric.AddOption{set}
	for i, phase := range []string{"read", "store", "verify", "wait", "commit"} {
		c.phases[i] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(c.output, attribute.String("phase", phase)))}
	}
	c.reasons, c.kinds = map[string][]metric.AddOption{}, map[sinks.Kind][]metric.AddOption{}
}

func (c *counts) observer() committer.Observer {
	return committer.Observer{Flushed: c.flushed, Dead: c.dead, Retrying: c.retrying, Stopped: c.stopped}
}

func (c *counts) flushed(_ string, step committer.StepInfo, took time.Duration) {
	ctx := context.Background()
	c.m.flush.Record(ctx, took.Seconds(), c.own...)
	p := step.Phases
	for i, d := range [...]time.Duration{p.Read, p.Store, p.Verify, p.Wait, p.Commit} {
		c.m.phase.Record(ctx, d.Seconds(), c.phases[i]...)
	}
	if step.Lost > 0 {
		c.m.lost.Add(ctx, step.Lost, c.add...)
	}
}

func (c *counts) dead(_ string, _ uint64, r sinks.Reject) {
	c.m.letters.Add(context.Background(), 1, c.reason(cmp.Or(r.Code, "unknown"))...)
}

// reason returns the label of a code.
func (c *counts) reason(code string) []metric.AddOption {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.reasons[code]; !ok && len(c.reasons) >= maxReasons {
		code = "other"
	}
	at, ok := c.reasons[code]
	if !ok {
		at = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(c.output, attribute.String("reason", code)))}
		c.reasons[code] = at
	}
	return at
}

func (c *counts) retrying(_ string, r committer.Retry) {
	c.mu.Lock()
	at, ok := c.kinds[r.Kind]
	if !ok {
		at = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(c.output, attribute.String("kind", r.Kind.String())))}
		c.kinds[r.Kind] = at
	}
	c.mu.Unlock()
	c.m.retries.Add(context.Background(), 1, at...)
}

func (c *counts) stopped(_ string, err error) {
	if sinks.KindOf(err) == sinks.Fenced {
		c.m.fences.Add(context.Background(), 1, c.add...)
	}
}
