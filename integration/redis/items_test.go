package redis_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// TestArguments flushes commands with arguments of all lengths, in series that have
// more or less in common, and compares the store with one that got the same commands
// from the client library.
func TestArguments(t *testing.T) {
	addr := servers.Redis(t)
	c, plain := connect(t, addr), connectWith(t, &goredis.Options{Addr: addr, DB: 1})
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			if err := c.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			in := newInput("0")
			w := writer{rnd: rand.New(rand.NewPCG(seed, 1))}
			for range 2 {
				var recs [][]byte
				for len(recs) < 250 {
					for _, cmds := range w.series() {
						recs = append(recs, rec(t, cmds...))
						apply(t, plain, cmds)
					}
				}
				in.raw(recs...)
			}
			chunk := []time.Duration{1, time.Millisecond, time.Second}[seed%3]
			lane, mark := acquire(t, open(t, c, redis.Options{ChunkTime: chunk}), in.id)
			in.finish(t, lane, mark)
			compare(t, c, plain)
		})
	}
}

// TestManyShortArguments has chunks of more short arguments than a pack takes, with all
// kinds of records behind them.
func TestManyShortArguments(t *testing.T) {
	addr := servers.StartRedis(t, "--proto-max-bulk-len", "1mb").Addr()
	c, plain := connect(t, addr), connectWith(t, &goredis.Options{Addr: addr, DB: 1})
	lane, mark := acquire(t, open(t, c, redis.Options{ChunkTime: time.Minute}), sinks.LaneID{Sink: "test", Lane: "0"})
	in := newInput("0")
	for i := range 4 { // the first makes the chunks grow, the second one is too large for a pack
		var recs [][]byte
		for n := range []int{9000, 20_000, 500, 6000}[i] {
			text := strings.Repeat(fmt.Sprint(n%10), 120)
			record := []redis.Command{{"RPUSH", fmt.Sprint("list", n%50), text, strings.Repeat("x", n%100)}}
			switch { // each kind in a row, and each one behind each other one
			case n/40%3 == 1:
				record = []redis.Command{{"SET", fmt.Sprint("text", n%70), text}}
			case n/40%3 == 2:
				record = []redis.Command{{"HSET", fmt.Sprint("hash", n%70), "a", text, "b", fmt.Sprint(n)}}
			}
			if n%97 == 0 {
				record = append(record, redis.Command{"RPUSH", "log", fmt.Sprint(n)})
			}
			recs = append(recs, rec(t, record...))
			apply(t, plain, record)
		}
		in.raw(recs...)
		if i == 0 {
			mark = in.finish(t, lane, mark)
		}
	}
	mark = in.finish(t, lane, mark)
	compare(t, c, plain)
	again, err := lane.Mark(t.Context())
	if err != nil || again.Records != 35_500 || mark.Records != 35_500 {
		t.Errorf("the mark counts %d records, want 35,500: %v", again.Records, err)
	}
}

// TestMostArguments has commands with as many arguments as a record may hold, alone and
// with others in a record.
func TestMostArguments(t *testing.T) {
	var good [][]redis.Command
	for i := range 12 {
		push := func(key string) redis.Command {
			cmd := redis.Command{"RPUSH", key}
			for n := range redis.MaxArgs - 2 {
				cmd = append(cmd, fmt.Sprint(i, "-", n))
			}
			return cmd
		}
		cmd := push("list")
		if i%3 == 2 {
			cmd[2000] = strings.Repeat("x", 1000)
		}
		good = append(good, []redis.Command{cmd}, []redis.Command{push("a"), push("b")})
	}
	refused := redis.Command{"RPUSH", "wrong"}
	for n := range redis.MaxArgs - 2 {
		refused = append(refused, fmt.Sprint(n))
	}
	refuseSome(t, good, []redis.Command{refused})
}

// TestSeriesWithRefused has series of commands that share a name and fields, of all the
// lengths that are sent in short, in which some are refused: the dead letters have the
// commands as they were.
func TestSeriesWithRefused(t *testing.T) {
	for argc := 3; argc <= 14; argc++ {
		t.Run(fmt.Sprint(argc, " arguments"), func(t *testing.T) {
			command := func(key, value string) []redis.Command {
				if argc%2 == 1 {
					return []redis.Command{append(redis.Command{"SADD", key}, slices.Repeat([]string{"member"}, argc-2)...)}
				}
				cmd := redis.Command{"HSET", key}
				for n := 2; n < argc; n += 2 {
					cmd = append(cmd, fmt.Sprint("field", n), value+fmt.Sprint(n))
				}
				return []redis.Command{cmd}
			}
			var good [][]redis.Command
			for i := range 60 {
				good = append(good, command(fmt.Sprint("key", i%7), fmt.Sprint(i)))
			}
			long := strings.Repeat("long", 100)
			good = append(good, command("key", long))
			refuseSome(t, good, command("wrong", "short"), command("wrong", long))
		})
	}
}

