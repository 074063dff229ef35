package sources_test

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks/file"
	"github.com/walsink/walsink/sources"
)

// TestFollowChild is the process that TestFollowKill kills; it does nothing in an
// ordinary run.
func TestFollowChild(t *testing.T) {
	dir := os.Getenv("WALSINK_TEST_FOLLOW")
	if dir == "" {
		return
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	quiet := slog.New(slog.DiscardHandler)
	out, err := file.Open(filepath.Join(dir, "out"), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeline.Pipeline{
		Sources: []pipeline.Input{{Name: "log", Source: sources.NDJSON(filepath.Join(dir, "app.log"), sources.Options{
			Follow: true, Poll: 5 * time.Millisecond, Quiet: 50 * time.Millisecond, Logger: quiet,
		})}},
		Outputs: []pipeline.Sink{pipeline.Walsink("out", out, walsink.Options{Dir: filepath.Join(dir, "state"), ID: "log", Logger: quiet}, file.Line)},
		Lanes:   2, Route: pipeline.ByField("n"), Logger: quiet,
		Checkpoints: checkpoint.Options{Interval: 20 * time.Millisecond},
	}
	if _, err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func child(t *testing.T, dir string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestFollowChild$")
	cmd.Env = append(os.Environ(), "WALSINK_TEST_FOLLOW="+dir)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// landed counts each line of the output.
func landed(t *testing.T, dir string) map[string]int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "out", "*.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			count[s.Text()]++
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return count
}

// missing says which lines are not in the output, and in which file they are.
func missing(t *testing.T, dir string, written int) []string {
	t.Helper()
	have := landed(t, dir)
	var lost []string
	for n := range written {
		line := fmt.Sprintf(`{"n":%d}`, n)
		if have[line] > 0 {
			continue
		}
		names, _ := filepath.Glob(filepath.Join(dir, "app.log*"))
		for _, name := range names {
			if b, _ := os.ReadFile(name); strings.Contains(string(b), line+"\n") {
				info, _ := os.Stat(name)
				lost = append(lost, fmt.Sprint(n, " in ", filepath.Base(name), " ", info.ModTime().Format("05.000")))
			}
		}
	}
	return lost
}

// TestFollowKill: a writer appends to a file, renames it away and cuts it, while
// the process that follows it is killed again and again. Each line comes once.
func TestFollowKill(t *testing.T) {
	kills := 50
	if testing.Short() {
		kills = 5
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "app.log")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	written, renamed, cut := 0, 0, 0
	appendLines := func(n int) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			if _, err := fmt.Fprintf(f, "{\"n\":%d}\n", written); err != nil {
				t.Fatal(err)
			}
			written++
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	waitAll := func() {
		deadline := time.After(time.Minute)
		for len(landed(t, dir)) < written {
			select {
			case <-deadline:
				t.Fatalf("%d of %d lines after a minute; missing: %v", len(landed(t, dir)), written, missing(t, dir, written))
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	for kill := range kills {
		cmd, out := child(t, dir)
		end := time.After(time.Duration(50+rng.IntN(300)) * time.Millisecond)
		for running := true; running; {
			select {
			case <-end:
				running = false
			case <-time.After(time.Duration(10+rng.IntN(20)) * time.Millisecond): // the clock of the file system is coarse
				appendLines(1 + rng.IntN(30))
				if kill > 0 && rng.IntN(4) == 0 { // what is renamed before the first start is not read
					renamed++
					if err := os.Rename(path, fmt.Sprintf("%s.%05d", path, renamed)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if kill == 0 || kill%10 == 3 {
			appendLines(1)
			waitAll()
			// What is in the output is in a checkpoint, so nothing of the file is needed.
			cut++
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if exit, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok || exit.ExitCode() != -1 {
			t.Fatalf("the process ended on its own: %v: %s", exit, out)
		}
	}
	cmd, out := child(t, dir)
	waitAll()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	count := landed(t, dir)
	for n := range written {
		if line := fmt.Sprintf(`{"n":%d}`, n); count[line] != 1 {
			t.Errorf("line %d comes %d times", n, count[line])
		}
	}
	t.Logf("%d lines, killed %d times, renamed %d times, cut %d times", written, kills, renamed, cut)
}
