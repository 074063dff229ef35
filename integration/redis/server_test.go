package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// inTurn flushes the batches of in one by one.
func (in *input) inTurn(t testing.TB, lane sinks.Lane, mark sinks.Mark) sinks.Mark {
	t.Helper()
	for i := range in.batches {
		if int(mark.Seq) <= i {
			mark = in.upTo(i+1).finish(t, lane, mark)
		}
	}
	return mark
}

// meanwhile calls f again and again until the function it returns is called.
func meanwhile(f func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				f()
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

// after is a fault's own clock.
func after(d time.Duration) { <-time.After(d) }

// quick are client options for servers that go away.
func quick(addr string) *goredis.Options {
	return &goredis.Options{Addr: addr, DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second}
}

func connectWith(t testing.TB, o *goredis.Options) *goredis.Client {
	c := goredis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestServerKilled kills the server during a flush and starts it again on its
// append-only file.
func TestServerKilled(t *testing.T) {
	n := startNode(t, "--appendonly", "yes", "--appendfsync", "always")
	c := connectWith(t, quick(n.addr()))
	in := countInput(t, "0", 40000, 1000)
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	began := time.Now()
	mark = in.upTo(1).finish(t, lane, mark)
	took := time.Since(began) // a batch, on this machine
	rounds := 0
	stop := meanwhile(func() {
		after(time.Duration(rounds%7) * took / 2)
		n.kill()
		n.mend()
		n.start()
		rounds++
	})
	mark = in.inTurn(t, lane, mark)
	stop()
	if mark.Records != 40000 {
		t.Errorf("mark %+v", mark)
	}
	await(t, "the server", func() error { return c.Ping(context.Background()).Err() })
	checkCounters(t, c, 40000)
	campaign.Figures{Cycles: rounds, Rows: 40000, Faults: map[string]int{"kill -9 of the server": rounds}}.Report(t)
}

// TestServerPaused stops the server's process for longer than the client waits.
func TestR05ServerPaused(t *testing.T) {
	n := startNode(t)
	o := quick(n.addr())
	o.ReadTimeout = 50 * time.Millisecond
	c := connectWith(t, o)
	in := countInput(t, "0", 6000, 100)
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	stop := meanwhile(func() {
		n.signal(syscall.SIGSTOP)
		after(80 * time.Millisecond)
		n.signal(syscall.SIGCONT)
		after(40 * time.Millisecond)
	})
	in.inTurn(t, lane, mark)
	stop()
	checkCounters(t, connect(t, n.addr()), 6000)
}

// TestFullMemory flushes into a server without room, and makes room.
func TestFullMemory(t *testing.T) {
	n := startNode(t, "--maxmemory", "4mb")
	c := connect(t, n.addr())
	in := newInput("0")
	for i := range 60 {
		in.batch(t, redis.Command{"SET", fmt.Sprint("big", i), strings.Repeat("x", 50_000)}, redis.Command{"INCR", "n"})
	}
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	full := false
	for i := range in.batches {
		_, err := lane.Flush(t.Context(), in.step(mark, i))
		if sinks.KindOf(err) == sinks.Transient && strings.Contains(err.Error(), "OOM") {
			full = true
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if mark, err = lane.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !full {
		t.Fatal("the memory never got full")
	}
	if m, err := lane.Mark(t.Context()); err != nil || m.Tip() != mark.Tip() {
		t.Errorf("mark of a full server %+v, %v: want it unchanged", m, err)
	}
	c.ConfigSet(t.Context(), "maxmemory", "100mb")
	in.finish(t, lane, mark)
	if got := c.Get(t.Context(), "n").Val(); got != "60" {
		t.Errorf("n = %s, want 60", got)
	}
}

// A switchboard is a dialer that leads to one of several servers.
type switchboard struct {
	mu sync.Mutex
	to string
}

func (s *switchboard) set(addr string) { s.mu.Lock(); s.to = addr; s.mu.Unlock() }

func (s *switchboard) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	s.mu.Lock()
	to := s.to
	s.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, network, to)
}

// pair starts a master with a replica that is in step, and a client that follows
// whichever is named master.
func pair(t testing.TB) (master, replica *node, s *switchboard, c *goredis.Client) {
	master = startNode(t, "--repl-diskless-sync-delay", "0")
	replica = startNode(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(master.port))
	await(t, "the replica", func() error {
		if info := replica.do(t, "info", "replication"); !strings.Contains(info, "master_link_status:up") {
			return errors.New(info)
		}
		return nil
	})
	s = &switchboard{to: master.addr()}
	o := quick("the-master:1")
	o.Dialer = s.dial
	return master, replica, s, connectWith(t, o)
}

// TestFailoverLosesTail promotes a replica that has not got the last batches. They
// are flushed again, to it, from where its mark stands.
func TestFailoverLosesTail(t *testing.T) {
	master, replica, to, c := pair(t)
	in := countInput(t, "0", 1000, 100)
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	mark = in.upTo(4).inTurn(t, lane, mark)
	m := connect(t, master.addr())
	await(t, "replication", func() error {
		if n := m.Wait(context.Background(), 1, time.Second).Val(); n != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	replica.do(t, "replicaof", "no", "one") // from here on it falls behind
	mark = in.upTo(7).inTurn(t, lane, mark)
	if mark.Seq != 7 {
		t.Fatalf("mark %+v", mark)
	}
	to.set(replica.addr())
	master.kill()
	if _, err := lane.Flush(t.Context(), in.step(mark, 7)); err == nil {
		t.Fatal("flush after the fail-over went through")
	}
	back, err := lane.Mark(t.Context())
	if err != nil {
		back, err = lane.Mark(t.Context())
	}
	if err != nil || back.Seq != 4 {
		t.Fatalf("mark after the fail-over %+v, %v: want batch 4", back, err)
	}
	in.finish(t, lane, back)
	checkCounters(t, connect(t, replica.addr()), 1000)
}

// TestFailoverLosesFence promotes a replica that has not even got the last Acquire.
func TestFailoverLosesFence(t *testing.T) {
	master, replica, to, c := pair(t)
	in := countInput(t, "0", 500, 100)
	s := open(t, c, redis.Options{})
	lane, mark := acquire(t, s, in.id)
	in.upTo(2).inTurn(t, lane, mark)
	m := connect(t, master.addr())
	await(t, "replication", func() error {
		if n := m.Wait(context.Background(), 1, time.Second).Val(); n != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	replica.do(t, "replicaof", "no", "one")
	lane, mark = acquire(t, s, in.id)
	mark = in.upTo(3).inTurn(t, lane, mark)
	to.set(replica.addr())
	master.kill()
	_, err := lane.Flush(t.Context(), in.step(mark, 4))
	for sinks.KindOf(err) == sinks.Ambiguous || sinks.KindOf(err) == sinks.Transient {
		if _, err = lane.Mark(t.Context()); err == nil {
			break
		}
	}
	if sinks.KindOf(err) == sinks.Fenced {
		t.Fatalf("a fence that was lost fences its own owner: %v", err)
	}
	mark, err = lane.Mark(t.Context())
	if err != nil || mark.Seq != 2 {
		t.Fatalf("mark %+v, %v", mark, err)
	}
	in.finish(t, lane, mark)
	checkCounters(t, connect(t, replica.addr()), 500)
}

// TestR08Demoted makes the master a replica under a flush: the pooled connection
// answers READONLY, and the next one leads to the new master.
func TestR08Demoted(t *testing.T) {
	master, replica, to, c := pair(t)
	in := countInput(t, "0", 2000, 100)
	lane, mark := acquire(t, open(t, c, redis.Options{WaitReplicas: 0}), in.id)
	mark = in.upTo(10).inTurn(t, lane, mark)
	connect(t, master.addr()).Wait(t.Context(), 1, time.Second)
	replica.do(t, "replicaof", "no", "one")
	master.do(t, "replicaof", "127.0.0.1", replica.port)
	to.set(replica.addr())
	_, err := lane.Flush(t.Context(), in.step(mark, 10))
	if sinks.KindOf(err) != sinks.Transient || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("flush to a demoted master: %v, want transient READONLY", err)
	}
	mark, err = lane.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in.inTurn(t, lane, mark)
	checkCounters(t, connect(t, replica.addr()), 2000)
}

func TestWaitReplicas(t *testing.T) {
	opts := redis.Options{WaitReplicas: 1, WaitTimeout: 200 * time.Millisecond}
	t.Run("there is one", func(t *testing.T) {
		_, replica, _, c := pair(t)
		in := countInput(t, "0", 300, 100)
		lane, mark := acquire(t, open(t, c, opts), in.id)
		in.inTurn(t, lane, mark)
		checkCounters(t, connect(t, replica.addr()), 300) // it has it when Flush returns
	})
	t.Run("it hangs", func(t *testing.T) {
		_, replica, _, c := pair(t)
		in := countInput(t, "0", 300, 100)
		lane, mark := acquire(t, open(t, c, opts), in.id)
		mark = in.upTo(1).inTurn(t, lane, mark)
		replica.signal(syscall.SIGSTOP)
		_, err := lane.Flush(t.Context(), in.step(mark, 1))
		if sinks.KindOf(err) != sinks.Ambiguous {
			t.Errorf("flush: %v, want ambiguous", err)
		}
		if _, err := lane.Mark(t.Context()); err == nil {
			t.Error("the mark counts though no replica has it")
		}
		replica.signal(syscall.SIGCONT)
		await(t, "the replica", func() error { mark, err = lane.Mark(t.Context()); return err })
		in.finish(t, lane, mark)
		checkCounters(t, c, 300)
	})
	t.Run("WAITAOF needs a newer server", func(t *testing.T) {
		_, err := redis.Open(t.Context(), connect(t, servers.Redis(t)), redis.Options{WaitAOF: true})
		if sinks.KindOf(err) != sinks.Permanent || !strings.Contains(err.Error(), "7.2") {
			t.Skipf("the server has it: %v", err)
		}
	})
}
