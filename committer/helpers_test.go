package committer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sinkID = "orders"
	key    = "orders/a"
)

var laneA = sinks.LaneID{Sink: sinkID, Lane: "a"}

// A world is a store, a log and one committer at a time over them.
type world struct {
	t     *testing.T
	store *memory.Store
	log   *fakeLog
	mopts memory.Options
	opts  committer.Options
	sink  *faultySink
	c     *committer.Committer
	hangs bool // the sink does not let Close end well
	takes string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: memory.NewStore(), log: newLog()}
	w.opts.RetryMin, w.opts.RetryMax = time.Microsecond, time.Millisecond
	return w
}

// start opens a committer, without lanes.
func (w *world) start() {
	w.t.Helper()
	w.sink = &faultySink{Sink: memory.Open(w.store, w.mopts), takes: w.takes}
	c, err := committer.New(w.sink, sinkID, w.log, w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.c = c
	w.t.Cleanup(func() {
		if err := c.Close(); err != nil && !w.hangs {
			w.t.Errorf("close: %v", err)
		}
		if w.log.open != 0 {
			w.t.Errorf("%d iterators of the log are still open", w.log.open)
		}
	})
}

func (w *world) tryOpen() (committer.Opening, error) {
	return w.c.Open(w.t.Context(), "a")
}

// open starts a committer and opens lane a.
func (w *world) open() committer.Opening {
	w.t.Helper()
	w.start()
	o, err := w.tryOpen()
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *world) close() {
	w.t.Helper()
	if err := w.c.Close(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) restart() committer.Opening {
	w.t.Helper()
	w.close()
	w.log.truncate()
	return w.open()
}

// add completes a batch and tells the committer.
func (w *world) add(checkpoint uint64, recs ...string) {
	w.log.add(key, checkpoint, recs...)
	w.c.Notify()
}

func (w *world) drain() {
	w.t.Helper()
	if err := w.c.Drain(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) visible() []string {
	var out []string
	for _, r := range w.store.Records(laneA) {
		out = append(out, string(r))
	}
	return out
}

// want compares the store with what was generated.
func (w *world) want(recs ...string) {
	w.t.Helper()
	if got := w.visible(); !slices.Equal(got, recs) {
		w.t.Fatalf("the store shows %q, want %q", got, recs)
	}
}

func (w *world) status() committer.LaneStatus {
	for _, st := range w.c.Status() {
		if st.Lane == "a" {
			return st
		}
	}
	w.t.Fatal("no lane a")
	return committer.LaneStatus{}
}

func (w *world) mark() sinks.Mark {
	marks, err := memory.Open(w.store, w.mopts).Marks(w.t.Context(), sinkID)
	if err != nil || len(marks) == 0 {
		w.t.Fatalf("no mark: %v", err)
	}
	return marks[0].Mark
}

// stopped waits until a lane has stopped and returns why.
func (w *world) stopped() error {
	w.t.Helper()
	select {
	case <-w.c.Failed():
	case <-time.After(10 * time.Second):
		w.t.Fatal("no lane stopped")
	}
	return w.c.Err()
}

func (w *world) wantStop(target error, texts ...string) {
	w.t.Helper()
	err := w.stopped()
	wantErr(w.t, err, target, texts...)
	if st := w.status(); st.State != committer.StateStopped || st.LastError == "" {
		w.t.Fatalf("status %+v, want stopped with an error", st)
	}
}

func wantErr(t *testing.T, err, target error, texts ...string) {
	t.Helper()
	if err == nil || target != nil && !errors.Is(err, target) {
		t.Fatalf("error %v, want %v", err, target)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Fatalf("error %q does not name %q", err, s)
		}
	}
}

func recs(from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("r%03d", i))
	}
	return out
}

// A faultySink passes calls on, except as its functions say. Each may be nil.
type faultySink struct {
	sinks.Sink
	mu      sync.Mutex
	acquire func(n int) error
	flush   func(n int, step *sinks.Step) fault
	mark    func(n int) error
	closing error
	// calls of each, from 1, of this sink
	acquires, flushes, marks int
	steps                    []sinks.Step
	takes                    string // a format besides its own
}

// Takes implements [sinks.Taker].
func (s *faultySink) Takes(format string) bool { return s.takes != "" && format == s.takes }

