//go:build linux

package file

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/paired"
)

// BenchmarkRun moves a million NDJSON records of about 100 bytes to NDJSON files with
// the real command, beside a plain program's work: copying the lines with one fsync.
// It reports the times side by side and the command's peak memory.
func BenchmarkRun(b *testing.B) {
	bin, err := build("walsink-bench")
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	in := filepath.Join(dir, "in.ndjson")
	if err := writeLines(in, 1_000_000); err != nil {
		b.Fatal(err)
	}
	var peak int64
	paired.Run(b, func() time.Duration {
		return paired.Time(func() {
			if err := copyLines(in, filepath.Join(dir, "copy")); err != nil {
				b.Fatal(err)
			}
		})
	}, func() time.Duration {
		out, state := filepath.Join(dir, "out"), filepath.Join(dir, "state")
		cmd := exec.Command(bin, "run", "--from", "ndjson:"+in, "--to", "file:"+out, "--state", state)
		took := paired.Time(func() {
			if text, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v\n%s", err, text)
			}
		})
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			peak = max(peak, u.Maxrss)
		}
		if err := errors.Join(os.RemoveAll(out), os.RemoveAll(state)); err != nil {
			b.Fatal(err)
		}
		return took
	})
	b.ReportMetric(float64(peak)/1024, "peak-MiB")
}

func writeLines(name string, n int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, `{"id":%d,"name":"user-%d","amount":%d.25,"note":"lorem ipsum dolor sit amet consectetur"}`+"\n", i, i%5000, i)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

func copyLines(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if _, err := w.Write(lines.Bytes()); err != nil {
			return err
		}
		if err := w.WriteByte('\n'); err != nil {
			return err
		}
	}
	for _, step := range []func() error{lines.Err, w.Flush, out.Sync, out.Close} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
