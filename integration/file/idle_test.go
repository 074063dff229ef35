//go:build linux

package file

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// idleTime is how long an idle job is watched.
const idleTime = 20 * time.Second

// BenchmarkIdle follows a file of which nothing more comes, with eight lanes, and
// reports the share of a core that it takes, and its calls that sync or write.
func BenchmarkIdle(b *testing.B) {
	bin, err := build("walsink-idle")
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	in := filepath.Join(dir, "in.ndjson")
	if err := writeLines(in, 1000); err != nil {
		b.Fatal(err)
	}
	args := func(name string) []string {
		return []string{bin, "run", "--follow", "--lanes", "8", "--from", "ndjson:" + in,
			"--to", "file:" + filepath.Join(dir, name, "out"), "--state", filepath.Join(dir, name, "state")}
	}
	var cpu, calls float64
	for b.Loop() {
		trace := filepath.Join(dir, "trace")
		watch(b, filepath.Join(dir, "traced"), append([]string{"strace", "-f", "-o", trace,
			"-e", "trace=fsync,fdatasync,msync,sync_file_range,pwrite64,renameat2,mkdirat,unlinkat"}, args("traced")...), func(int) {
			before := callCount(b, trace)
			<-time.After(idleTime)
			calls = max(calls, float64(callCount(b, trace)-before))
		})
		watch(b, filepath.Join(dir, "plain"), args("plain"), func(pid int) {
			before := cpuTime(b, pid)
			<-time.After(idleTime)
			cpu = max(cpu, 100*(cpuTime(b, pid)-before).Seconds()/idleTime.Seconds())
		})
	}
	b.ReportMetric(cpu, "cpu-percent")
	b.ReportMetric(calls, "calls")
	b.ReportMetric(0, "ns/op")
}

// watch starts a job, waits until all its records are in files and nothing has been
// written for a while, calls fn, and ends the job.
func watch(b *testing.B, dir string, args []string, fn func(pid int)) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	limit := time.After(time.Minute)
	for linesOf(b, partsIn(b, dir)) < 1000 {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-limit:
			b.Fatalf("the records did not come within a minute")
		}
	}
	<-time.After(5 * time.Second)
	fn(cmd.Process.Pid)
}

func partsIn(b *testing.B, dir string) []string {
	names, err := filepath.Glob(filepath.Join(dir, "out", "*.ndjson"))
	if err != nil {
		b.Fatal(err)
	}
	return names
}

func callCount(b *testing.B, path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	return bytes.Count(text, []byte("\n")) - bytes.Count(text, []byte(" --- SIG"))
}

// cpuTime is what a process has used, in ticks of a hundredth of a second.
func cpuTime(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int
	for _, s := range f[11:13] {
		var n int
		if _, err := fmt.Sscan(s, &n); err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
