package command

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/campaign"
)

// TestKill9Outputs kills a job with two outputs again and again: counters in Redis, which
// count each time, and files. Now and then one of them loses its state directory, or is
// left out for a life. In the end both are exact.
func TestKill9Outputs(t *testing.T) {
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
	in.grow(t, 20_000)
	write := func(name string, outputs ...string) string {
		t.Helper()
		text := fmt.Sprintf("from: ndjson:%s\nstate: %s\nlanes: 2\ncheckpoint-records: 2000\ncheckpoint-interval: 10ms\noutputs:\n", in.path, filepath.Join(dir, "state"))
		for _, o := range outputs {
			text += o
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	counts := fmt.Sprintf("  - name: counts\n    to: %s\n    options: {op: hincrby, key: quakes, field: \"{net}\"}\n", withQuery(address, "protocol=3"))
	files := fmt.Sprintf("  - name: files\n    to: file:%s\n", filepath.Join(dir, "out"))
	both := write("both.yaml", counts, files)
	lives := []string{both, both, write("turned.yaml", files, counts), write("counts.yaml", counts), write("files.yaml", files)}
	walsink(t, "run", "--config", both, "--checkpoint-records", "20000")

	rng := rand.New(rand.NewPCG(campaign.Seed(t), 1))
	kills := 10
	if campaign.Long() {
		kills = 200
	}
	killed, lost, midway, last, begin := 0, 0, 0, 0, time.Now()
	for killed < kills {
		in.grow(t, 5_000)
		config := lives[rng.IntN(len(lives))]
		if kill9(t, exec.Command(bin, "run", "--config", config), 20*time.Millisecond+time.Duration(rng.Int64N(int64(time.Second)))) {
			killed++
		}
		if rng.IntN(4) == 0 {
			lost++
			if err := os.RemoveAll(filepath.Join(dir, "state", []string{"counts", "files"}[rng.IntN(2)])); err != nil {
				t.Fatal(err)
			}
		}
		_, sum := counters(t, client)
		if sum < last || sum > in.records {
			t.Fatalf("kill %d: %d documents are counted, %d were before, the input has %d", killed, sum, last, in.records)
		}
		if sum > last && sum < in.records {
			midway++
		}
		last = sum
	}
	walsink(t, "run", "--config", both)
	if got, _ := counters(t, client); !maps.Equal(got, in.counts) {
		t.Errorf("the counters are %v, want %v", got, in.counts)
	}
	if got, want := linesOf(t, filepath.Join(dir, "out", "*.ndjson")), linesOf(t, in.path); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("the files have %d lines, want the %d of the input", len(got), len(want))
	}
	t.Logf("%d kills, %d of them in the middle of the counting, %d state directories lost, %d documents in two outputs, in %v", killed, midway, lost, in.records, time.Since(begin).Round(time.Second))
	campaign.Figures{Cycles: killed, Rows: 2 * in.records, Faults: map[string]int{"kill -9": killed, "state lost": lost}}.Report(t)
}

// linesOf returns the lines of files, sorted.
func linesOf(t *testing.T, pattern string) [][]byte {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, bytes.SplitAfter(text, []byte("\n"))...)
	}
	lines = slices.DeleteFunc(lines, func(line []byte) bool { return len(line) == 0 })
	slices.SortFunc(lines, bytes.Compare)
	return lines
}
