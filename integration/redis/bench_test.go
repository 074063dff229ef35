package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/paired"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// benchRecords is how many records a step has in the benchmark.
const benchRecords = 10_000

// BenchmarkSteady compares a pipeline of the client library, which guarantees
// nothing, with a flush of the same commands in a steady state.
func BenchmarkSteady(b *testing.B) {
	text := rand.New(rand.NewPCG(1, 1))
	value := func() string { // of 100 bytes, another one each time, as real ones are
		b := make([]byte, 100)
		for i := range b {
			b[i] = byte('a' + text.IntN(26))
		}
		return string(b)
	}
	for name, command := range map[string]func(i int) redis.Command{
		"set":    func(i int) redis.Command { return redis.Command{"SET", fmt.Sprint("key:", i), value()} },
		"hset":   func(i int) redis.Command { return redis.Command{"HSET", fmt.Sprint("key:", i), "payload", value()} },
		"incrby": func(i int) redis.Command { return redis.Command{"INCRBY", fmt.Sprint("n:", i%1000), "1"} },
	} {
		b.Run(name, func(b *testing.B) {
			cmds := make([]redis.Command, benchRecords)
			for i := range cmds {
				cmds[i] = command(i)
			}
			addr := servers.Redis(b)
			paired.Run(b, benchPipeline(b, addr, cmds), benchSink(b, addr, cmds))
		})
	}
}

func benchPipeline(b *testing.B, addr string, cmds []redis.Command) func() time.Duration {
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	b.Cleanup(func() { c.Close() })
	return func() time.Duration {
		start := time.Now()
		p := c.Pipeline()
		for _, cmd := range cmds {
			args := make([]any, len(cmd))
			for i, a := range cmd {
				args[i] = a
			}
			p.Do(context.Background(), args...)
		}
		if _, err := p.Exec(context.Background()); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
}

// benchSink returns a function that flushes the commands as the next batch.
func benchSink(b *testing.B, addr string, cmds []redis.Command) func() time.Duration {
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	s, err := redis.Open(context.Background(), c, redis.Options{})
	if err != nil {
		b.Fatal(err)
	}
	id := sinks.LaneID{Sink: "bench", Lane: "0"}
	lane, mark, err := s.Acquire(context.Background(), id)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { lane.Close(); s.Close(); c.Close() })
	blocks, h := benchBlocks(b, cmds)
	return func() time.Duration {
		batch := record.Batch{Seq: mark.Seq + 1, Checkpoint: mark.Checkpoint + 1, Prev: mark.Chain,
			Records: h.Records(), Bytes: h.Bytes(), Digest: h.Sum(), Format: redis.Format}
		next := mark
		next.Seq, next.Checkpoint, next.Chain, next.Records = batch.Seq, batch.Checkpoint, batch.Chain(), mark.Records+batch.Records
		step := &sinks.Step{ID: id, Prev: mark, Next: next, Batches: []sinks.Audit{{Batch: batch}},
			Records: int64(batch.Records), Bytes: int64(batch.Bytes)}
		step.Runs = func(yield func(sinks.Run, error) bool) {
			first := uint64(0)
			for _, block := range blocks {
				if !yield(sinks.Run{First: first, Block: block}, nil) {
					return
				}
				first += uint64(block.Len())
			}
		}
		start := time.Now()
		if _, err := lane.Flush(context.Background(), step); err != nil {
			b.Fatal(err)
		}
		mark = next
		return time.Since(start)
	}
}

// benchBlocks packs the commands as the log does.
func benchBlocks(b *testing.B, cmds []redis.Command) ([]record.Block, *record.Hasher) {
	h := record.NewHasher()
	var blocks []record.Block
	var bld record.Builder
	flush := func() {
		data := append([]byte(nil), bld.Finish(h)...)
		block, err := record.Decode(data, record.Block{})
		if err != nil {
			b.Fatal(err)
		}
		blocks = append(blocks, block)
		bld.Reset()
	}
	for _, cmd := range cmds {
		if err := bld.Append(rec(b, cmd)); err != nil {
			b.Fatal(err)
		}
		if bld.Full() {
			flush()
		}
	}
	if bld.Len() > 0 {
		flush()
	}
	return blocks, h
}
