package command

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/campaign"
)

// nets are the networks of a generated input, with how often each occurs.
var nets = []string{"ak", "ak", "ak", "ci", "ci", "nc", "us", "hv", "a b", "ü"}

// An earthquakeFile is a generated input that grows.
type earthquakeFile struct {
	path    string
	records int
	counts  map[string]int // true counts by net
}

// grow appends n documents in one write.
func (f *earthquakeFile) grow(t *testing.T, n int) {
	t.Helper()
	var b bytes.Buffer
	for range n {
		net := nets[f.records*7919%len(nets)]
		fmt.Fprintf(&b, "{\"id\":\"q%d\",\"net\":%q,\"mag\":%d.%d}\n", f.records, net, f.records%7, f.records%10)
		f.records++
		f.counts[net]++
	}
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// counters reads the counters by net, and their sum.
func counters(t *testing.T, c *goredis.Client) (counts map[string]int, sum int) {
	t.Helper()
	fields, err := c.HGetAll(t.Context(), "quakes").Result()
	if err != nil {
		t.Fatal(err)
	}
	counts = map[string]int{}
	for net, text := range fields {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		counts[net] = n
		sum += n
	}
	return counts, sum
}

// killCycles is how often the process is killed.
func killCycles() int {
	if campaign.Long() {
		return 200
	}
	return 25
}

// TestKill9Counters counts documents by net with HINCRBY, which adds each time it
// runs, and kills the process 1 to 300 ms after its start, again and again. C101,
// Q09.
func TestKill9Counters(t *testing.T) {
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	address := "redis://" + servers.Redis(t)
	opts, err := goredis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(opts)
	defer client.Close()
	dir := t.TempDir()
	in := &earthquakeFile{path: filepath.Join(dir, "in.ndjson"), counts: map[string]int{}}
	in.grow(t, 50_000)
	args := []string{"run", "--from", "ndjson:" + in.path, "--to", withQuery(address, "op=hincrby&key=quakes&field={net}"),
		"--state", filepath.Join(dir, "state"), "--lanes", "2", "--checkpoint-records", "2000", "--checkpoint-interval", "10ms"}
	rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
	killed, ended, midway, last := 0, 0, 0, 0
	begin := time.Now()
	for killed < killCycles() {
		life := time.Millisecond + time.Duration(rng.Int64N(int64(300*time.Millisecond)))
		dead := kill9(t, exec.Command(bin, args...), life)
		if dead {
			killed++
		} else {
			ended++
			in.grow(t, 50_000)
		}
		_, sum := counters(t, client)
		if sum < last || sum > in.records {
			t.Fatalf("kill %d: %d documents are counted, %d were before, the input has %d", killed, sum, last, in.records)
		}
		if dead && sum > last && sum < in.records {
			midway++
		}
		last = sum
	}
	walsink(t, args...)
	got, _ := counters(t, client)
	if !maps.Equal(got, in.counts) {
		t.Errorf("the counters are %v, want %v", got, in.counts)
	}
	if midway == 0 {
		t.Error("no kill came between the first flush of a life and its last one: they do not mean anything")
	}
	t.Logf("%d kills, %d of them in the middle of the work, %d runs to the end, %d documents by %d nets, exact: %v, in %v",
		killed, midway, ended, in.records, len(in.counts), !t.Failed(), time.Since(begin).Round(time.Second))
	campaign.Figures{Cycles: killed, Rows: in.records, Faults: map[string]int{"kill -9": killed}}.Report(t)
}

// kill9 runs the command and kills it when life is over. It reports false if it came
// to its end before; an end with an error fails the test.
func kill9(t *testing.T, cmd *exec.Cmd, life time.Duration) bool {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(life, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	kill.Stop()
	if err != nil && cmd.ProcessState.ExitCode() >= 0 {
		t.Fatalf("a run ended with %v:\n%s", err, out.String())
	}
	return err != nil
}
