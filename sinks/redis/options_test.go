package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/walsink/walsink/sinks"
)

// quiet drops the client library's own log.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	goredis.SetLogger(quiet{})
	goleak.VerifyTestMain(m)
}

func TestOptions(t *testing.T) {
	o, err := Options{}.withDefaults()
	if err != nil || o.Prefix != "walsink:" || o.AuditRows != 1000 || o.ChunkTime != 2*time.Millisecond || o.WaitTimeout != time.Second {
		t.Errorf("defaults %+v, %v", o, err)
	}
	if o, _ := (Options{AuditRows: -1}).withDefaults(); o.AuditRows != 0 {
		t.Errorf("%d rows, want none", o.AuditRows)
	}
	for _, bad := range []Options{{Prefix: "{a}"}, {Prefix: "a b"}, {WaitReplicas: -1}} {
		if _, err := bad.withDefaults(); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestOpenWithoutServer(t *testing.T) {
	const secret = "c4n4ry"
	c := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", Username: secret, Password: secret, MaxRetries: -1})
	defer c.Close()
	s, err := Open(t.Context(), c, Options{})
	if err != nil {
		t.Fatalf("a server that is down is no reason to refuse: %v", err)
	}
	defer s.Close()
	if i := s.Info(); i.Target != "redis://127.0.0.1:1/0" || i.Guarantee != sinks.ExactlyOnce || !i.Chunked || i.Format != Format {
		t.Errorf("info %+v", i)
	}
	_, _, err = s.Acquire(t.Context(), sinks.LaneID{Sink: "s", Lane: "0"})
	if sinks.KindOf(err) != sinks.Transient || strings.Contains(fmt.Sprint(err), secret) {
		t.Errorf("acquire: %v", err)
	}
	if _, _, err := s.Acquire(t.Context(), sinks.LaneID{}); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("acquire of no lane: %v", err)
	}
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	if _, err := Open(t.Context(), cluster, Options{WaitReplicas: 1}); err == nil {
		t.Error("waiting in a cluster was accepted")
	}
	if _, err := Open(t.Context(), c, Options{Prefix: "{"}); err == nil {
		t.Error("bad options were accepted")
	}
}

func TestTypedCommands(t *testing.T) {
	doc, err := SetJSON("j", map[string]int{"a": 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SetJSON("j", func() {}); err == nil {
		t.Error("a function became JSON")
	}
	for _, tt := range []struct {
		cmd  Command
		want string
	}{
		{Set("k", "v", 0), "SET k v"},
		{Set("k", "v", 1500*time.Millisecond), "SET k v PX 1500"},
		{Set("k", "v", 1), "SET k v PX 1"},
		{doc, `SET j {"a":1}`},
		{HSet("h", map[string]string{"b": "2", "a": "1"}), "HSET h a 1 b 2"},
		{IncrBy("n", -5), "INCRBY n -5"},
		{HIncrBy("h", "f", 2), "HINCRBY h f 2"},
		{RPush("l", "a", "b"), "RPUSH l a b"},
		{XAdd("s", "f", "v"), "XADD s * f v"},
		{ZAdd("z", 1.5, "m"), "ZADD z 1.5 m"},
		{Del("k"), "DEL k"},
	} {
		if got := strings.Join(tt.cmd, " "); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
		mustRecord(t, tt.cmd)
	}
}

// TestPlantedParts keeps the planted bugs in step with the script.
func TestPlantedParts(t *testing.T) {
	for _, part := range []string{moved, fenced, apply, store} {
		if !strings.Contains(flushSource, part) {
			t.Errorf("the flush script has no %q", part)
		}
	}
}
