package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	value := strings.Repeat("v", 100)
	for name, command := range map[string]func(i int) redis.Command{
		"set":    func(i int) redis.Command { return redis.Command{"SET", fmt.Sprint("key:", i), value} },
		"hset":   func(i int) redis.Command { return redis.Command{"HSET", fmt.Sprint("key:", i), "payload", value} },
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

// BenchmarkRun moves a million NDJSON records of four fields into hashes with the
// real command, beside redis-cli --pipe of the same commands, prepared.
func BenchmarkRun(b *testing.B) {
	const n = 1_000_000
	bin, dir, addr := binary(b, ""), b.TempDir(), servers.Redis(b)
	in, prepared := filepath.Join(dir, "in.ndjson"), filepath.Join(dir, "commands")
	if err := errors.Join(writeDocuments(in, n), writeCommands(prepared, n)); err != nil {
		b.Fatal(err)
	}
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	counted := func(cmd *exec.Cmd) time.Duration {
		if err := c.FlushDB(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		took := time.Since(start)
		if keys, err := c.DBSize(b.Context()).Result(); err != nil || keys < n {
			b.Fatal(keys, err)
		}
		return took
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		b.Fatal(err)
	}
	paired.Run(b, func() time.Duration {
		f, err := os.Open(prepared)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		cmd := exec.Command("redis-cli", "-h", host, "-p", port, "--pipe")
		cmd.Stdin = f
		return counted(cmd)
	}, func() time.Duration {
		state := filepath.Join(dir, "state")
		if err := os.RemoveAll(state); err != nil {
			b.Fatal(err)
		}
		return counted(exec.Command(bin, "run", "--from", "ndjson:"+in, "--to", "redis://"+addr+"/0?op=hset&key=k:{id}", "--state", state))
	})
}

// writeDocuments writes n documents of about 100 bytes.
func writeDocuments(path string, n int) error {
	return written(path, func(w *bufio.Writer) {
		for i := range n {
			fmt.Fprintf(w, `{"id":%d,"name":"user-%d","amount":%d.25,"note":"lorem ipsum dolor sit amet consectetur"}`+"\n", i, i%5000, i)
		}
	})
}

// writeCommands writes the same as commands of the protocol.
func writeCommands(path string, n int) error {
	return written(path, func(w *bufio.Writer) {
		for i := range n {
			args := []string{"HSET", fmt.Sprint("k:", i), "id", fmt.Sprint(i), "name", fmt.Sprint("user-", i%5000),
				"amount", fmt.Sprint(i, ".25"), "note", "lorem ipsum dolor sit amet consectetur"}
			fmt.Fprintf(w, "*%d\r\n", len(args))
			for _, a := range args {
				fmt.Fprintf(w, "$%d\r\n%s\r\n", len(a), a)
			}
		}
	})
}

func written(path string, write func(*bufio.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	write(w)
	return errors.Join(w.Flush(), f.Close())
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
