//go:build crashpoints && linux

package committer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// A crashJob is a process: the real log, a file as a store without an atomic step,
// marks beside it. It is killed at the points that this package owns.
const crashDir = "WALSINK_CRASH_DIR"

// TestCrashChild is the process; it does nothing in an ordinary run.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		return
	}
	log, err := wal.Open(filepath.Join(dir, "log"), wal.Options{GenerationBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := log.Truncate(); err != nil {
		t.Fatal(err)
	}
	sink := committer.WithLedger(fileWriter(filepath.Join(dir, "out")), fileLedger(t, filepath.Join(dir, "ledger")))
	c, err := committer.New(sink, sinkID, log, committer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Open(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	lane, err := log.Lane(key)
	if err != nil {
		t.Fatal(err)
	}
	done, _ := log.Completed()
	for cp := done + 1; cp <= 4; cp++ {
		for _, r := range recs(int(cp)*10-9, int(cp)*10) {
			if err := lane.Append(t.Context(), []byte(r)); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := lane.Seal(cp, fmt.Append(nil, cp), "bytes", false)
		if err := errors.Join(err, log.Complete(cp, fmt.Append(nil, cp))); err != nil {
			t.Fatal(err)
		}
		c.Notify()
		if cp%2 == 0 { // two at a time, so that some are found at the next start
			if err := c.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A fileWriter appends records to a file, a line each.
type fileWriter string

func (fileWriter) Info() sinks.Info { return sinks.Info{Format: "bytes", StepBytes: 16, Chunked: true} }

func (w fileWriter) Write(_ context.Context, step *sinks.Step) error {
	f, err := os.OpenFile(string(w), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for run, err := range step.Runs {
		if err != nil {
			return err
		}
		for _, rec := range run.Block.All() {
			if _, err := fmt.Fprintf(f, "%s\n", rec); err != nil {
				return err
			}
		}
	}
	return f.Sync()
}

// beside are the points at which a chunk may be in without its mark: the one between
// them, and the one that is not in the worker.
var beside = map[crash.Name]bool{crash.FlushChunkLast: true, crash.CompleteReceived: true}

// crashRun runs the process with a crash point, or none, and reports whether it was
// killed there.
func crashRun(t *testing.T, dir, point string) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashChild$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir, "WALSINK_CRASH="+point)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signal() == syscall.SIGKILL {
			return true
		}
	}
	t.Fatalf("%v\n%s", err, out)
	return false
}

// E03: killed at every point, then killed again at every point of the recovery.
// Only between a chunk and its mark can a chunk repeat, one for each kill.
func TestE03CrashPoints(t *testing.T) {
	points := []crash.Name{
		crash.CompleteReceived, crash.FlushMarkRead, crash.FlushChunkFirst, crash.FlushChunkLast,
		crash.FlushAnswered, crash.FlushNoted, crash.OpenFlushed, crash.FenceRaised,
	}
	for _, first := range points {
		for _, hit := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s:%d", first, hit), func(t *testing.T) {
				dir, kills, apart := t.TempDir(), 0, 0
				for _, point := range []string{fmt.Sprintf("%s:%d", first, hit), string(points[hit]) + ":2", string(first) + ":1"} {
					for crashRun(t, dir, point) {
						if name, _, _ := strings.Cut(point, ":"); beside[crash.Name(name)] {
							apart++
						}
						if kills++; strings.HasPrefix(point, string(crash.FenceRaised)) || kills > 20 {
							break // it comes before any progress
						}
					}
				}
				if crashRun(t, dir, "") {
					t.Fatal("killed by nobody")
				}
				checkLines(t, filepath.Join(dir, "out"), apart)
			})
		}
	}
}

// checkLines wants every record, in order, and of those that came again no more
// than a chunk for each kill between a chunk and its mark.
func checkLines(t *testing.T, name string, apart int) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(data))
	next, again := 0, 0
	want := recs(1, 40)
	for _, line := range lines {
		switch {
		case next < len(want) && line == want[next]:
			next++
		case next > 0 && line <= want[next-1]:
			again++
		default:
			t.Fatalf("%s after %d records", line, next)
		}
	}
	if next != len(want) {
		t.Fatalf("%d records of %d", next, len(want))
	}
	if again > 4*apart {
		t.Fatalf("%d records came again, at most %d may", again, 4*apart)
	}
}
