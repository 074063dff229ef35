package committer_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

func TestC027MarkReadFailsOnce(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.sink.flush = times(1, sinks.Ambiguous, false)
	w.sink.mark = func(n int) error {
		if n == 1 {
			return kind(sinks.Transient)
		}
		return nil
	}
	w.add(1, recs(1, 3)...)
	w.drain()
	w.want(recs(1, 3)...)
	if f, m := w.sink.calls(); f != 2 || m != 2 {
		t.Fatalf("%d flushes, %d mark reads", f, m)
	}
}

func TestC028C032OrderIsKept(t *testing.T) {
	w := newWorld(t)
	w.mopts.StepBytes = 1 // one batch a step
	w.open()
	w.sink.flush = times(3, sinks.Transient, false)
	w.log.add(key, 1, recs(1, 10)...)
	w.log.add(key, 2, recs(11, 20)...)
	w.c.Notify()
	w.drain()
	w.want(recs(1, 20)...)
	for _, s := range w.sink.steps[:4] {
		if s.Batches[0].Checkpoint != 1 {
			t.Fatalf("checkpoint %d was tried while 1 was not in", s.Batches[0].Checkpoint)
		}
	}
}

// C029: the script of the test that accepts 43 rows for 33 records elsewhere.
func TestC029Exactly33(t *testing.T) {
	for _, after := range []bool{false, true} {
		w := newWorld(t)
		w.open()
		w.sink.flush = times(1, sinks.Ambiguous, after)
		w.sink.mark = func(n int) error {
			if n <= 2 {
				return kind(sinks.Ambiguous)
			}
			return nil
		}
		w.add(1, recs(1, 10)...)
		w.add(2, recs(11, 21)...)
		w.add(3, recs(22, 33)...)
		w.drain()
		w.want(recs(1, 33)...)
	}
}

func TestC030CallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.StepTimeout = 20 * time.Second
		w.open()
		w.sink.flush = func(n int, _ *sinks.Step) fault {
			if n > 1 {
				return fault{}
			}
			return fault{block: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		}
		start := time.Now()
		w.add(1, "x")
		w.drain()
		w.want("x")
		if d := time.Since(start); d < 20*time.Second || d > 21*time.Second {
			t.Fatalf("took %v", d)
		}
		if st := w.status(); st.Errors["cancelled"] != 1 || st.LastError == "" {
			t.Fatalf("status %+v", st)
		}
	})
}

func TestC033C039AttemptLimit(t *testing.T) {
	t.Run("one attempt", func(t *testing.T) {
		w := newWorld(t)
		w.opts.MaxAttempts = 1
		w.open()
		w.sink.flush = times(1, sinks.Transient, false)
		w.log.add(key, 1, "x")
		w.log.add(key, 2, "y")
		w.c.Notify()
		w.wantStop(nil, "after 1 attempts", "batches 1 to 2 (checkpoints 1 to 2)", "stays in the log", "injected")
		if len(w.log.Batches(key)) != 2 || len(w.log.commits) != 0 {
			t.Fatal("the batches are gone")
		}
		w.restart()
		w.drain()
		w.want("x", "y")
	})
	t.Run("two attempts", func(t *testing.T) {
		w := newWorld(t)
		w.opts.MaxAttempts = 2
		w.open()
		w.sink.flush = times(1, sinks.Transient, false)
		w.add(1, "x")
		w.drain()
		w.want("x")
		if st := w.status(); st.Errors["transient"] != 1 || st.Steps != 1 {
			t.Fatalf("status %+v", st)
		}
	})
}

func TestC034C040PermanentStopsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.mopts.StepBytes = 1
	w.open()
	w.sink.flush = times(1, sinks.Permanent, false)
	w.log.add(key, 1, "x")
	w.log.add(key, 2, "y")
	w.c.Notify()
	w.wantStop(nil, "permanent", "injected")
	w.want()
	if f, _ := w.sink.calls(); f != 1 {
		t.Fatalf("%d flushes", f)
	}
	w.restart()
	w.drain()
	w.want("x", "y")
}

