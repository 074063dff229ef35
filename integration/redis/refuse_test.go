package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// TestLedgerRemoved removes ledger keys under an open lane.
func TestLedgerRemoved(t *testing.T) {
	c := connect(t, servers.Redis(t))
	for name, remove := range map[string]func(){
		"FLUSHALL": func() { c.FlushAll(context.Background()) },
		"DEL":      func() { c.Del(context.Background(), "walsink:mark:{test/0}") },
		"EXPIRE":   func() { c.PExpire(context.Background(), "walsink:mark:{test/0}", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			in := countInput(t, "0", 90, 30)
			c.FlushAll(t.Context())
			lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
			mark = in.upTo(1).finish(t, lane, mark)
			remove()
			_, err := lane.Flush(t.Context(), in.step(mark, 1))
			if sinks.KindOf(err) != sinks.Moved || !strings.Contains(err.Error(), "walsink:mark:{test/0}") {
				t.Errorf("flush: %v, want moved, naming the key", err)
			}
			m, err := lane.Mark(t.Context())
			if err != nil || m.Tip() != in.id.Genesis() || m.Seq != 0 {
				t.Errorf("mark %+v, %v: want that of a new lane", m, err)
			}
			if n := c.LLen(t.Context(), "list").Val(); name != "FLUSHALL" && n != 8 {
				t.Errorf("list of %d, want nothing written", n)
			}
		})
	}
}

// TestWrongTypeOfLedgerKeys puts other things where the ledger is.
func TestWrongTypeOfLedgerKeys(t *testing.T) {
	c := connect(t, servers.Redis(t))
	for _, key := range []string{"mark:{test/0}", "audit:{test/0}", "dead:{test/0}", "lanes:test"} {
		t.Run(key, func(t *testing.T) {
			c.FlushAll(t.Context())
			in := countInput(t, "0", 30, 30)
			s := open(t, c, redis.Options{})
			c.Set(t.Context(), "walsink:"+key, "x", 0)
			lane, mark, err := s.Acquire(t.Context(), in.id)
			if err == nil {
				defer lane.Close()
				_, err = lane.Flush(t.Context(), in.step(mark, 0))
			}
			if sinks.KindOf(err) != sinks.Permanent || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), "set another prefix") {
				t.Errorf("got %v, want permanent WRONGTYPE with advice", err)
			}
			if n := c.Exists(t.Context(), "counts", "list", "stream", "scores").Val(); n != 0 {
				t.Errorf("%d keys were written", n)
			}
		})
	}
	t.Run("while in use", func(t *testing.T) {
		c.FlushAll(t.Context())
		in := countInput(t, "0", 60, 30)
		lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
		mark = in.upTo(1).finish(t, lane, mark)
		c.Set(t.Context(), "walsink:mark:{test/0}", "x", 0)
		if _, err := lane.Flush(t.Context(), in.step(mark, 1)); sinks.KindOf(err) != sinks.Permanent {
			t.Errorf("flush: %v, want permanent", err)
		}
	})
}

// canary is a password that must not be seen anywhere.
const canary = "c4n4ry-s3cret"

