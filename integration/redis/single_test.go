package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/campaign"
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

// TestC112R07R17CutAtEveryByte cuts the connection after every so many bytes of a
// flush of several chunks, in both directions.
func TestC112R07R17CutAtEveryByte(t *testing.T) {
	addr := servers.Redis(t)
	c := connect(t, addr)
	every := int64(17)
	switch {
	case campaign.Long():
		every = 1
	case testing.Short():
		every = 61
	}
	cuts := 0
	for _, dir := range []string{"to the server", "to the client"} {
		t.Run(dir, func(t *testing.T) {
			for n, more := int64(1), true; more && !t.Failed(); n += every {
				t.Run(strconv.FormatInt(n, 10), func(t *testing.T) {
					if err := c.FlushAll(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
					more = flushCut(t, addr, n, dir == "to the server")
					checkCounters(t, c, 80)
				})
				cuts++
			}
		})
	}
	campaign.Figures{Cycles: cuts, Rows: 80 * cuts, Faults: map[string]int{"connection cut": cuts}}.Report(t)
}

// flushCut flushes a step over a connection that is cut after n bytes, finishes what
// is left over another, and reports whether the cut came about.
func flushCut(t *testing.T, addr string, n int64, writes bool) (cut bool) {
	in := countInput(t, "0", 80, 20)
	w := &wire{}
	s := open(t, w.single(t, addr), redis.Options{ChunkTime: 1}) // chunks as small as can be
	lane, mark := acquire(t, s, in.id)
	mark = in.upTo(1).finish(t, lane, mark)
	if writes {
		w.cutWrites(n)
	} else {
		w.cutReads(min(n, 1<<20))
	}
	_, ferr := lane.Flush(t.Context(), in.step(mark, 3))
	cut = w.heal()
	var err error
	if n%2 == 0 {
		lane, mark = acquire(t, s, in.id)
	} else if mark, err = lane.Mark(t.Context()); err != nil {
		t.Fatalf("%v, after %v", err, ferr)
	}
	in.finish(t, lane, mark)
	return cut
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

// TestMarkSettles gives up a flush whose bytes are still on their way, and reads
// the mark. What arrives afterwards changes nothing: the next step, which another
// decision about the batch may have changed, is the one that counts.
func TestMarkSettles(t *testing.T) {
	addr := servers.Redis(t)
	c := connect(t, addr)
	in := countInput(t, "0", 60, 30)
	w := &wire{}
	lane, mark := acquire(t, open(t, w.single(t, addr), redis.Options{}), in.id)
	mark = in.upTo(1).finish(t, lane, mark)

	w.hold()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := lane.Flush(ctx, in.step(mark, 1))
		done <- err
	}()
	<-w.held
	cancel()
	if err := <-done; sinks.KindOf(err) != sinks.Cancelled {
		t.Errorf("C114: cancelled flush: %v", err)
	}
	late := w.release()
	mark, err := lane.Mark(t.Context())
	if err != nil || mark.Seq != 1 {
		t.Fatalf("mark %+v, %v", mark, err)
	}
	if answer := late(); !strings.Contains(answer, "stale") {
		t.Errorf("the late flush was answered %q, want it refused", answer)
	}
	if m, err := lane.Mark(t.Context()); err != nil || m.Tip() != mark.Tip() {
		t.Errorf("mark after the late flush: %+v, %v", m, err)
	}
	in.finish(t, lane, mark)
	checkCounters(t, c, 60)
}

// TestR13AnswerMixUp lets a connection deliver an old answer first.
func TestR13AnswerMixUp(t *testing.T) {
	addr := servers.Redis(t)
	c := connect(t, addr)
	in := countInput(t, "0", 90, 30)
	w := &wire{}
	lane, mark := acquire(t, open(t, w.single(t, addr), redis.Options{}), in.id)
	w.record()
	mark = in.upTo(1).finish(t, lane, mark)
	w.replay()
	if _, err := lane.Flush(t.Context(), in.step(mark, 1)); sinks.KindOf(err) != sinks.Ambiguous {
		t.Errorf("flush that got an old answer: %v, want ambiguous", err)
	}
	mark, err := lane.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in.finish(t, lane, mark)
	checkCounters(t, c, 90)
}

// TestR14NoIdentity looks at what a connection says about itself: nothing.
func TestR14NoIdentity(t *testing.T) {
	addr := servers.Redis(t)
	w := &wire{}
	w.record()
	in := countInput(t, "0", 30, 30)
	s := open(t, w.single(t, addr), redis.Options{})
	lane, mark := acquire(t, s, in.id)
	in.finish(t, lane, mark)
	if said := strings.ToLower(w.said()); strings.Contains(said, "setinfo") || strings.Contains(said, "maint_notifications") {
		t.Errorf("the client introduced itself: %q", said)
	}
	t.Run("R16", func(t *testing.T) {
		f, err := s.Probe(t.Context())
		if err != nil || f[0].Subject != "version" || f[0].Refuse {
			t.Errorf("probe: %+v, %v", f, err)
		}
	})
}

// TestC102ReaderSeesWholeChunks reads while small batches are flushed.
func TestC102ReaderSeesWholeChunks(t *testing.T) {
	c := connect(t, servers.Redis(t))
	in := newInput("0")
	for range 300 {
		in.batch(t, redis.Command{"INCR", "a"}, redis.Command{"RPUSH", "b", "x"}, redis.Command{"INCRBY", "c", "2"})
	}
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			var a, cc *goredis.StringCmd
			var b *goredis.IntCmd
			_, _ = c.TxPipelined(context.Background(), func(p goredis.Pipeliner) error {
				a, b, cc = p.Get(context.Background(), "a"), p.LLen(context.Background(), "b"), p.Get(context.Background(), "c")
				return nil
			})
			x, _ := a.Int64()
			z, _ := cc.Int64()
			if b.Val() != x || z != 2*x {
				t.Errorf("a reader saw %d, %d, %d", x, b.Val(), z)
				return
			}
		}
	})
	for i := range in.batches {
		mark = in.upTo(i+1).finish(t, lane, mark)
	}
	close(stop)
	wg.Wait()
}

