package redis_test

import (
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// TestProbeBeforeOpen: a server is looked at that Open would refuse, and is left as it was.
func TestProbeBeforeOpen(t *testing.T) {
	n := startNode(t)
	admin := connect(t, n.addr())
	set := func(args ...any) func() {
		return func() { n.do(t, append([]any{"config", "set"}, args...)...) }
	}
	user := func(name string, rules ...any) *goredis.Client {
		args := append([]any{"acl", "setuser", name, "reset", "on", ">" + canary, "~*", "&*", "+@all"}, rules...)
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		o := quick(n.addr())
		o.Username, o.Password = name, canary
		return connectWith(t, o)
	}
	const exact, least = sinks.ExactlyOnce, sinks.AtLeastOnce
	for _, c := range []struct {
		name           string
		prepare        func()
		client         *goredis.Client
		opts           redis.Options
		subject, found string
		refuse, advice bool
		g              sinks.Guarantee
	}{
		{"fresh", func() {}, admin, redis.Options{}, "version", "7.", false, false, exact},
		{"fresh", func() {}, admin, redis.Options{}, "cluster", "no", false, false, exact},
		{"fresh", func() {}, admin, redis.Options{}, "maxmemory", "no limit", false, false, exact},
		{"fresh", func() {}, admin, redis.Options{}, "ledger", "all its commands", false, false, exact},
		{"fresh", func() {}, admin, redis.Options{}, "persistence", "none", false, true, least},
		{"waits for replicas", func() {}, admin, redis.Options{WaitReplicas: 1}, "replicas", "0", true, true, least},
		{"may evict", set("maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"), admin, redis.Options{}, "maxmemory-policy", "allkeys-lru", true, true, least},
		{"may evict, forced", func() {}, admin, redis.Options{ForceEviction: true}, "maxmemory-policy", "allkeys-lru", false, true, least},
		{"evicts with expiry", set("maxmemory-policy", "volatile-lru"), admin, redis.Options{}, "maxmemory-policy", "volatile-lru", false, false, exact},
		{"room", func() {}, admin, redis.Options{}, "maxmemory", "of 100 MiB used", false, false, exact},
		{"no room", set("maxmemory", "1"), admin, redis.Options{}, "maxmemory", "of 0 MiB used", false, true, exact},
		{"no room", set("maxmemory-policy", "noeviction"), admin, redis.Options{}, "ledger", "OOM", false, true, exact},
		{"snapshots", set("maxmemory", "0", "save", "60 1"), admin, redis.Options{}, "persistence", "snapshots", false, true, exact},
		{"everysec", set("appendonly", "yes", "appendfsync", "everysec"), admin, redis.Options{}, "persistence", "everysec", false, true, exact},
		{"everysec", func() {}, admin, redis.Options{}, "aof-load-truncated", "yes", false, true, exact},
		{"never synced", set("appendfsync", "no"), admin, redis.Options{}, "persistence", "appendfsync no", false, true, exact},
		{"always", set("appendfsync", "always"), admin, redis.Options{}, "persistence", "always", false, false, exact},
		{"too few replicas", set("min-replicas-to-write", "1"), admin, redis.Options{}, "min-replicas-to-write", "1", false, true, exact},
		{"too few replicas", func() {}, admin, redis.Options{}, "ledger", "NOREPLICAS", false, true, exact},
		{"no scripts", set("min-replicas-to-write", "0"), user("noscript", "-@scripting"), redis.Options{}, "scripts", "NOPERM", true, true, least},
		{"no HINCRBY", func() {}, user("nohincrby", "-hincrby"), redis.Options{}, "ledger", "HINCRBY: ", true, true, least},
		{"no DEL", func() {}, user("nodel", "-del"), redis.Options{}, "ledger", "DEL: ", true, true, least},
		{"no keys", func() {}, user("nokeys", "resetkeys", "~data:*"), redis.Options{}, "scripts", "NOPERM", true, true, least},
		{"no CONFIG", func() {}, user("noconfig", "-config"), redis.Options{}, "persistence", "not known", false, true, exact},
	} {
		c.prepare()
		all, err := redis.Probe(t.Context(), c.client, c.opts)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var hits []sinks.Finding
		for _, f := range all {
			if f.Subject == c.subject {
				hits = append(hits, f)
			}
		}
		if len(hits) != 1 || !strings.Contains(hits[0].Found, c.found) || hits[0].Refuse != c.refuse || hits[0].Guarantee != c.g || (hits[0].Advice != "") != c.advice {
			t.Errorf("%s: got %+v, want one about %q with %q, refuse %v, %v", c.name, all, c.subject, c.found, c.refuse, c.g)
		}
	}
	if size := admin.DBSize(t.Context()).Val(); size != 0 {
		t.Errorf("the probes left %d keys", size)
	}
	wrong := quick(n.addr())
	wrong.Username, wrong.Password = "nodel", canary+"x"
	if _, err := redis.Probe(t.Context(), connectWith(t, wrong), redis.Options{}); sinks.KindOf(err) != sinks.Permanent || strings.Contains(err.Error(), canary) {
		t.Errorf("wrong password: %v", err)
	}
	if _, err := redis.Probe(t.Context(), admin, redis.Options{Prefix: "{"}); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("bad options: %v", err)
	}
	n.kill()
	if _, err := redis.Probe(t.Context(), admin, redis.Options{}); sinks.KindOf(err) != sinks.Transient {
		t.Errorf("nobody there: %v", err)
	}
}

// TestProbeCluster: a node of a cluster without slots, by either kind of client.
func TestProbeCluster(t *testing.T) {
	n := startNode(t, "--cluster-enabled", "yes")
	all, err := redis.Probe(t.Context(), connect(t, n.addr()), redis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Subject == "cluster" && f.Refuse && f.Advice != "" {
			return
		}
	}
	t.Errorf("a client for a single server: %+v", all)
}
