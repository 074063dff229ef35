//go:build linux

package file

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
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
	var command, plain time.Duration
	var peak int64
	for b.Loop() {
		start := time.Now()
		if err := copyLines(in, filepath.Join(dir, "copy")); err != nil {
			b.Fatal(err)
		}
		plain += time.Since(start)

		out, state := filepath.Join(dir, "out"), filepath.Join(dir, "state")
		cmd := exec.Command(bin, "run", "--from", "ndjson:"+in, "--to", "file:"+out, "--state", state)
		start = time.Now()
		if text, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, text)
		}
		command += time.Since(start)
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			peak = max(peak, u.Maxrss)
		}
		for _, d := range []string{out, state} {
			if err := os.RemoveAll(d); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(command)/float64(plain), "times-plain")
	b.ReportMetric(plain.Seconds()/float64(b.N), "plain-s/op")
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
