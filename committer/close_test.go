package committer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

// blocked is a world with a flush in progress that ends with its context, if it
// obeys, or with free.
func blocked(t *testing.T, obeys bool) (w *world, free func()) {
	w = newWorld(t)
	w.opts.CloseTimeout = 4 * time.Second
	w.open()
	gate := make(chan struct{})
	w.sink.flush = func(int, *sinks.Step) fault {
		return fault{block: func(ctx context.Context) error {
			if !obeys {
				<-gate
				return context.Canceled
			}
			select {
			case <-gate:
				return kind(sinks.Transient)
			case <-ctx.Done():
				return &sinks.Error{Kind: sinks.Cancelled, Op: "flush", Err: ctx.Err()}
			}
		}}
	}
	w.add(1, recs(1, 10)...)
	synctest.Wait()
	return w, func() { close(gate) }
}

// C114: the batch is neither lost nor recorded, and the store is not blamed.
func TestC114CancelDuringFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := blocked(t, true)
		start := time.Now()
		w.close()
		if d := time.Since(start); d != 4*time.Second {
			t.Fatalf("close took %v", d)
		}
		if st := w.status(); st.State != committer.StateClosed || len(st.Errors) != 0 || st.LastError != "" {
			t.Fatalf("status %+v", st)
		}
		if w.c.Err() != nil || len(w.log.commits) != 0 {
			t.Fatalf("error %v, commits %v", w.c.Err(), w.log.commits)
		}
		w.want()
		w.open()
		w.drain()
		w.want(recs(1, 10)...)
	})
}

func TestCloseWaitsForAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := blocked(t, true)
		w.sink.mu.Lock()
		w.sink.flush = nil
		w.sink.mu.Unlock()
		w.close()
		w.open()
		time.AfterFunc(time.Second, func() { w.log.add(key, 2, "x"); w.c.Notify() })
		w.drain()
		w.close()
		w.want(recs(1, 10)...)
	})
}

// A cancelled flush that was done after all is known to be done.
func TestCancelledButDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.CloseTimeout = time.Second
		w.open()
		inside := w.sink.Sink
		w.sink.flush = func(_ int, s *sinks.Step) fault {
			return fault{block: func(ctx context.Context) error {
				<-ctx.Done()
				l, _, err := inside.Acquire(context.WithoutCancel(ctx), s.ID)
				if err == nil {
					_, err = l.Flush(context.WithoutCancel(ctx), s)
				}
				if err != nil {
					t.Error(err)
				}
				return ctx.Err()
			}}
		}
		w.add(1, "x")
		synctest.Wait()
		w.close()
		w.want("x")
		w.open()
		w.drain()
		w.want("x")
	})
}

func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, free := blocked(t, false)
		start := time.Now()
		err := w.c.Close()
		wantErr(t, err, nil, "close lane orders/a", "does not return")
		if d := time.Since(start); d != 8*time.Second {
			t.Fatalf("close took %v", d)
		}
		w.hangs = true
		free()
		synctest.Wait()
	})
}

func TestCloseEndsEveryWait(t *testing.T) {
	states := map[committer.State]func(w *world){
		committer.StateIdle:     func(*world) {},
		committer.StateWaiting:  func(w *world) { w.opts.FlushAge = time.Hour },
		committer.StateRetrying: func(w *world) { w.opts.RetryMin, w.opts.RetryMax = time.Hour, time.Hour },
	}
	for state, set := range states {
		t.Run(state.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				set(w)
				w.open()
				w.sink.flush = times(1000, sinks.Transient, false)
				if state != committer.StateIdle {
					w.add(1, "x")
				}
				synctest.Wait()
				if st := w.status(); st.State != state {
					t.Fatalf("state %v", st.State)
				}
				start := time.Now()
				w.close()
				w.close()
				if d := time.Since(start); d != 0 {
					t.Fatalf("close took %v", d)
				}
			})
		})
	}
}

func TestDrainOfAClosedCommitter(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.close()
	w.drain() // nothing is pending
	w.add(1, "x")
	wantErr(t, w.c.Drain(t.Context()), committer.ErrClosed, "batches 1 to 1")
}

func TestStoppedIsObserved(t *testing.T) {
	w := newWorld(t)
	var lane string
	var cause error
	w.opts.Observer.Stopped = func(l string, err error) { lane, cause = l, err }
	w.open()
	w.sink.flush = times(1, sinks.Permanent, false)
	w.add(1, "x")
	_ = w.stopped()
	w.close()
	if lane != "a" || cause == nil {
		t.Fatalf("observer was told %q, %v", lane, cause)
	}
}

// An idle worker does nothing at all.
func TestIdleDoesNotPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open()
		w.add(1, "x")
		w.drain()
		f, m := w.sink.calls()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if f2, m2 := w.sink.calls(); f2 != f || m2 != m {
			t.Fatalf("%d calls in a day of nothing", f2+m2-f-m)
		}
	})
}
