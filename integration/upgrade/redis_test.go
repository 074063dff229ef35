package upgrade_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

var redisKind = storeKind{
	name: "redis", ext: ".commands", newest: 1, empty: newRedis,
	refusal: `layout "2", this build knows layout "1": use the build that made it`,
	holdings: map[string][]string{"redis-1": {
		"000: batch 1, checkpoint 1, 5 records of redis/1: flushed",
		"000: batch 2, checkpoint 2, 5 records of redis/1: pending",
		"000: batch 3, checkpoint 3, 5 records of redis/1: pending",
		"000: 1 sealed, not complete, up to position 20",
	}},
}

type redisStore struct{ client *goredis.Client }

func newRedis(t *testing.T) store {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: servers.Redis(t), Protocol: 2})
	t.Cleanup(func() { c.Close() })
	return &redisStore{c}
}

func (st *redisStore) open() (sinks.Sink, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := redis.Open(ctx, st.client, redis.Options{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// record adds to a list and to a sum, which a repetition would show in both.
func (st *redisStore) record(t *testing.T, _ sinks.Sink, n int) []byte {
	t.Helper()
	rec, err := redis.AppendCommands(nil, redis.Command{"RPUSH", "numbers", strconv.Itoa(n)}, redis.Command{"INCRBY", "sum", strconv.Itoa(n)})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// old is the only form that there is.
func (st *redisStore) old(t *testing.T, s sinks.Sink, n int) []byte { return st.record(t, s, n) }

func (st *redisStore) oldFormat(s sinks.Sink) string { return s.Info().Format }

func (st *redisStore) rows(t *testing.T) []string {
	t.Helper()
	list, err := st.client.LRange(t.Context(), "numbers", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return append(list, "sum "+st.client.Get(t.Context(), "sum").Val())
}

func (st *redisStore) want(records int) (all []string) {
	for n := range records {
		all = append(all, strconv.Itoa(n))
	}
	return append(all, fmt.Sprint("sum ", records*(records-1)/2))
}

// dump returns the commands that make each key, with quoted arguments.
func (st *redisStore) dump(t *testing.T) []byte {
	t.Helper()
	ctx, c := t.Context(), st.client
	keys := c.Keys(ctx, "*").Val()
	slices.Sort(keys)
	var b bytes.Buffer
	for _, key := range keys {
		var command string
		var args []string
		switch kind := c.Type(ctx, key).Val(); kind {
		case "string":
			command, args = "SET", []string{c.Get(ctx, key).Val()}
		case "list":
			command, args = "RPUSH", c.LRange(ctx, key, 0, -1).Val()
		case "set":
			command, args = "SADD", c.SMembers(ctx, key).Val()
			slices.Sort(args)
		case "hash":
			command = "HSET"
			fields := c.HGetAll(ctx, key).Val()
			for _, f := range slices.Sorted(maps.Keys(fields)) {
				args = append(args, f, fields[f])
			}
		default:
			t.Fatalf("key %s: a %q has no form in a fixture", key, kind)
		}
		b.WriteString(command)
		for _, a := range append([]string{key}, args...) {
			b.WriteString(" " + strconv.QuoteToASCII(a))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func (st *redisStore) load(t *testing.T, dump []byte) {
	t.Helper()
	for line := range strings.Lines(string(dump)) {
		command, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		args := []any{command}
		for rest != "" {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			arg, err := strconv.Unquote(quoted)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			args = append(args, arg)
			rest = strings.TrimPrefix(rest[len(quoted):], " ")
		}
		if err := st.client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

func (st *redisStore) newer(t *testing.T) {
	t.Helper()
	if err := st.client.HSet(t.Context(), "walsink:mark:{job/000}", "v", "2").Err(); err != nil {
		t.Fatal(err)
	}
}
