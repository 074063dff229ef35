package command

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/paired"
)

// BenchmarkRedis moves a million NDJSON records of four fields into hashes with the
// real command, beside redis-cli --pipe of the same commands, prepared.
func BenchmarkRedis(b *testing.B) {
	const n = 1_000_000
	bin, err := build()
	if err != nil {
		b.Fatal(err)
	}
	dir, addr := b.TempDir(), servers.Redis(b)
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
			b.Fatalf("%d keys, %v: %v", keys, err, cmd)
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
