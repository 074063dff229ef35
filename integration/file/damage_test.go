//go:build linux

package file

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stoppedFull is a job that was stopped while its store was full: most of what it
// read is complete and in the log only.
func stoppedFull(t *testing.T) (*rig, *input) {
	t.Helper()
	r, in, store := stuckRig(t, normal)
	p := r.start(r.runArgs("--drain-timeout", "300ms")...)
	p.until("the end of the input", func() bool {
		return strings.Contains(p.stderr.String(), "no space") && len(recordsIn(t, blocksFile(t, r.state))) == len(in.lines)
	})
	p.signal(15)
	p.wait().want(t, exitInterrupted)
	store.free()
	return r, in
}

// TestC108DamagedLog changes one byte of a record in the log, each time another:
// verify names the place, a run publishes nothing that is wrong, and without the log
// the job goes on from the ledger. B19, B35.
func TestC108DamagedLog(t *testing.T) {
	t.Parallel()
	r, in := stoppedFull(t)
	whole := r.state
	places := recordsIn(t, blocksFile(t, whole))
	if len(places) < 100 {
		t.Fatalf("only %d records in the log", len(places))
	}
	for i := range 5 {
		r.state = filepath.Join(r.dir, "damaged", string(rune('a'+i)))
		copyTree(t, whole, r.state)
		flip(t, blocksFile(t, r.state), places[len(places)*i/5])
		res := r.exec("verify", "--state", r.state)
		res.want(t, exitState, r.state, "what to do: ")
		for _, text := range []string{"generation", "lane walsink/00", "batch", "block"} {
			if !strings.Contains(res.stdout, text) {
				t.Errorf("verify does not name the %s: %s", text, res.stdout)
			}
		}
		if res := r.run(); res.code != exitState && res.code != exitOK {
			t.Errorf("exit code %d: %s", res.code, res.stderr)
		}
		if err := r.lanes().Sound(in.lines); err != nil {
			t.Fatal(err)
		}
	}
	r.state = filepath.Join(r.dir, "fresh")
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

// TestVerifyExport prints a batch that is only in the log.
func TestVerifyExport(t *testing.T) {
	t.Parallel()
	r, in := stoppedFull(t)
	r.exec("verify", "--state", r.state).want(t, exitOK)
	res := r.exec("verify", "--state", r.state, "--export", "walsink/001:5")
	res.want(t, exitOK)
	for line := range strings.Lines(res.stdout) {
		if !slices.Contains(in.lines, line) {
			t.Fatalf("a line that is not in the input: %q", line)
		}
	}
	if n := strings.Count(res.stdout, "\n"); n != 500 {
		t.Errorf("%d lines, want 500", n)
	}
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

// TestE19StateRolledBack puts an older copy of the state directory back, several
// times: the ledger is ahead of it, and decides. B32, C050.
func TestE19StateRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	r.flags = []string{"--lanes", "3", "--checkpoint-records", "100"}
	in := newInput(t, r.input, 1000)
	r.run().want(t, exitOK)
	old := filepath.Join(r.dir, "old")
	copyTree(t, r.state, old)
	for range 3 {
		in.grow(t, 1000)
		r.run().want(t, exitOK)
		r.exact(in.lines)
		if err := os.RemoveAll(r.state); err != nil {
			t.Fatal(err)
		}
		copyTree(t, old, r.state)
	}
	r.run().want(t, exitOK, "nothing new")
	r.exact(in.lines)
}

// TestStoreRolledBack puts an older copy of the output back: what was in it once
// comes from the log again, as long as the log retains it.
func TestStoreRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	r.flags = []string{"--lanes", "3", "--checkpoint-records", "100"}
	in := newInput(t, r.input, 1000)
	r.run().want(t, exitOK)
	old := filepath.Join(r.dir, "old")
	copyTree(t, r.out, old)
	in.grow(t, 1000)
	r.run().want(t, exitOK)
	r.exact(in.lines)
	if err := os.RemoveAll(r.out); err != nil {
		t.Fatal(err)
	}
	copyTree(t, old, r.out)
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

func blocksFile(t *testing.T, state string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(state, "gen-*", "BLOCKS"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no blocks in %s: %v", state, err)
	}
	return files[0]
}

// recordsIn are the offsets of generated records in a file.
func recordsIn(t *testing.T, path string) []int {
	t.Helper()
	content := []byte(readFile(t, path))
	var at []int
	for i := 0; ; {
		n := bytes.Index(content[i:], []byte(`"pad":`))
		if n < 0 {
			return at
		}
		at = append(at, i+n)
		i += n + 1
	}
}

// flip changes one bit.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", "--sparse=always", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}
