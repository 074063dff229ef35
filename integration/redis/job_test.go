package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/sinks/redis"
)

// job is a program that writes counters from where it is up to n, in checkpoints
// of every records, and ends when all of it is in. The test binary is this program
// if the variable is set: "address state n every". Several addresses, with commas
// between, are a cluster, over which it spreads what it writes.
const jobVar = "WALSINK_TEST_JOB"

func runJob(args string) error {
	var addr, dir string
	var n, every int
	if _, err := fmt.Sscan(args, &addr, &dir, &n, &every); err != nil {
		return err
	}
	ctx := context.Background()
	c, cmds := jobClient(addr), counters(n)
	if strings.Contains(addr, ",") {
		cmds = spread(n)
	}
	defer c.Close()
	sink, err := redis.Open(ctx, c, redis.Options{})
	if err != nil {
		return err
	}
	defer sink.Close()
	out, err := walsink.Open(ctx, sink, walsink.Options{Dir: dir, ID: "job", Logger: slog.New(slog.DiscardHandler),
		Flush: committer.Options{RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond}})
	if err != nil {
		return err
	}
	start, _ := strconv.Atoi(string(out.Position())) // nothing is zero
	var rec []byte
	for i := start; i < n; i++ {
		if rec, err = redis.AppendCommand(rec[:0], cmds[i]...); err != nil {
			return err
		}
		if err = out.Append(ctx, rec); err != nil {
			return errors.Join(err, out.Close())
		}
		if (i+1)%every == 0 || i+1 == n {
			if _, err = out.Checkpoint(ctx, strconv.AppendInt(nil, int64(i+1), 10)); err != nil {
				return errors.Join(err, out.Close())
			}
		}
	}
	return errors.Join(out.Drain(ctx), out.Close())
}

func jobClient(addr string) goredis.UniversalClient {
	if !strings.Contains(addr, ",") {
		return goredis.NewClient(quick(addr))
	}
	return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: strings.Split(addr, ",")})
}

// A job is one life after another of the program.
type job struct {
	t     testing.TB
	bin   string
	addr  string
	state string
	env   []string
}

func (j *job) start(n, every int) *exec.Cmd {
	j.t.Helper()
	cmd := exec.Command(j.bin)
	cmd.Env = append(os.Environ(), append(j.env, fmt.Sprintf("%s=%s %s %d %d", jobVar, j.addr, j.state, n, every))...)
	cmd.Stderr = new(bytes.Buffer)
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	return cmd
}

// end waits for the program; it is an error if it was not killed and has failed.
func end(cmd *exec.Cmd) (killed bool, err error) {
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, cmd.Stderr)
	}
	return false, nil
}

// binary builds this package's test binary with tags, once.
var binaries sync.Map

func binary(t testing.TB, tags string) string {
	t.Helper()
	build, _ := binaries.LoadOrStore(tags, sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "walsink-redis") //nolint:usetesting // it outlives the test
		if err != nil {
			return "", err
		}
		bin := filepath.Join(dir, "job.test")
		out, err := exec.Command("go", "test", "-c", "-tags", tags, "-o", bin, ".").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return bin, nil
	}))
	bin, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

func removeBinaries() {
	for _, build := range binaries.Range {
		if bin, err := build.(func() (string, error))(); err == nil {
			os.RemoveAll(filepath.Dir(bin))
		}
	}
}

func cycles(long int) int {
	if testing.Short() {
		return long / 10
	}
	return long
}

// TestC101JobKilled kills the program with SIGKILL at random instants, and now and
// then the server too; every third start is without local state.
func TestC101JobKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t, "--appendonly", "yes", "--appendfsync", "always")
	j := &job{t: t, bin: self, addr: n.addr(), state: t.TempDir()}
	rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
	total, kills, restarts := 4000, 0, 0
	for i := range cycles(200) {
		if i%3 == 2 {
			if err := os.RemoveAll(j.state); err != nil {
				t.Fatal(err)
			}
		}
		cmd := j.start(total, 100)
		after(time.Duration(5+rng.IntN(200)) * time.Millisecond)
		if i%10 == 9 {
			restarts++
			n.kill()
			n.mend()
			n.start()
		}
		cmd.Process.Kill()
		killed, err := end(cmd)
		if err != nil && i%10 == 9 && strings.Contains(err.Error(), "transient") {
			continue // it began while the server was down, and had no log to go on from
		}
		if err != nil {
			t.Fatal(err)
		}
		if killed {
			kills++
		} else {
			total += 2000
		}
	}
	if _, err := end(j.start(total, 100)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills, %d records", kills, total)
	checkCounters(t, connect(t, n.addr()), total)
	campaign.Figures{Cycles: kills, Rows: total, Faults: map[string]int{"kill -9": kills, "kill -9 of the server": restarts}}.Report(t)
}

// TestCrashPoints ends the program at each place that this sink owns, at several
// hits.
func TestCrashPoints(t *testing.T) {
	bin := binary(t, "crashpoints plant")
	const records = 3000 // in 60 checkpoints: some go into one flush, more so on a busy machine
	for _, point := range []crash.Name{crash.FlushBegun, crash.FlushSent, crash.FenceRaised} {
		for hit := 1; hit <= 3; hit++ {
			t.Run(fmt.Sprintf("%s/%d", point, hit), func(t *testing.T) {
				n := startNode(t)
				j := &job{t: t, bin: bin, addr: n.addr(), state: t.TempDir()}
				j.env = []string{fmt.Sprintf("WALSINK_CRASH=%s:%d", point, hit)}
				killed, err := end(j.start(records, 50))
				if err != nil {
					t.Fatal(err)
				}
				if !killed && point != crash.FenceRaised {
					t.Error("the point was not reached")
				}
				j.env = nil
				if _, err := end(j.start(records, 50)); err != nil {
					t.Fatal(err)
				}
				checkCounters(t, connect(t, n.addr()), records)
			})
		}
	}
}

// TestControls plants bugs and shows that these tests find them.
func TestControls(t *testing.T) {
	bin := binary(t, "crashpoints plant")
	t.Run(string(plant.RedisLedgerLate), func(t *testing.T) {
		found := campaign.Figures{Cycles: 1, Caught: []string{string(plant.RedisLedgerLate)}}
		n := startNode(t)
		c := connect(t, n.addr())
		for hit := 1; hit <= 5; hit++ {
			c.FlushAll(t.Context())
			j := &job{t: t, bin: bin, addr: n.addr(), state: t.TempDir()}
			j.env = []string{fmt.Sprintf("WALSINK_CRASH=%s:%d", crash.FlushSent, hit), "WALSINK_PLANT=" + string(plant.RedisLedgerLate)}
			if _, err := end(j.start(500, 50)); err != nil {
				t.Fatal(err)
			}
			j.env = j.env[1:]
			if _, err := end(j.start(500, 50)); err != nil {
				t.Log("caught by a refusal:", err)
				found.Report(t)
				return
			}
			if err := counted(t.Context(), c, 500); err != nil {
				t.Log("caught:", err)
				found.Report(t)
				return
			}
		}
		t.Error("the planted bug was not found")
	})
	t.Run(string(plant.NoFence), func(t *testing.T) {
		cmd := exec.Command(bin, "-test.run", "^(TestFencing|TestFrozenOwner|TestFlush)$")
		cmd.Env = append(os.Environ(), "WALSINK_PLANT="+string(plant.NoFence))
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("--- FAIL")) {
			t.Fatalf("the planted bug was not found: %v\n%s", err, out)
		}
		campaign.Figures{Cycles: 1, Caught: []string{string(plant.NoFence)}}.Report(t)
	})
}