// try flushes a batch through a client of its own.
func try(t *testing.T, o *goredis.Options) error {
	t.Helper()
	in := countInput(t, "0", 30, 30)
	s, err := redis.Open(t.Context(), connectWith(t, o), redis.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	lane, mark, err := s.Acquire(t.Context(), in.id)
	if err != nil {
		return err
	}
	defer lane.Close()
	_, err = lane.Flush(t.Context(), in.step(mark, 0))
	return err
}

// TestRefusals meets servers that do not let us in, or not do what is needed.
func TestRefusals(t *testing.T) {
	n := startNode(t, "--enable-debug-command", "yes")
	admin := connect(t, n.addr())
	ctx := t.Context()
	user := func(name string, rules ...string) *goredis.Options {
		args := []any{"acl", "setuser", name, "reset", "on", ">" + canary, "~*", "&*"}
		for _, r := range rules {
			args = append(args, r)
		}
		if err := admin.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
		o := quick(n.addr())
		o.Username, o.Password = name, canary
		return o
	}
	wrong := user("someone", "+@all")
	wrong.Password = canary + "x"
	closed := quick(n.addr())
	closed.Dialer = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	for _, tt := range []struct {
		name string
		opts *goredis.Options
		kind sinks.Kind
		text string
	}{
		{"no rights to scripts", user("noscript", "+@all", "-@scripting"), sinks.Permanent, "NOPERM"},
		{"no rights to a command of a record", user("nolist", "+@all", "-rpush"), sinks.Permanent, "record 1"},
		{"no rights to the ledger", user("nokeys", "+@all", "resetkeys", "~data:*"), sinks.Permanent, "NOPERM"},
		{"no rights to dead letters only", user("noxadd", "+@all", "-ltrim"), 0, ""},
		{"wrong password", wrong, sinks.Permanent, "WRONGPASS"},
		{"no database of that number", &goredis.Options{Addr: n.addr(), DB: 9999}, sinks.Permanent, "out of range"},
		{"nobody there", closed, sinks.Transient, "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			admin.FlushAll(ctx)
			err := try(t, tt.opts)
			if sinks.KindOf(err) != tt.kind || err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %v with %q", err, tt.kind, tt.text)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("the password is in the error: %v", err)
			}
		})
	}
	t.Run("no password given", func(t *testing.T) {
		admin.ConfigSet(ctx, "requirepass", canary)
		defer func() {
			o := quick(n.addr())
			o.Password = canary
			connectWith(t, o).ConfigSet(ctx, "requirepass", "")
		}()
		if err := try(t, quick(n.addr())); sinks.KindOf(err) != sinks.Permanent || !strings.Contains(err.Error(), "NOAUTH") {
			t.Errorf("got %v, want permanent NOAUTH", err)
		}
	})
}

// TestNotNow meets servers that are busy, lack a replica, or cannot save.
func TestNotNow(t *testing.T) {
	n := startNode(t)
	admin := connect(t, n.addr())
	ctx := t.Context()
	t.Run("BUSY", func(t *testing.T) {
		admin.ConfigSet(ctx, "lua-time-limit", "1")
		var wg sync.WaitGroup
		wg.Go(func() { connect(t, n.addr()).Eval(context.Background(), "while true do end", nil) })
		await(t, "the script to be noticed", func() error {
			if err := admin.Ping(ctx).Err(); err == nil {
				return errors.New("not busy yet")
			}
			return nil
		})
		if err := try(t, quick(n.addr())); sinks.KindOf(err) != sinks.Transient || !strings.Contains(err.Error(), "BUSY") {
			t.Errorf("got %v, want transient BUSY", err)
		}
		admin.ScriptKill(ctx)
		wg.Wait()
	})
	t.Run("NOREPLICAS", func(t *testing.T) {
		admin.ConfigSet(ctx, "min-replicas-to-write", "1")
		defer admin.ConfigSet(ctx, "min-replicas-to-write", "0")
		if err := try(t, quick(n.addr())); sinks.KindOf(err) != sinks.Transient || !strings.Contains(err.Error(), "NOREPLICAS") {
			t.Errorf("got %v, want transient NOREPLICAS", err)
		}
	})
	t.Run("MISCONF", func(t *testing.T) {
		admin.ConfigSet(ctx, "save", "3600 1")
		admin.Set(ctx, "x", "1", 0)
		if err := os.RemoveAll(n.dir); err != nil {
			t.Fatal(err)
		}
		admin.BgSave(ctx)
		await(t, "the failed save", func() error {
			if info := n.do(t, "info", "persistence"); !strings.Contains(info, "rdb_last_bgsave_status:err") {
				return errors.New("not yet")
			}
			return nil
		})
		if err := try(t, quick(n.addr())); sinks.KindOf(err) != sinks.Transient || !strings.Contains(err.Error(), "MISCONF") {
			t.Errorf("got %v, want transient MISCONF", err)
		}
		admin.ConfigSet(ctx, "save", "")
	})
}

// TestEviction opens on servers that may evict the ledger.
func TestEviction(t *testing.T) {
	n := startNode(t, "--maxmemory", "10mb")
	c := connect(t, n.addr())
	for policy, refused := range map[string]bool{
		"noeviction": false, "volatile-lru": false, "volatile-ttl": false, "allkeys-lru": true, "allkeys-random": true,
	} {
		c.ConfigSet(t.Context(), "maxmemory-policy", policy)
		s, err := redis.Open(t.Context(), c, redis.Options{})
		if (err != nil) != refused || refused && (sinks.KindOf(err) != sinks.Permanent || !strings.Contains(err.Error(), policy)) {
			t.Errorf("%s: %v, want refused %v", policy, err, refused)
		}
		if err == nil {
			s.Close()
		}
		s = open(t, c, redis.Options{ForceEviction: true})
		if f := probe(t, s, "maxmemory-policy"); f.Refuse || (f.Advice != "") != refused {
			t.Errorf("%s forced: %+v", policy, f)
		}
	}
}

