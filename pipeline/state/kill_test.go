package state_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/pipeline/state"
	"github.com/walsink/walsink/sinks/file"
	"github.com/walsink/walsink/sources"
	"github.com/walsink/walsink/wal"
)

// count emits the key with its count so far.
func count(key, _, old []byte, emit pipeline.Emit) ([]byte, error) {
	n, _ := binary.Uvarint(old)
	n++
	if err := emit(fmt.Appendf(nil, `{"key":%q,"count":%d}`, key, n)); err != nil {
		return nil, err
	}
	return binary.AppendUvarint(old[:0], n), nil
}

// runCounts is what the child process does: a running count per key of two files,
// with everything it keeps under dir.
func runCounts(ctx context.Context, dir string, lanes int, quick bool) (sum pipeline.Summary, err error) {
	quiet := slog.New(slog.DiscardHandler)
	st, err := state.Open(filepath.Join(dir, "state"), state.Options{Logger: quiet})
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	storage, err := checkpoint.OpenDir(filepath.Join(dir, "checkpoints"), 3)
	if err != nil {
		return sum, err
	}
	out, err := file.Open(filepath.Join(dir, "out"), file.Options{})
	if err != nil {
		return sum, err
	}
	p := &pipeline.Pipeline{
		Sources: []pipeline.Input{
			{Name: "a", Source: sources.NDJSON(filepath.Join(dir, "a.ndjson"), sources.Options{})},
			{Name: "b", Source: sources.NDJSON(filepath.Join(dir, "b.ndjson"), sources.Options{})},
		},
		Stages: []pipeline.Stage{pipeline.Keyed("count", st, count)},
		Outputs: []pipeline.Sink{pipeline.Walsink("out", out, walsink.Options{
			Dir: filepath.Join(dir, "log"), ID: "counts", Logger: quiet, Log: wal.Options{GenerationBytes: 4 << 20},
		}, file.Line)},
		Lanes: lanes, Route: pipeline.ByField("key"), Storage: storage, Require: pipeline.ExactlyOnce,
		Checkpoints: checkpoint.Options{Interval: 20 * time.Millisecond, Records: 500}, Logger: quiet,
	}
	if quick {
		p.Checkpoints = checkpoint.Options{Interval: time.Second}
	}
	return p.Run(ctx)
}

func writeInput(t testing.TB, path, source string, n, keys int) map[string]int {
	t.Helper()
	want := map[string]int{}
	var b strings.Builder
	for i := range n {
		key := fmt.Sprintf("k%d", i*i%keys)
		want[key]++
		fmt.Fprintf(&b, `{"src":%q,"key":%q,"n":%d}`+"\n", source, key, i)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return want
}

// checkOutput reads the parts as any reader would: each key has every count from
// 1 to its number, once, and rising within its lane.
func checkOutput(t testing.TB, dir string, want map[string]int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	seen := map[string][]int{}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			var row struct {
				Key   string
				Count int
			}
			if err := json.Unmarshal(s.Bytes(), &row); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			seen[row.Key] = append(seen[row.Key], row.Count)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for key, n := range want {
		slices.Sort(seen[key])
		if len(seen[key]) != n {
			t.Errorf("key %s: %d rows, want %d", key, len(seen[key]), n)
		}
		for i, got := range seen[key] {
			if got != i+1 {
				t.Fatalf("key %s: row %d has count %d", key, i+1, got)
			}
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%d keys, want %d", len(seen), len(want))
	}
}

var cycles = flag.Int("kills", 40, "how often TestKill kills the process")

// TestKill kills a process that counts, at random times and with another number
// of lanes each time, until it gets through.
func TestKill(t *testing.T) {
	kills, records := *cycles, 1500**cycles
	if testing.Short() {
		kills, records = 6, 6000
	}
	dir := t.TempDir()
	want := writeInput(t, filepath.Join(dir, "a.ndjson"), "a", records, 101)
	for key, n := range writeInput(t, filepath.Join(dir, "b.ndjson"), "b", records/2, 77) {
		want[key] += n
	}
	rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
	killed := 0
	for cycle := 0; ; cycle++ {
		child := exec.Command(os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), "WALSINK_TEST_COUNT="+dir, fmt.Sprint("WALSINK_TEST_LANES=", []int{4, 1, 2}[cycle%3]),
			fmt.Sprint("WALSINK_TEST_QUICK=", cycle >= kills))
		var stderr strings.Builder
		child.Stderr = &stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(1+rng.IntN(300))*time.Millisecond, func() {
			if cycle < kills {
				_ = child.Process.Kill() // it may have ended
			}
		})
		err := child.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != -1 {
			t.Fatalf("cycle %d: %v: %s", cycle, err, stderr.String())
		}
		killed++
	}
	t.Log("killed", killed, "times")
	checkOutput(t, filepath.Join(dir, "out"), want)
	campaign.Figures{Cycles: killed, Rows: records + records/2, Faults: map[string]int{"kill -9": killed}}.Report(t)
}
