package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is an output on three lanes, which a monitor watches.
type world struct {
	t   *testing.T
	m   *Monitor
	o   *Output
	out *walsink.Output
	// refuse is what the store says to a flush of lane 001; nil for nothing.
	refuse atomic.Pointer[error]
	slow   atomic.Bool
	read   atomic.Uint64
	last   atomic.Uint64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, m: New("orders", "v1.2.3")}
	w.o = w.m.Output("orders", "postgres:app.orders")
	w.m.Progress(func() pipeline.Progress {
		n := w.last.Load()
		return pipeline.Progress{Records: w.read.Load(), Bytes: 100 * w.read.Load(), Checkpoints: n, Last: n, LastAt: time.Now()}
	})
	out, err := walsink.Open(t.Context(), store{memory.Open(memory.NewStore(), memory.Options{}), w}, w.o.Instrument(walsink.Options{
		Dir: filepath.Join(t.TempDir(), "state"), ID: "orders", Lanes: []string{"000", "001", "002"}, Logger: slog.New(slog.DiscardHandler),
		Flush: committer.Options{RetryMin: time.Second, RetryMax: 10 * time.Second},
	}))
	if err != nil {
		t.Fatal(err)
	}
	w.out = out
	t.Cleanup(func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
	w.o.Opened(out)
	return w
}

// A store refuses when the world says so.
type store struct {
	sinks.Sink
	w *world
}

func (s store) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, m, err := s.Sink.Acquire(ctx, id)
	return storeLane{l, s.w, id.Lane}, m, err
}

type storeLane struct {
	sinks.Lane
	w    *world
	name string
}

func (l storeLane) Flush(ctx context.Context, st *sinks.Step) (sinks.Result, error) {
	if err := l.w.refuse.Load(); err != nil && l.name == "001" {
		return sinks.Result{}, &sinks.Error{Kind: sinks.Transient, Op: "flush", Err: *err}
	}
	if l.w.slow.Load() {
		wait(ctx, time.Duration(100+rand.IntN(500))*time.Millisecond)
	}
	return l.Lane.Flush(ctx, st)
}

func wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// put takes a checkpoint of so many records in each lane.
func (w *world) put(records int) {
	w.t.Helper()
	line := make([]byte, 100)
	for i := range 3 * records {
		l, err := w.out.Lane(w.t.Context(), fmt.Sprintf("%03d", i%3))
		if err == nil {
			err = l.Append(w.t.Context(), line)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	w.read.Add(uint64(3 * records))
	n, err := w.out.Checkpoint(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.last.Store(n)
}

// until samples until the status is as wanted.
func (w *world) until(ok func(walsink.Status) bool) {
	w.t.Helper()
	for {
		w.m.sample()
		if st, _ := w.o.snapshot(); ok(st) {
			return
		}
		if w.t.Context().Err() != nil {
			w.t.Fatal("the status never was as wanted")
		}
	}
}

// hostile brings two checkpoints in, and then makes the store refuse with a text that a
// careless page would run.
func (w *world) hostile() {
	w.put(10)
	if err := w.out.Drain(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.m.sample()
	err := errors.New(`<script>document.title='owned'</script> <img src="http://elsewhere.invalid/x.png">`)
	w.refuse.Store(&err)
	w.put(10)
	w.until(func(st walsink.Status) bool { return st.Lanes[1].State == committer.StateRetrying })
}

// load writes for so long; the store is away for the fourth part of the time.
func (w *world) load(d time.Duration) {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	go w.m.Run(ctx)
	w.slow.Store(true)
	away := errors.New("dial tcp 10.0.0.7:5432: connect: connection refused")
	for begin := time.Now(); ctx.Err() == nil; {
		w.put(800 + rand.IntN(400))
		w.refuse.Store(nil)
		if part := time.Since(begin) * 8 / d; part == 4 || part == 5 || part == 7 {
			w.refuse.Store(&away)
		}
		wait(ctx, time.Second)
	}
}