// TestC108LogDamage ends Runs with an error: nothing of the step is published.
func TestC108LogDamage(t *testing.T) {
	c := connect(t, servers.Redis(t))
	in := countInput(t, "0", 3000, 3000)
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	st := in.step(mark, 0)
	damage := errors.New("block checksum mismatch")
	runs := st.Runs
	st.Runs = func(yield func(sinks.Run, error) bool) {
		for r, err := range runs {
			if !yield(r, err) {
				return
			}
		}
		yield(sinks.Run{}, damage)
	}
	if _, err := lane.Flush(t.Context(), st); err != damage {
		t.Errorf("got %v, want the error of Runs as it is", err)
	}
	if n := c.Exists(t.Context(), "counts", "list", "stream", "scores").Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

// TestC115OneKey changes one key many times in a batch.
func TestC115OneKey(t *testing.T) {
	c := connect(t, servers.Redis(t))
	in := newInput("0")
	var cmds []redis.Command
	for i := range 3000 {
		cmds = append(cmds, redis.Command{"SET", "k", fmt.Sprint(i)}, redis.Command{"APPEND", "k", "x"},
			redis.Command{"DEL", "k"}, redis.Command{"SET", "k", fmt.Sprint("last", i)})
	}
	in.batch(t, cmds...)
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	in.finish(t, lane, mark)
	if got := c.Get(t.Context(), "k").Val(); got != "last2999" {
		t.Errorf("k = %q", got)
	}
}

// TestC117LedgerStaysBounded flushes many checkpoints.
func TestC117LedgerStaysBounded(t *testing.T) {
	c := connect(t, servers.Redis(t))
	s := open(t, c, redis.Options{AuditRows: 50})
	in := newInput("0")
	for range 2000 {
		in.batch(t, redis.Command{"INCR", "n"})
	}
	lane, mark := acquire(t, s, in.id)
	for i := 0; i < len(in.batches); i += 10 {
		mark = in.upTo(i+10).finish(t, lane, mark)
	}
	checkAudit(t, s, in, 1950)
	if n := c.DBSize(t.Context()).Val(); n != 4 {
		t.Errorf("%d keys, want n, mark, audit and lanes", n)
	}
}

// TestR11LanesAreApart flushes many lanes of one sink at once over a client with a
// small pool.
func TestR11LanesAreApart(t *testing.T) {
	addr := servers.Redis(t)
	c := goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 2})
	defer c.Close()
	s := open(t, c, redis.Options{})
	var wg sync.WaitGroup
	for i := range 16 {
		in := newInput(fmt.Sprint(i))
		for range 20 {
			in.batch(t, redis.Command{"INCR", fmt.Sprint("n", i)}, redis.Command{"INCR", "all"})
		}
		lane, mark := acquire(t, s, in.id)
		wg.Go(func() {
			if _, err := in.try(context.Background(), lane, mark); err != nil {
				t.Errorf("lane %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if got := c.Get(t.Context(), "all").Val(); got != "320" {
		t.Errorf("all = %s, want 320", got)
	}
	marks, err := s.Marks(t.Context(), "test")
	if err != nil || len(marks) != 16 {
		t.Errorf("%d marks, %v", len(marks), err)
	}
}

// TestRuns has long runs of one command, which are sent in another shape, with
// others in between, at chunks of all sizes.
func TestRuns(t *testing.T) {
	c := connect(t, servers.Redis(t))
	for _, chunk := range []time.Duration{1, time.Millisecond} {
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		in := newInput("0")
		var cmds []redis.Command
		want := map[string]string{}
		for i := range 3000 {
			k, v := fmt.Sprint("k", i%700), fmt.Sprint("v", i)
			cmds = append(cmds, redis.Command{"SET", k, v})
			want[k] = v
			if i%100 == 50 {
				cmds = append(cmds, redis.Command{"APPEND", k, "x"}, redis.Command{"SET", "o", v, "EX", "1000"})
				want[k] += "x"
			}
		}
		for i := range 1000 {
			cmds = append(cmds, redis.Command{"HINCRBY", "h", fmt.Sprint("f", i%10), "1"})
		}
		in.batch(t, cmds...)
		lane, mark := acquire(t, open(t, c, redis.Options{ChunkTime: chunk}), in.id)
		if m := in.finish(t, lane, mark); m.Records != uint64(len(cmds)) {
			t.Errorf("mark %+v", m)
		}
		for k, v := range want {
			if got := c.Get(t.Context(), k).Val(); got != v {
				t.Fatalf("%s = %q, want %q", k, got, v)
			}
		}
		for i := range 10 {
			if got := c.HGet(t.Context(), "h", fmt.Sprint("f", i)).Val(); got != "100" {
				t.Errorf("f%d = %s, want 100", i, got)
			}
		}
	}
}

// TestRunWithoutMSET is a user who may SET, but not MSET.
func TestRunWithoutMSET(t *testing.T) {
	addr := servers.Redis(t)
	admin := connect(t, addr)
	if err := admin.ACLSetUser(t.Context(), "nomset", "reset", "on", ">pw", "~*", "+@all", "-mset").Err(); err != nil {
		t.Fatal(err)
	}
	defer admin.ACLDelUser(context.Background(), "nomset")
	in := newInput("0")
	for i := range 50 {
		in.batch(t, redis.Command{"SET", fmt.Sprint("k", i), "v"})
	}
	c := connectWith(t, &goredis.Options{Addr: addr, Username: "nomset", Password: "pw"})
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	in.finish(t, lane, mark)
	if n := admin.Exists(t.Context(), "k0", "k25", "k49").Val(); n != 3 {
		t.Errorf("%d of 3 keys", n)
	}
}

// TestPoisonInRun has a bad record in a long run of one command.
func TestPoisonInRun(t *testing.T) {
	c := connect(t, servers.Redis(t))
	c.Set(t.Context(), "wrong", "a string", 0)
	in := newInput("0")
	var cmds []redis.Command
	for i := range 100 {
		k := "list"
		if i == 60 || i == 61 {
			k = "wrong"
		}
		cmds = append(cmds, redis.Command{"RPUSH", k, fmt.Sprint(i)})
	}
	in.batch(t, cmds...)
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	st := in.step(mark, 0)
	st.Tolerate = 1
	_, err := lane.Flush(t.Context(), st)
	if e, ok := errors.AsType[*sinks.Error](err); !ok || e.Kind != sinks.Poison || e.Bad[0].Number != 61 {
		t.Fatalf("got %v, want poison at 61", err)
	}
	checkLetters(t, c, in, 60)
	mark, err = lane.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in.dead[[2]int{0, 61}] = sinks.Reject{}
	in.finish(t, lane, mark)
	checkLetters(t, c, in, 60, 61)
	if n := c.LLen(t.Context(), "list").Val(); n != 98 {
		t.Errorf("list of %d, want 98", n)
	}
}
