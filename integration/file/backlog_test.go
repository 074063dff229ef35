//go:build linux

package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/faults"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/file"
)

// backlogEnv names the directory of a backlog to a child process.
const backlogEnv = "WALSINK_TEST_BACKLOG"

const (
	backlogRecords     = 10_000_000
	backlogCheckpoints = 10
)

// BenchmarkBacklog opens an output with ten million records of 100 bytes pending, in
// a process of its own, and reports the time to the first file and the peak of the
// resident memory until all is flushed.
func BenchmarkBacklog(b *testing.B) {
	if dir := os.Getenv(backlogEnv); dir != "" {
		takeBacklog(b, dir)
		return
	}
	var first, peak float64
	for b.Loop() {
		dir := b.TempDir()
		makeBacklog(b, dir)
		cmd := exec.Command(os.Args[0], "-test.run", "^$", "-test.bench", "^BenchmarkBacklog$", "-test.benchtime", "1x")
		cmd.Env = append(os.Environ(), backlogEnv+"="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if s, ok := strings.CutPrefix(strings.TrimSpace(line), "first row after "); ok {
				v, err := strconv.ParseFloat(s, 64)
				if err != nil {
					b.Fatal(err)
				}
				first = max(first, v)
			}
		}
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			peak = max(peak, float64(u.Maxrss)/1024)
		}
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
	}
	if first == 0 {
		b.Fatal("the child did not say when the first row came")
	}
	b.ReportMetric(first, "first-row-s")
	b.ReportMetric(peak, "rss-MiB")
	b.ReportMetric(0, "ns/op")
}

func openBacklog(b *testing.B, dir string, wrap func(sinks.Sink) sinks.Sink) *walsink.Output {
	sink, err := file.Open(filepath.Join(dir, "out"), file.Options{Format: "raw"})
	if err != nil {
		b.Fatal(err)
	}
	out, err := walsink.Open(b.Context(), wrap(sink), walsink.Options{Dir: filepath.Join(dir, "state"), ID: "backlog", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// makeBacklog fills the log while the store is down.
func makeBacklog(b *testing.B, dir string) {
	down := faults.NewPlan(faults.Fault{Op: faults.Flush, Before: &sinks.Error{Kind: sinks.Transient, Op: "flush", Err: errors.New("down")}})
	out := openBacklog(b, dir, down.Wrap)
	rec := []byte(strings.Repeat("x", 99) + "\n")
	for i := range backlogRecords {
		if err := out.Append(b.Context(), rec); err != nil {
			b.Fatal(err)
		}
		if (i+1)%(backlogRecords/backlogCheckpoints) == 0 {
			if _, err := out.Checkpoint(b.Context(), nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
}

// takeBacklog is the child.
func takeBacklog(b *testing.B, dir string) {
	for b.Loop() {
		start := time.Now()
		out := openBacklog(b, dir, func(s sinks.Sink) sinks.Sink { return s })
		for len(outputFiles(b, dir)) == 0 {
			<-time.After(time.Millisecond)
		}
		fmt.Printf("first row after %.3f\n", time.Since(start).Seconds())
		if err := out.Drain(context.Background()); err != nil {
			b.Fatal(err)
		}
		if err := out.Close(); err != nil {
			b.Fatal(err)
		}
	}
	if n := linesOf(b, outputFiles(b, dir)); n != backlogRecords {
		b.Fatalf("%d records", n)
	}
}

func outputFiles(b *testing.B, dir string) []string {
	names, err := filepath.Glob(filepath.Join(dir, "out", "*+*"))
	if err != nil {
		b.Fatal(err)
	}
	return names
}

func linesOf(b *testing.B, names []string) (n int) {
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			n++
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			b.Fatal(err)
		}
	}
	return n
}
