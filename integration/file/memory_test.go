//go:build linux

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/campaign"
)

// plainBuild is the command without the race detector, which takes several times
// the memory.
var plainBuild = sync.OnceValues(func() (string, error) { return build("walsink-plain") })

// A memoryLimit is a memory cgroup, of version 1 or 2.
type memoryLimit struct {
	t   *testing.T
	dir string
	v2  bool
}

// newMemoryLimit makes a cgroup that may use so many bytes, page cache included.
func newMemoryLimit(t *testing.T, bytes int64) *memoryLimit {
	t.Helper()
	const root = "/sys/fs/cgroup"
	m := &memoryLimit{t: t, dir: filepath.Join(root, "memory")}
	if enabled, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control")); err == nil && strings.Contains(string(enabled), "memory") {
		m.v2, m.dir = true, root
	}
	m.dir = filepath.Join(m.dir, fmt.Sprintf("walsink-%d-%d", os.Getpid(), bytes))
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		t.Skipf("no memory cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(m.dir); err != nil {
			t.Errorf("memory cgroup: %v", err)
		}
	})
	m.set(m.name("memory.max", "memory.limit_in_bytes"), bytes)
	m.set(m.name("memory.swap.max", "memory.swappiness"), 0)
	return m
}

func (m *memoryLimit) name(v2, v1 string) string {
	if m.v2 {
		return v2
	}
	return v1
}

func (m *memoryLimit) set(name string, value int64) {
	m.t.Helper()
	err := os.WriteFile(filepath.Join(m.dir, name), strconv.AppendInt(nil, value, 10), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // no swap, nothing to set
		m.t.Fatalf("memory cgroup: %v", err)
	}
}

// get reads a number: the only one of a file, or that of a key.
func (m *memoryLimit) get(name, key string) int64 {
	m.t.Helper()
	content, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		m.t.Fatalf("memory cgroup: %v", err)
	}
	for line := range strings.Lines(string(content)) {
		f := strings.Fields(line)
		if key != "" && (len(f) != 2 || f[0] != key) {
			continue
		}
		n, err := strconv.ParseInt(f[len(f)-1], 10, 64)
		if err != nil {
			m.t.Fatalf("memory cgroup: %s: %v", name, err)
		}
		return n
	}
	m.t.Fatalf("memory cgroup: %s has no %q:\n%s", name, key, content)
	return 0
}

// hold has the rig's command run in the cgroup, by a script that enters it.
func (m *memoryLimit) hold(r *rig) {
	m.t.Helper()
	script := filepath.Join(r.dir, "limited")
	text := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs && exec %s \"$@\"\n", m.dir, r.bin)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
	r.bin = script
}

// TestB22SmallMemory moves a million records in 256 MB of memory, page cache
// included, which is the least that is supported.
func TestB22SmallMemory(t *testing.T) {
	var in *input
	sizes := []int64{256}
	if campaign.Long() {
		sizes = append(sizes, 512, 2048)
	}
	for _, megabytes := range sizes {
		t.Run(fmt.Sprintf("%d MB", megabytes), func(t *testing.T) {
			r := newRig(t, plainBuild)
			if in == nil {
				in = newInput(t, filepath.Join(binDir, "million.ndjson"), 1_000_000)
			}
			r.input = in.path
			limit := newMemoryLimit(t, megabytes<<20)
			limit.hold(r)
			begin := time.Now()
			r.run("--lanes", "4").want(t, exitOK, "1,000,000 records")
			took := time.Since(begin)
			r.bin, _ = plainBuild()
			r.exact(in.lines)
			if n := limit.get(limit.name("memory.events", "memory.oom_control"), "oom_kill"); n != 0 {
				t.Errorf("%d processes were killed for memory", n)
			}
			t.Logf("%v, at most %d MiB with the cache of its files, %d major faults", took.Round(time.Millisecond),
				limit.get(limit.name("memory.peak", "memory.max_usage_in_bytes"), "")>>20, limit.get("memory.stat", "pgmajfault"))
		})
	}
}
