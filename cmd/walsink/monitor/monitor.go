// Package monitor watches the outputs of a running job and shows them over HTTP: a
// page for people, JSON and figures for programs, and answers to probes.
//
// A Monitor samples the status of each output every two seconds and keeps what it saw
// in rings of fixed size: ten minutes in full, a day in steps of five minutes, the last
// 512 batches and the last 50 errors. A request is answered from the last sample, so
// that no client can make the job do work.
package monitor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

const (
	interval   = 2 * time.Second
	fineSize   = 300 // 10 minutes
	coarseStep = 150 // of the samples, one goes into the coarse ring: each 5 minutes
	coarseSize = 288 // 24 hours
	batchSize  = 512
	errorSize  = 50
	// stuckAfter is the age of the last sample at which the process counts as stuck.
	stuckAfter = 20 * time.Second
)

// A Statuser is an open output.
type Statuser interface{ Status() walsink.Status }

// A Monitor watches a job. It is safe for concurrent use.
type Monitor struct {
	title, version string
	started        time.Time
	progress       func() pipeline.Progress
	outputs        []*Output

	mu      sync.Mutex
	sampled time.Time // when the last sample was complete
	flow    pipeline.Progress
	errors  ring[failure]
}

// New returns a Monitor of a job. Title is what the page calls it.
func New(title, version string) *Monitor {
	now := time.Now()
	return &Monitor{title: title, version: version, started: now, sampled: now, errors: ring[failure]{size: errorSize}}
}

// Progress makes the monitor show how far the pipeline is. It is called before Run.
func (m *Monitor) Progress(f func() pipeline.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress = f
}

// An Output is one output as it is watched.
type Output struct {
	m            *Monitor
	name, target string

	mu      sync.Mutex
	open    Statuser // nil until it is open
	last    walsink.Status
	at      time.Time // of last; zero before the first
	fine    ring[sample]
	coarse  ring[sample]
	samples int
	batches ring[batch]
}

// Output adds an output, which is not open yet. All are added before Run.
func (m *Monitor) Output(name, target string) *Output {
	o := &Output{
		m: m, name: name, target: target,
		fine: ring[sample]{size: fineSize}, coarse: ring[sample]{size: coarseSize}, batches: ring[batch]{size: batchSize},
	}
	m.outputs = append(m.outputs, o)
	return o
}

// Instrument returns opts with the observers added that the page needs.
func (o *Output) Instrument(opts walsink.Options) walsink.Options {
	opts.Observer = walsink.Observers(opts.Observer, walsink.Observer{Sealed: o.sealed})
	opts.Flush.Observer = committer.Observers(opts.Flush.Observer, committer.Observer{
		Flushed: o.flushed, Retrying: o.retrying, Stopped: o.stopped,
	})
	return opts
}

// Opened says that the output is open.
func (o *Output) Opened(s Statuser) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = s
}

// A sample is what is drawn of one moment.
type sample struct {
	at      time.Time
	in, out uint64 // records since the start
	bytes   uint64 // pending
	batches int
	oldest  time.Duration
}

// A batch is one that was sealed while the monitor watched.
type batch struct {
	lane            string
	seq, checkpoint uint64
	records, bytes  uint64
	sealed, landed  time.Time
}

// A failure is an error as it is listed, and how often it came in a row.
type failure struct {
	first, last  time.Time
	count        int
	output, lane string
	kind, text   string
	checkpoint   uint64
	next         time.Time // zero if the lane has stopped
}

// Run samples until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		m.sample()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Monitor) sample() {
	for _, o := range m.outputs {
		o.sample()
	}
	m.mu.Lock()
	f := m.progress
	m.mu.Unlock()
	var flow pipeline.Progress
	if f != nil {
		flow = f()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flow, m.sampled = flow, time.Now()
}