// A fault is what happens to a flush: err is returned before the store is
// called, or, with after, in place of its answer, or, with first, after the first
// records of the step are in. Or block runs in its place.
type fault struct {
	err   error
	after bool
	first int
	block func(context.Context) error
}

func (s *faultySink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	s.mu.Lock()
	s.acquires++
	n, f := s.acquires, s.acquire
	s.mu.Unlock()
	if f != nil {
		if err := f(n); err != nil {
			return nil, sinks.Mark{}, err
		}
	}
	l, m, err := s.Sink.Acquire(ctx, id)
	return &faultyLane{l, s}, m, err
}

type faultyLane struct {
	sinks.Lane
	s *faultySink
}

func (l *faultyLane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	l.s.mu.Lock()
	l.s.flushes++
	n, f := l.s.flushes, l.s.flush
	l.s.steps = append(l.s.steps, *step)
	l.s.mu.Unlock()
	var ft fault
	if f != nil {
		ft = f(n, step)
	}
	switch {
	case ft.block != nil:
		return sinks.Result{}, ft.block(ctx)
	case ft.first > 0:
		if _, err := l.Lane.Flush(ctx, beginning(step, uint64(ft.first))); err != nil {
			return sinks.Result{}, err
		}
		return sinks.Result{}, ft.err
	case ft.err != nil && !ft.after:
		return sinks.Result{}, ft.err
	}
	res, err := l.Lane.Flush(ctx, step)
	if ft.err != nil {
		return sinks.Result{}, ft.err
	}
	return res, err
}

// beginning is a step of the first n records of one that has no dead letters.
func beginning(step *sinks.Step, n uint64) *sinks.Step {
	sub, batches := *step, 0
	sub.Next, sub.Records, sub.Tolerate = step.Prev, int64(n), 100
	sub.Next.Records += n
	left := n
	for _, b := range step.Batches {
		if left == 0 {
			break
		}
		if batches++; left < b.Records {
			sub.Next.Partial = &sinks.Partial{Batch: b.Batch, Done: left}
			break
		}
		left -= b.Records
		sub.Next.Seq, sub.Next.Checkpoint, sub.Next.Chain, sub.Next.Position = b.Seq, b.Checkpoint, b.Chain(), b.Position
	}
	sub.Batches = step.Batches[:batches]
	var runs []sinks.Run
	sub.Bytes, left = 0, n
	for run, err := range step.Runs {
		if err != nil || left == 0 {
			break
		}
		var recs [][]byte
		for i := range min(run.Block.Len(), int(left)) {
			recs = append(recs, bytes.Clone(run.Block.Record(i)))
			sub.Bytes += int64(len(run.Block.Record(i)))
		}
		left -= uint64(len(recs))
		run.Block = record.BlockOf(recs...)
		runs = append(runs, run)
	}
	sub.Runs = func(yield func(sinks.Run, error) bool) {
		for _, run := range runs {
			if !yield(run, nil) {
				return
			}
		}
	}
	return &sub
}

func (l *faultyLane) Mark(ctx context.Context) (sinks.Mark, error) {
	l.s.mu.Lock()
	l.s.marks++
	n, f := l.s.marks, l.s.mark
	l.s.mu.Unlock()
	if f != nil {
		if err := f(n); err != nil {
			return sinks.Mark{}, err
		}
	}
	return l.Lane.Mark(ctx)
}

func (l *faultyLane) Close() error { return errors.Join(l.s.closing, l.Lane.Close()) }

func (s *faultySink) calls() (flushes, marks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushes, s.marks
}

func kind(k sinks.Kind) error { return &sinks.Error{Kind: k, Op: "flush", Err: errors.New("injected")} }

// times fails the first n flushes with an error of the kind.
func times(n int, k sinks.Kind, after bool) func(int, *sinks.Step) fault {
	return func(i int, _ *sinks.Step) fault {
		if i <= n {
			return fault{err: kind(k), after: after}
		}
		return fault{}
	}
}

// A lyingSink says that it put a record aside, and did not.
type lyingSink struct{ sinks.Sink }

func (s lyingSink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, m, err := s.Sink.Acquire(ctx, id)
	return lyingLane{l}, m, err
}

type lyingLane struct{ sinks.Lane }

func (l lyingLane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	_, err := l.Lane.Flush(ctx, step)
	return sinks.Result{Rejected: []sinks.Reject{{Number: 3}}}, err
}