// C035: an error that no adapter classified is verified and tried again.
func TestC035UnknownCause(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.sink.flush = func(n int, _ *sinks.Step) fault {
		if n == 1 {
			return fault{err: errors.New("what is this"), after: true}
		}
		return fault{}
	}
	w.add(1, "x")
	w.drain()
	w.want("x")
	if f, m := w.sink.calls(); f != 1 || m != 1 {
		t.Fatalf("%d flushes, %d mark reads", f, m)
	}
}

// C037: every kind of error may hide a step that is in. The mark says so.
func TestC037AlreadyThereIsSettled(t *testing.T) {
	for k := sinks.Transient; k <= sinks.Cancelled; k++ {
		t.Run(k.String(), func(t *testing.T) {
			w := newWorld(t)
			w.open()
			w.sink.flush = times(1, k, true)
			w.add(1, "x")
			w.add(2, "y")
			w.drain()
			w.want("x", "y")
			if st := w.status(); st.Settled != 1 || st.Steps < 1 {
				t.Fatalf("status %+v", st)
			}
		})
	}
}

func TestC038OtherLanesGoOn(t *testing.T) {
	w := newWorld(t)
	w.open()
	for _, name := range []string{"b", "c"} {
		if _, err := w.c.Open(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	w.sink.flush = func(_ int, s *sinks.Step) fault {
		if s.ID.Lane == "b" {
			return fault{err: kind(sinks.Permanent)}
		}
		return fault{}
	}
	for _, name := range []string{"a", "b", "c"} {
		w.log.add(sinkID+"/"+name, 1, name)
	}
	w.c.Notify()
	err := w.c.Drain(t.Context())
	wantErr(t, err, nil, "drain lane orders/b", "batches 1 to 1", "checkpoint 1", "injected")
	for _, name := range []string{"a", "b", "c"} {
		got := len(w.store.Records(sinks.LaneID{Sink: sinkID, Lane: name}))
		if want := map[string]int{"a": 1, "c": 1}[name]; got != want {
			t.Errorf("lane %s shows %d records, want %d", name, got, want)
		}
	}
	wantErr(t, w.c.Err(), nil, "injected")
	if n := len(w.c.Status()); n != 3 {
		t.Fatalf("%d lanes in the status", n)
	}
}

func TestC043ResourcesOfAllLanes(t *testing.T) {
	w := newWorld(t)
	w.start()
	sink := &faultySink{Sink: w.sink.Sink, closing: errors.New("handle stays open")}
	c, err := committer.New(sink, sinkID, w.log, w.opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := c.Open(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		wantErr(t, c.Close(), nil, "close lane orders/a: handle", "close lane orders/b: handle")
	}
}

func TestC058SamePolicyAtOpen(t *testing.T) {
	for _, k := range []sinks.Kind{sinks.Transient, sinks.Ambiguous, sinks.Fenced} {
		w := newWorld(t)
		w.start()
		w.sink.acquire = func(n int) error {
			if n < 4 {
				return kind(k)
			}
			return nil
		}
		if _, err := w.tryOpen(); err != nil {
			t.Fatal(err)
		}
		if w.sink.acquires != 4 {
			t.Fatalf("%d calls", w.sink.acquires)
		}
	}
	t.Run("limit", func(t *testing.T) {
		w := newWorld(t)
		w.opts.MaxAttempts = 3
		w.start()
		w.sink.acquire = func(int) error { return kind(sinks.Transient) }
		_, err := w.tryOpen()
		wantErr(t, err, nil, "open lane orders/a", "injected")
		if w.sink.acquires != 3 {
			t.Fatalf("%d calls", w.sink.acquires)
		}
		w.sink.acquire = nil
		if _, err := w.tryOpen(); err != nil {
			t.Fatal("not to be opened later:", err)
		}
	})
	t.Run("permanent", func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.sink.acquire = func(int) error { return kind(sinks.Permanent) }
		if _, err := w.tryOpen(); err == nil || w.sink.acquires != 1 {
			t.Fatalf("%v after %d calls", err, w.sink.acquires)
		}
	})
	t.Run("context", func(t *testing.T) {
		w := newWorld(t)
		w.start()
		ctx, cancel := context.WithCancel(t.Context())
		w.sink.acquire = func(n int) error {
			if n == 3 {
				cancel()
			}
			return kind(sinks.Transient)
		}
		_, err := w.c.Open(ctx, "a")
		wantErr(t, err, context.Canceled, "injected")
	})
	t.Run("closed meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.opts.RetryMin, w.opts.RetryMax = time.Hour, time.Hour
			w.start()
			w.sink.acquire = func(int) error { return kind(sinks.Transient) }
			done := make(chan error)
			go func() { _, err := w.tryOpen(); done <- err }()
			synctest.Wait()
			w.close()
			wantErr(t, <-done, committer.ErrClosed)
		})
	})
}