func (o *Output) sample() {
	o.mu.Lock()
	open := o.open
	o.mu.Unlock()
	if open == nil {
		return
	}
	st := open.Status()
	s := sample{at: time.Now()}
	for _, l := range st.Lanes {
		s.out += l.Records + l.Dead
		s.bytes += l.PendingBytes
		s.batches += l.PendingBatches
		s.oldest = max(s.oldest, l.OldestAge)
	}
	for _, l := range st.Log.Lanes {
		s.in += l.Records
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.at = st, s.at
	o.fine.put(s)
	if o.samples%coarseStep == 0 {
		o.coarse.put(s)
	}
	o.samples++
}

func (o *Output) sealed(lane string, b record.Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.batches.put(batch{
		lane: lane, seq: b.Seq, checkpoint: b.Checkpoint, records: b.Records, bytes: b.Bytes, sealed: time.UnixMilli(b.SealedAt),
	})
}

func (o *Output) flushed(lane string, step committer.StepInfo, _ time.Duration) {
	if step.Batches == 0 {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for b := range o.batches.pointers() {
		if b.lane == lane && b.seq <= step.Last && b.landed.IsZero() {
			b.landed = now
		}
	}
}

func (o *Output) retrying(lane string, r committer.Retry) {
	o.m.note(failure{
		output: o.name, lane: lane, kind: r.Kind.String(), text: r.Err.Error(), checkpoint: r.Checkpoint, next: time.Now().Add(r.Wait),
	})
}

func (o *Output) stopped(lane string, err error) {
	o.m.note(failure{output: o.name, lane: lane, kind: sinks.KindOf(err).String(), text: err.Error()})
}

// note lists a failure; one that is like the last of its lane is counted there.
func (m *Monitor) note(f failure) {
	now := time.Now()
	f.first, f.last, f.count = now, now, 1
	m.mu.Lock()
	defer m.mu.Unlock()
	var same *failure
	for old := range m.errors.pointers() {
		if old.output == f.output && old.lane == f.lane {
			same = old
		}
	}
	if same != nil && same.kind == f.kind && same.text == f.text {
		same.last, same.next, same.checkpoint = now, f.next, f.checkpoint
		same.count++
		return
	}
	m.errors.put(f)
}

// snapshot is the output at its last sample; ok is false before it is open.
func (o *Output) snapshot() (st walsink.Status, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, !o.at.IsZero()
}

// Health returns why the process does not work, or nothing: its status cannot be
// read, the log has failed, or a lane has stopped for good. A store that is down is no
// reason: a restart would not help.
func (m *Monitor) Health() (reasons []string) {
	m.mu.Lock()
	age := time.Since(m.sampled)
	m.mu.Unlock()
	if age > stuckAfter {
		reasons = append(reasons, fmt.Sprintf("stuck: the outputs have not said how they are for %v", age.Round(time.Second)))
	}
	for _, o := range m.outputs {
		st, _ := o.snapshot()
		if st.Log.Failed != nil {
			reasons = append(reasons, fmt.Sprintf("output %s: %v", o.name, st.Log.Failed))
		}
		for _, l := range st.Lanes {
			if l.State == committer.StateStopped {
				reasons = append(reasons, fmt.Sprintf("output %s lane %s: stopped: %s", o.name, l.Lane, l.LastError))
			}
		}
	}
	return reasons
}

// Full is the part of the log's byte budget, in per cent, at which a backlog is past
// its limit: soon input would have to wait.
const Full = 80

// Ready returns why the job does not do its work now, or nothing: what Health returns,
// an output is not open yet, or the backlog of one is past its limit.
func (m *Monitor) Ready() []string {
	reasons := m.Health()
	for _, o := range m.outputs {
		st, ok := o.snapshot()
		if !ok {
			reasons = append(reasons, fmt.Sprintf("output %s: its lanes are not acquired yet", o.name))
			continue
		}
		if used := st.Log.MaxBytes / 100 * Full; pending(st) > used && used > 0 {
			reasons = append(reasons, fmt.Sprintf("output %s: %s are not in the store, the limit is %d%% of %s",
				o.name, size(pending(st)), Full, size(st.Log.MaxBytes)))
		}
	}
	return reasons
}

// pending are the bytes that are not in the store.
func pending(st walsink.Status) (n int64) {
	for _, l := range st.Lanes {
		n += int64(l.PendingBytes)
	}
	return n
}

// A ring keeps the last size values.
type ring[T any] struct {
	size int
	buf  []T
	next int
}

func (r *ring[T]) put(v T) {
	if len(r.buf) < r.size {
		r.buf = append(r.buf, v)
		return
	}
	r.buf[r.next] = v
	r.next = (r.next + 1) % r.size
}

// list returns a copy, the oldest first.
func (r *ring[T]) list() []T { return slices.Concat(r.buf[r.next:], r.buf[:r.next]) }

// pointers ranges over the values, the oldest first.
func (r *ring[T]) pointers() func(func(*T) bool) {
	return func(yield func(*T) bool) {
		for i := range r.buf {
			if !yield(&r.buf[(r.next+i)%len(r.buf)]) {
				return
			}
		}
	}
}