// refuseSome flushes records of which those at the end, and once more in the middle, are refused
// because the key "wrong" is a string, and compares the store and the dead letters.
func refuseSome(t *testing.T, good [][]redis.Command, refused ...[]redis.Command) {
	t.Helper()
	addr := servers.Redis(t)
	c, plain := connect(t, addr), connectWith(t, &goredis.Options{Addr: addr, DB: 1})
	for _, c := range []*goredis.Client{c, plain} {
		if err := c.Set(t.Context(), "wrong", 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	half := len(good) / 2
	in := newInput("0")
	var recs, dead [][]byte
	for i, cmds := range slices.Concat(good[:half], refused, good[half:], refused) {
		r := rec(t, cmds...)
		recs = append(recs, r)
		if i >= half && i < half+len(refused) || i >= len(good)+len(refused) {
			dead = append(dead, r)
			continue
		}
		apply(t, plain, cmds)
	}
	in.raw(recs...)
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	step := in.step(mark, 0)
	step.Tolerate = len(dead)
	if _, err := lane.Flush(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	compare(t, c, plain)
	var got [][]byte
	for _, m := range c.XRange(t.Context(), "walsink:dead:{"+in.id.String()+"}", "-", "+").Val() {
		got = append(got, []byte(m.Values["record"].(string)))
	}
	if !slices.EqualFunc(got, dead, bytes.Equal) {
		t.Errorf("dead letters %.300q, want %.300q", got, dead)
	}
}

// A writer thinks of commands.
type writer struct{ rnd *rand.Rand }

// text is one of few texts of a random length.
func (w writer) text() string {
	n := []int{0, 1, 5, 31, 32, 100, 127, 128, 129, 255, 256, 1000, 20_000}[min(w.rnd.IntN(40), w.rnd.IntN(13))]
	return strings.Repeat(string(rune(w.rnd.IntN(256))), n)
}

// series returns up to 30 records of alike commands.
func (w writer) series() (recs [][]redis.Command) {
	kind, many := w.rnd.IntN(5), w.rnd.IntN(8) == 0
	field := "b"
	key, value, amount := fmt.Sprint(kind, "-", w.rnd.IntN(20)), w.text(), fmt.Sprint(w.rnd.IntN(3))
	for range 1 + w.rnd.IntN(30) {
		if w.rnd.IntN(12) == 0 {
			key = fmt.Sprint(kind, "-", w.rnd.IntN(20))
		}
		if w.rnd.IntN(3) > 0 {
			value = w.text()
		}
		if w.rnd.IntN(20) == 0 {
			field = fmt.Sprint("f", w.rnd.IntN(9))
		}
		cmd := []redis.Command{
			{"SET", key, value}, {"HSET", key, "a", value, field, value}, {"RPUSH", key, value, "end"},
			{"INCRBY", key, amount}, {"SADD", key, value},
		}[kind]
		rec := []redis.Command{cmd}
		if many {
			rec = append(rec, redis.Command{"APPEND", "log", value}, redis.Command{"HINCRBY", "counts", fmt.Sprint(kind), "1"})
		}
		recs = append(recs, rec)
	}
	return recs
}

// apply runs commands through the client library.
func apply(t testing.TB, c *goredis.Client, cmds []redis.Command) {
	t.Helper()
	p := c.Pipeline()
	for _, cmd := range cmds {
		args := make([]any, len(cmd))
		for i, a := range cmd {
			args[i] = a
		}
		p.Do(t.Context(), args...)
	}
	if _, err := p.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// compare compares all keys but those of the ledger.
func compare(t testing.TB, got, want *goredis.Client) {
	t.Helper()
	g, w := contents(t, got), contents(t, want)
	if len(w) == 0 || !slices.Equal(slices.Sorted(maps.Keys(g)), slices.Sorted(maps.Keys(w))) {
		t.Fatalf("keys %q, want %q", slices.Sorted(maps.Keys(g)), slices.Sorted(maps.Keys(w)))
	}
	for k, v := range w {
		if !slices.Equal(g[k], v) {
			t.Errorf("key %s: %.200q, want %.200q", k, g[k], v)
		}
	}
}

// contents is what the keys hold, in an order that does not depend on the store.
func contents(t testing.TB, c *goredis.Client) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, key := range c.Keys(t.Context(), "*").Val() {
		if strings.HasPrefix(key, "walsink:") {
			continue
		}
		var err error
		switch kind := c.Type(t.Context(), key).Val(); kind {
		case "string":
			var s string
			s, err = c.Get(t.Context(), key).Result()
			all[key] = []string{s}
		case "list":
			all[key], err = c.LRange(t.Context(), key, 0, -1).Result()
		case "set":
			all[key], err = c.SMembers(t.Context(), key).Result()
			slices.Sort(all[key])
		case "hash":
			var m map[string]string
			m, err = c.HGetAll(t.Context(), key).Result()
			for f, v := range m {
				all[key] = append(all[key], f+"="+v)
			}
			slices.Sort(all[key])
		default:
			t.Fatalf("key %s is a %q", key, kind)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
