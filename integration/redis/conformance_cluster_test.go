package redis_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
	"github.com/walsink/walsink/sinks/sinktest"
)

// TestConformanceTinyChunks runs the suite with chunks as small as can be, so that
// most steps have several.
func TestConformanceTinyChunks(t *testing.T) {
	addr := servers.Redis(t)
	w := &wire{}
	c := connect(t, addr)
	h := spreadHarness(t, c, 1)
	h.Snapshot = func(t testing.TB) func() { return dump(t, c) }
	h.Open = func(t testing.TB) sinks.Sink { return unclosed(t, w.single(t, addr), redis.Options{ChunkTime: 1}) }
	h.Break, h.LoseAnswers = w.refuse, w.mute
	sinktest.Run(t, h)
}

// TestConformanceCluster holds a cluster to what a reader can see of it: while a
// step is interrupted or stops at a bad record, some slots may be ahead of the mark,
// which then shows the batch pinned.
func TestConformanceCluster(t *testing.T) {
	c := startCluster(t)
	w := &wire{}
	h := spreadHarness(t, c.ClusterClient, 5)
	h.Open = func(t testing.TB) sinks.Sink {
		return ahead{unclosed(t, w.cluster(t, c.ClusterClient), redis.Options{})}
	}
	h.Snapshot = c.dump
	h.Break, h.LoseAnswers, h.Unordered = w.refuse, w.mute, true
	sinktest.Run(t, h)
}

// ahead is a sink of which more may be visible than its mark says, until the step is
// done: that is what the suite holds a sink to that declares Idempotent.
type ahead struct{ *redis.Sink }

func (a ahead) Info() sinks.Info {
	info := a.Sink.Info()
	info.Guarantee = sinks.Idempotent
	return info
}

// dump remembers what all nodes hold.
func (c *cluster) dump(t testing.TB) (restore func()) {
	var all []func()
	for _, n := range c.nodes {
		all = append(all, dump(t, connect(t, n.addr())))
	}
	return func() {
		for _, restore := range all {
			restore()
		}
	}
}

// unclosed opens a sink that the suite closes.
func unclosed(t testing.TB, c goredis.UniversalClient, opts redis.Options) *redis.Sink {
	s, err := redis.Open(t.Context(), c, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// spreadHarness keeps the records of a lane in so many lists.
func spreadHarness(t testing.TB, c goredis.UniversalClient, lists int) sinktest.Harness {
	key := func(id sinks.LaneID, n int) string { return fmt.Sprintf("records:%s:%d", id, n) }
	if err := c.Set(t.Context(), "no list", "x", time.Duration(0)).Err(); err != nil {
		t.Fatal(err)
	}
	return sinktest.Harness{
		Binary: true,
		Encode: func(id sinks.LaneID, payload []byte) []byte {
			n := 0
			for _, b := range payload {
				n += int(b)
			}
			return rec(t, redis.RPush(key(id, n%lists), string(payload)))
		},
		Bad: func(_ sinks.LaneID, payload []byte) []byte { return rec(t, redis.RPush("no list", string(payload))) },
		Visible: func(t testing.TB, id sinks.LaneID) (all [][]byte) {
			for n := range lists {
				list, err := c.LRange(t.Context(), key(id, n), 0, -1).Result()
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range list {
					all = append(all, []byte(s))
				}
			}
			return all
		},
		DeadLetters: func(t testing.TB, id sinks.LaneID) []sinks.DeadLetter {
			return letters(t, c, "walsink:dead:{"+id.String()+"}")
		},
	}
}
