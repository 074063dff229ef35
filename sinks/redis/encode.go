package redis

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Set sets a string, for ever if ttl is 0.
func Set(key, value string, ttl time.Duration) Command {
	if ttl > 0 {
		return Command{"SET", key, value, "PX", strconv.FormatInt(max(ttl.Milliseconds(), 1), 10)}
	}
	return Command{"SET", key, value}
}

// SetJSON sets a string to the JSON form of v.
func SetJSON(key string, v any) (Command, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("set %q: %w", key, err)
	}
	return Command{"SET", key, string(b)}, nil
}

// HSet sets fields of a hash, in the order of their names.
func HSet(key string, fields map[string]string) Command {
	cmd := Command{"HSET", key}
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		cmd = append(cmd, f, fields[f])
	}
	return cmd
}

// IncrBy adds to a counter.
func IncrBy(key string, n int64) Command { return Command{"INCRBY", key, strconv.FormatInt(n, 10)} }

// HIncrBy adds to a counter in a hash.
func HIncrBy(key, field string, n int64) Command {
	return Command{"HINCRBY", key, field, strconv.FormatInt(n, 10)}
}

// RPush appends to a list.
func RPush(key string, values ...string) Command { return append(Command{"RPUSH", key}, values...) }

// XAdd appends an entry to a stream, under an id that the server gives. fields are
// names and values in turn.
func XAdd(key string, fields ...string) Command { return append(Command{"XADD", key, "*"}, fields...) }

// ZAdd sets the score of a member of a sorted set.
func ZAdd(key string, score float64, member string) Command {
	return Command{"ZADD", key, strconv.FormatFloat(score, 'g', -1, 64), member}
}

// Del removes a key.
func Del(key string) Command { return Command{"DEL", key} }