// C083: the last flush fails at the end: Drain says so and nothing is lost.
func TestC083DrainReportsFailure(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.sink.flush = times(1, sinks.Permanent, false)
	w.add(1, "x")
	wantErr(t, w.c.Drain(t.Context()), nil, "up to checkpoint 1", "not in the store")
	w.restart()
	w.drain()
	w.want("x")
}

func TestDrainEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	w.open()
	failed := make(chan struct{})
	var once atomic.Bool
	w.sink.flush = func(int, *sinks.Step) fault {
		if once.CompareAndSwap(false, true) {
			close(failed)
		}
		return fault{err: kind(sinks.Transient)}
	}
	w.add(1, "x")
	<-failed
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	wantErr(t, w.c.Drain(ctx), context.DeadlineExceeded, "last error", "injected")
}

// C110: the store is away for a long time. Nothing is dropped, and the order holds.
func TestC110E14OutageIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.RetryMin, w.opts.RetryMax = 0, 0 // the defaults
		w.open()
		end := time.Now().Add(10 * time.Minute)
		w.sink.flush = func(int, *sinks.Step) fault {
			if time.Now().Before(end) {
				return fault{err: kind(sinks.Transient)}
			}
			return fault{}
		}
		for i := range 100 {
			w.add(uint64(i+1), recs(i*2+1, i*2+2)...)
			time.Sleep(5 * time.Second)
		}
		if st := w.status(); st.State != committer.StateRetrying || st.PendingBatches != 100 || st.PendingRecords != 200 ||
			st.PendingBytes != 800 || st.OldestAge == 0 || st.LastError == "" || st.NextRetry.IsZero() {
			t.Fatalf("status %+v", st)
		}
		w.drain()
		w.want(recs(1, 200)...)
		if late := time.Since(end); late > 31*time.Second {
			t.Fatalf("it took %v after the store came back", late)
		}
		if st := w.status(); st.State == committer.StateRetrying || st.PendingBatches != 0 || st.OldestAge != 0 {
			t.Fatalf("status %+v", st)
		}
	})
}

// E05: two faults in a row, then the way back is closed three times.
func TestE05DoubleFault(t *testing.T) {
	for _, after := range []bool{false, true} {
		w := newWorld(t)
		w.open()
		w.sink.flush = times(2, sinks.Ambiguous, after)
		w.sink.mark = func(n int) error {
			if n <= 3 {
				return kind(sinks.Transient)
			}
			return nil
		}
		w.add(1, recs(1, 10)...)
		w.drain()
		w.want(recs(1, 10)...)
	}
}

// C112: no answer. Both outcomes, at every step of a run.
func TestC112LostAnswerAtEveryStep(t *testing.T) {
	for n := 1; n <= 6; n++ {
		for _, after := range []bool{false, true} {
			w := newWorld(t)
			w.mopts.StepBytes, w.mopts.Chunked = 8, true
			w.open()
			w.sink.flush = func(i int, _ *sinks.Step) fault {
				if i == n {
					return fault{err: kind(sinks.Ambiguous), after: after}
				}
				return fault{}
			}
			w.add(1, recs(1, 7)...)
			w.add(2, recs(8, 10)...)
			w.drain()
			w.want(recs(1, 10)...)
			if want := uint64(0); after && w.status().Settled == want {
				t.Fatalf("step %d: not counted as settled", n)
			}
		}
	}
}

func TestUnknownIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.RetryMax = time.Second
		w.open()
		end := time.Now().Add(5 * time.Minute)
		w.sink.flush = times(1, sinks.Ambiguous, true)
		w.sink.mark = func(int) error {
			if time.Now().Before(end) {
				return kind(sinks.Transient)
			}
			return nil
		}
		w.add(1, "x")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if st := w.status(); st.State != committer.StateVerifying || st.NextRetry.IsZero() {
			t.Fatalf("status %+v", st)
		}
		time.Sleep(90 * time.Second)
		synctest.Wait()
		wantErr(t, errors.New(w.status().LastError), nil, "unknown since")
		if f, _ := w.sink.calls(); f != 1 {
			t.Fatalf("%d flushes: it guessed", f)
		}
		w.drain()
		w.want("x")
	})
}

func TestMarkThatCanNeverBeRead(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.sink.flush = times(1, sinks.Ambiguous, true)
	w.sink.mark = func(int) error { return kind(sinks.Permanent) }
	w.add(1, "x")
	w.wantStop(nil, "the outcome is unknown", "injected")
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.RetryMin, w.opts.RetryMax = 100*time.Millisecond, 2*time.Second
		var waits []time.Duration
		w.opts.Observer.Retrying = func(_ string, r committer.Retry) {
			if r.Kind != sinks.Transient || r.Err == nil || r.Attempt != len(waits)+1 || r.Checkpoint != 1 || r.Batch != 1 {
				t.Errorf("told of %+v", r)
			}
			waits = append(waits, r.Wait)
		}
		w.open()
		w.sink.flush = times(200, sinks.Transient, false)
		start := time.Now()
		w.add(1, "x")
		w.drain()
		var sum time.Duration
		top := 100 * time.Millisecond
		for i, d := range waits {
			sum += d
			if d <= 0 || d > top {
				t.Fatalf("wait %d is %v, want at most %v", i, d, top)
			}
			top = min(2*top, 2*time.Second)
		}
		if len(waits) != 200 || time.Since(start) != sum {
			t.Fatalf("%d waits of %v in %v", len(waits), sum, time.Since(start))
		}
		late := waits[50:]
		if slices.Min(late) > 500*time.Millisecond || slices.Max(late) < 1500*time.Millisecond {
			t.Fatalf("no jitter: %v to %v", slices.Min(late), slices.Max(late))
		}
	})
}

func TestFlushAgeAndBytes(t *testing.T) {
	run := func(name string, bytes int64, age time.Duration, f func(t *testing.T, w *world)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.opts.FlushBytes, w.opts.FlushAge = bytes, age
				w.open()
				f(t, w)
			})
		})
	}
	run("age", 0, time.Minute, func(t *testing.T, w *world) {
		w.add(1, "x")
		time.Sleep(30 * time.Second)
		w.add(2, "y")
		time.Sleep(30*time.Second - 1)
		synctest.Wait()
		w.want()
		if st := w.status(); st.State != committer.StateWaiting {
			t.Fatalf("status %+v", st)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w.want("x", "y")
		if n, _ := w.sink.calls(); n != 1 {
			t.Fatalf("%d steps", n)
		}
		w.add(3, "z")
		time.Sleep(59 * time.Second)
		synctest.Wait()
		w.want("x", "y")
		time.Sleep(time.Second)
		synctest.Wait()
		w.want("x", "y", "z")
	})
	run("bytes", 10, time.Hour, func(_ *testing.T, w *world) {
		w.add(1, "12345")
		synctest.Wait()
		w.want()
		w.add(2, "67890")
		synctest.Wait()
		w.want("12345", "67890")
	})
	run("bytes alone", 10, 0, func(_ *testing.T, w *world) {
		w.add(1, "12345")
		time.Sleep(time.Second)
		synctest.Wait()
		w.want("12345")
	})
	run("drain", 1000, time.Hour, func(_ *testing.T, w *world) {
		w.add(1, "x")
		synctest.Wait()
		w.want()
		w.drain()
		w.want("x")
	})
	run("drain that nobody waits for", 1000, time.Hour, func(t *testing.T, w *world) {
		w.add(1, "x")
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // no worker may see one under way
			wantErr(t, w.c.Drain(ctx), context.Canceled)
		}
		synctest.Wait()
		w.want()
	})
	run("open", 1000, time.Hour, func(_ *testing.T, w *world) {
		w.add(1, "x")
		synctest.Wait()
		w.restart() // what was complete before does not wait
		synctest.Wait()
		w.want("x")
	})
}
