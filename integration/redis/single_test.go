package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// countInput is n records of counters in batches of size.
func countInput(t testing.TB, lane string, n, size int) *input {
	in := newInput(lane)
	cmds := counters(n)
	for i := 0; i < n; i += size {
		in.batch(t, cmds[i:min(i+size, n)]...)
	}
	return in
}

// upTo is in with only the first n batches.
func (in *input) upTo(n int) *input {
	part := *in
	part.batches = in.batches[:n]
	return &part
}

func TestFlush(t *testing.T) {
	c := connect(t, servers.Redis(t))
	s := open(t, c, redis.Options{})
	in := countInput(t, "0", 12000, 4000)
	lane, mark := acquire(t, s, in.id)
	if mark.Tip() != in.id.Genesis() || mark.Fence != 1 {
		t.Fatalf("first mark %+v", mark)
	}
	step := in.step(mark, 2)
	if _, err := lane.Flush(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	m, err := lane.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.Tip() != step.Next.Tip() || m.Records != 12000 || m.Fence != 1 || string(m.Position) != "after batch 3" {
		t.Fatalf("mark %+v", m)
	}
	checkCounters(t, c, 12000)
	checkAudit(t, s, in, 0)
	t.Run("replay is refused", func(t *testing.T) {
		if _, err := lane.Flush(t.Context(), step); sinks.KindOf(err) != sinks.Moved {
			t.Errorf("got %v, want moved", err)
		}
		checkCounters(t, c, 12000)
	})
	t.Run("ledger", func(t *testing.T) {
		marks, err := s.Marks(t.Context(), "test")
		if err != nil || len(marks) != 1 || marks[0].Tip() != m.Tip() || marks[0].LaneID != in.id {
			t.Errorf("marks %v, %v", marks, err)
		}
	})
}

// TestPartialSteps flushes a batch in parts of every size.
func TestPartialSteps(t *testing.T) {
	c := connect(t, servers.Redis(t))
	s := open(t, c, redis.Options{})
	in := countInput(t, "0", 60, 20)
	lane, mark := acquire(t, s, in.id)
	for last := range in.batches {
		for to := uint64(3); ; to += 7 {
			st := in.stepTo(mark, last, min(to, 20))
			if _, err := lane.Flush(t.Context(), st); err != nil {
				t.Fatal(err)
			}
			var err error
			if mark, err = lane.Mark(t.Context()); err != nil || mark.Tip() != st.Next.Tip() {
				t.Fatalf("mark %+v, %v", mark, err)
			}
			if to >= 20 {
				break
			}
		}
	}
	checkCounters(t, c, 60)
	checkAudit(t, s, in, 0)
}

// TestR07R17CutAtEveryByte cuts the connection after every so many bytes of a
// flush of several chunks, in both directions.
func TestR07R17CutAtEveryByte(t *testing.T) {
	addr := servers.Redis(t)
	c := connect(t, addr)
	every := int64(61)
	if !testing.Short() {
		every = 17
	}
	for _, dir := range []string{"to the server", "to the client"} {
		t.Run(dir, func(t *testing.T) {
			for n := int64(1); ; n += every {
				if err := c.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				in := countInput(t, "0", 80, 20)
				w := &wire{}
				s := open(t, w.single(t, addr), redis.Options{ChunkTime: 1}) // chunks as small as can be
				lane, mark := acquire(t, s, in.id)
				mark = in.upTo(1).finish(t, lane, mark)
				if dir == "to the server" {
					w.cutWrites(n)
				} else {
					w.cutReads(min(n, 1<<20))
				}
				_, ferr := lane.Flush(t.Context(), in.step(mark, 3))
				cut := w.heal()
				var err error
				if n%2 == 0 {
					lane, mark = acquire(t, s, in.id)
				} else if mark, err = lane.Mark(t.Context()); err != nil {
					t.Fatal(err)
				}
				in.finish(t, lane, mark)
				checkCounters(t, c, 80)
				if t.Failed() {
					t.Fatalf("cut after %d bytes: %v", n, ferr)
				}
				if !cut {
					break
				}
			}
		})
	}
}

// TestR10ScriptFlush flushes the script cache all the time.
func TestR10ScriptFlush(t *testing.T) {
	c := connect(t, servers.Redis(t))
	s := open(t, c, redis.Options{})
	in := countInput(t, "0", 8000, 100)
	lane, mark := acquire(t, s, in.id)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				c.ScriptFlush(context.Background())
			}
		}
	})
	for i := range in.batches {
		mark = in.upTo(i+1).finish(t, lane, mark)
	}
	close(stop)
	wg.Wait()
	checkCounters(t, c, 8000)
}

// TestFencing has two handles on one lane.
func TestFencing(t *testing.T) {
	addr := servers.Redis(t)
	c := connect(t, addr)
	s := open(t, c, redis.Options{})
	in := countInput(t, "0", 90, 30)
	old, mark := acquire(t, s, in.id)
	mark = in.upTo(1).finish(t, old, mark)
	next, m := acquire(t, s, in.id)
	if m.Fence != mark.Fence+1 || m.Tip() != mark.Tip() {
		t.Fatalf("mark of the new owner %+v", m)
	}
	if _, err := old.Flush(t.Context(), in.step(mark, 1)); sinks.KindOf(err) != sinks.Fenced {
		t.Errorf("flush of the old owner: %v, want fenced", err)
	}
	if _, err := old.Mark(t.Context()); sinks.KindOf(err) != sinks.Fenced {
		t.Errorf("mark of the old owner: %v, want fenced", err)
	}
	in.finish(t, next, m)
	checkCounters(t, c, 90)
}

// TestFrozenOwner freezes an owner right before its flush leaves, lets a new one go
// on, and wakes it up.
func TestFrozenOwner(t *testing.T) {
	addr := servers.Redis(t)
	c := connect(t, addr)
	in := countInput(t, "0", 60, 30)
	w := &wire{}
	lane, mark := acquire(t, open(t, w.single(t, addr), redis.Options{}), in.id)
	mark = in.upTo(1).finish(t, lane, mark)
	reached := w.freeze("evalsha", 1)
	done := make(chan error, 1)
	go func() {
		_, err := lane.Flush(context.Background(), in.step(mark, 1))
		done <- err
	}()
	<-reached
	next, m := acquire(t, open(t, c, redis.Options{}), in.id)
	in.finish(t, next, m)
	w.thaw()
	if err := <-done; sinks.KindOf(err) != sinks.Fenced {
		t.Errorf("the frozen owner: %v, want fenced", err)
	}
	checkCounters(t, c, 60)
}

// TestMarkSettles gives up a flush that has not left, and reads the mark: the flush
// can then no longer happen.
func TestMarkSettles(t *testing.T) {
	addr := servers.Redis(t)
	c := connect(t, addr)
	in := countInput(t, "0", 60, 30)
	s := open(t, c, redis.Options{})
	lane, mark := acquire(t, s, in.id)
	mark = in.upTo(1).finish(t, lane, mark)
	raw := late(t, c, s, in, lane, mark)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lane.Flush(ctx, in.step(mark, 1)); sinks.KindOf(err) != sinks.Cancelled {
		t.Fatalf("cancelled flush: %v", err)
	}
	raw()
}

// late is nothing yet; see TestSettledFlushIsRefused.
func late(testing.TB, *goredis.Client, *redis.Sink, *input, sinks.Lane, sinks.Mark) func() {
	return func() {}
}

var (
	_ = errors.New
	_ = fmt.Sprint
	_ = strings.Cut
)