func probe(t *testing.T, s *redis.Sink, subject string) sinks.Finding {
	t.Helper()
	all, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Subject == subject {
			return f
		}
	}
	t.Fatalf("no finding about %s in %+v", subject, all)
	return sinks.Finding{}
}

func TestProbe(t *testing.T) {
	master, replica, _, c := pair(t)
	s := open(t, c, redis.Options{})
	for _, tt := range []struct {
		what, subject, found string
		refuse               bool
		do                   func()
	}{
		{"plain", "persistence", "none", false, func() {}},
		{"replicas", "replicas", "1", false, func() {}},
		{"scripts", "scripts", "allowed", false, func() {}},
		{"aof", "persistence", "append-only file, appendfsync always", false, func() {
			master.do(t, "config", "set", "appendonly", "yes", "appendfsync", "always")
		}},
		{"snapshots", "persistence", "snapshots", false, func() {
			master.do(t, "config", "set", "appendonly", "no", "save", "60 1")
		}},
	} {
		tt.do()
		if f := probe(t, s, tt.subject); f.Found != tt.found || f.Refuse != tt.refuse {
			t.Errorf("%s: %+v", tt.what, f)
		}
	}
	at := open(t, connect(t, replica.addr()), redis.Options{})
	if f := probe(t, at, "replicas"); !f.Refuse {
		t.Errorf("a replica: %+v", f)
	}
	t.Run("another client for a cluster", func(t *testing.T) {
		ring := goredis.NewRing(&goredis.RingOptions{})
		defer ring.Close()
		if _, err := redis.Open(t.Context(), ring, redis.Options{}); err == nil {
			t.Error("a ring was accepted")
		}
		n := startNode(t, "--cluster-enabled", "yes")
		if _, err := redis.Open(t.Context(), connect(t, n.addr()), redis.Options{}); sinks.KindOf(err) != sinks.Permanent {
			t.Errorf("a plain client for a cluster node: %v", err)
		}
	})
}

// TestOtherDatabase selects another database: another ledger.
func TestOtherDatabase(t *testing.T) {
	addr := servers.Redis(t)
	in := countInput(t, "0", 30, 30)
	lane, mark := acquire(t, open(t, connect(t, addr), redis.Options{}), in.id)
	in.finish(t, lane, mark)
	other := connectWith(t, &goredis.Options{Addr: addr, DB: 3})
	_, mark = acquire(t, open(t, other, redis.Options{}), in.id)
	if mark.Seq != 0 {
		t.Errorf("mark in another database %+v", mark)
	}
}

// TestLoading meets a server that still reads its data.
func TestLoading(t *testing.T) {
	n := startNode(t, "--appendonly", "yes", "--key-load-delay", "0")
	c := connectWith(t, quick(n.addr()))
	in := countInput(t, "0", 200, 100)
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	mark = in.upTo(1).finish(t, lane, mark)
	p := c.Pipeline()
	for i := range 20000 {
		p.Set(t.Context(), fmt.Sprint("k", i), "v", 0)
	}
	if _, err := p.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.kill()
	n.args = append(n.args[:len(n.args)-1], "300", "--loading-process-events-interval-bytes", "1024")
	n.launch()
	loading := false
	await(t, "the flush", func() error {
		_, err := lane.Flush(t.Context(), in.step(mark, 1))
		if err != nil {
			if strings.Contains(err.Error(), "LOADING") {
				if loading = true; sinks.KindOf(err) != sinks.Transient {
					t.Errorf("got %v, want transient", err)
				}
			}
			if m, merr := lane.Mark(t.Context()); merr == nil {
				mark = m
			}
			if int(mark.Seq) == 2 {
				return nil
			}
		}
		return err
	})
	checkCounters(t, c, 200)
	if !loading {
		t.Error("the server was never seen loading")
	}
}
