package redis_test

import (
	"strconv"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/faults"
	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
	"github.com/walsink/walsink/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	h := conformance(t, servers.Redis(t))
	t.Run("single", func(t *testing.T) { sinktest.Run(t, h) })
}

func BenchmarkConformance(b *testing.B) { sinktest.Bench(b, conformance(b, servers.Redis(b))) }

// conformance keeps the records of a lane in a list. Its sinks reach the server
// through a proxy.
func conformance(t testing.TB, addr string) sinktest.Harness {
	c, cutter := connect(t, addr), newCutter(t, addr)
	through := connectWith(t, quick(cutter.Addr()))
	if err := c.Set(t.Context(), "text", "is no list", 0).Err(); err != nil {
		t.Fatal(err)
	}
	list := func(id sinks.LaneID) string { return "list:" + id.String() }
	return sinktest.Harness{
		Open: func(t testing.TB) sinks.Sink {
			s, err := redis.Open(t.Context(), through, redis.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Visible: func(t testing.TB, id sinks.LaneID) [][]byte {
			var payloads [][]byte
			if err := c.LRange(t.Context(), list(id), 0, -1).ScanSlice(&payloads); err != nil {
				t.Fatal(err)
			}
			return payloads
		},
		Encode: func(id sinks.LaneID, payload []byte) []byte { return rec(t, redis.RPush(list(id), string(payload))) },
		Bad:    func(_ sinks.LaneID, payload []byte) []byte { return rec(t, redis.RPush("text", string(payload))) },
		Binary: true,
		DeadLetters: func(t testing.TB, id sinks.LaneID) []sinks.DeadLetter {
			return letters(t, c, "walsink:dead:{"+id.String()+"}")
		},
		Snapshot:    func(t testing.TB) func() { return dump(t, c) },
		Break:       func(t testing.TB) func() { cutter.Refuse(); cutter.ResetAll(); return func() { mend(t, cutter) } },
		LoseAnswers: func(t testing.TB) func() { return loseAnswer(t, cutter) },
	}
}

func newCutter(t testing.TB, addr string) *faults.Cutter {
	t.Helper()
	cutter, err := faults.NewCutter(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cutter.Close() })
	return cutter
}

func mend(t testing.TB, cutter *faults.Cutter) {
	if err := cutter.Heal(); err != nil {
		t.Fatal(err)
	}
}

func loseAnswer(t testing.TB, cutter *faults.Cutter) (heal func()) {
	tripped := cutter.Arm(faults.Cut{Dir: faults.ToServer, Match: "evalsha\r\n", Do: faults.LoseAnswer})
	return func() {
		select {
		case <-tripped:
		default:
			t.Error("no answer was lost")
		}
		mend(t, cutter)
	}
}

// letters reads a stream of dead letters.
func letters(t testing.TB, c goredis.UniversalClient, stream string) (all []sinks.DeadLetter) {
	t.Helper()
	messages, err := c.XRange(t.Context(), stream, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		number := func(field string) uint64 {
			n, err := strconv.ParseUint(m.Values[field].(string), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		all = append(all, sinks.DeadLetter{
			Reject: sinks.Reject{Number: number("number")}, Checkpoint: number("checkpoint"), Record: []byte(m.Values["record"].(string)),
		})
	}
	return all
}

// dump remembers the whole database.
func dump(t testing.TB, c *goredis.Client) (restore func()) {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	saved := map[string]string{}
	for _, key := range keys {
		if saved[key], err = c.Dump(t.Context(), key).Result(); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for key, value := range saved {
			if err := c.Restore(t.Context(), key, 0, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
