//go:build linux

package file

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// After each refusal the cause is mended and the same command line finishes: that
// is what "nothing is lost" means.

func TestRefuseLineThatIsNotJSON(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	r.flags = []string{"--lanes", "2", "--checkpoint-records", "100"}
	good := lines(0, 1000)
	bad := append([]string(nil), good...)
	bad[700] = "{\"id\":700,\n"
	writeFile(t, r.input, strings.Join(bad, ""))
	r.run().want(t, exitInput, r.input+":701: offset ", "not JSON", "what to do: ")
	if err := r.lanes().Sound(good); err != nil {
		t.Fatal(err)
	}
	bad[700] = good[700]
	writeFile(t, r.input, strings.Join(bad, ""))
	r.run().want(t, exitOK)
	r.exact(good)
}

func TestRefuseRecordOverTheLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	r.flags = []string{"--max-record", "1KiB"}
	good := lines(0, 10)
	long := fmt.Sprintf("{\"id\":10,\"pad\":%q}\n", strings.Repeat("x", 2000))
	writeFile(t, r.input, strings.Join(good, "")+long)
	r.run().want(t, exitInput, r.input+":11: offset ", "limit of 1024 bytes", "what to do: ")
	r.flags = nil
	r.run().want(t, exitOK)
	r.exact(append(good, long))
}

func TestRefuseSourceThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	r.run().want(t, exitInput, r.input, "no such file", "what to do: ")
	in := newInput(t, r.input, 10)
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

// TestRefuseSourceThatShrank cuts the input below what was committed. F03.
func TestRefuseSourceThatShrank(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 1000)
	r.run().want(t, exitOK)
	if err := os.Truncate(r.input, 100); err != nil {
		t.Fatal(err)
	}
	res := r.run()
	if res.code != exitInput && res.code != exitLedger {
		t.Fatalf("exit code %d: %s", res.code, res.stderr)
	}
	res.want(t, res.code, r.input, "what to do: ")
	r.exact(in.lines)
}

// TestRefuseOtherSource gives the job of one file to another: two jobs on one id.
func TestRefuseOtherSource(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 100)
	r.run().want(t, exitOK)
	r.input = filepath.Join(r.dir, "other.ndjson")
	writeFile(t, r.input, strings.Join(lines(5000, 100), ""))
	r.run().want(t, exitLedger, "belongs to another source", "what to do: ")
	r.exact(in.lines)
}

// TestRefuseLedgerRemoved removes the manifests and leaves the data. E13, Q12, C098.
func TestRefuseLedgerRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 100)
	r.run().want(t, exitOK)
	in.grow(t, 100)
	hidden, aside := filepath.Join(r.out, ".walsink"), filepath.Join(r.dir, "aside")
	rename(t, hidden, aside)
	res := r.run()
	if res.code != exitLedger && res.code != exitStore {
		t.Fatalf("exit code %d: %s", res.code, res.stderr)
	}
	res.want(t, res.code, "ledger", "what to do: ")
	if err := os.RemoveAll(hidden); err != nil {
		t.Fatal(err)
	}
	rename(t, aside, hidden)
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

// TestRefuseOutputRemoved removes the output as a whole while the state says that
// records are in it. E13, F03.
func TestRefuseOutputRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 100)
	r.run().want(t, exitOK)
	if err := os.RemoveAll(r.out); err != nil {
		t.Fatal(err)
	}
	r.run().want(t, exitLedger, "lost its ledger", "what to do: ")
	r.run("--accept-duplicates").want(t, exitOK)
	r.exact(in.lines)
}

func TestRefuseOutputReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 100)
	if err := os.Mkdir(r.out, 0o755); err != nil {
		t.Fatal(err)
	}
	mend := readOnly(t, r.out)
	r.run().want(t, exitStore, r.out, "what to do: ")
	mend()
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

// readOnly makes a directory read-only, for root too, and returns what undoes it.
func readOnly(t *testing.T, dir string) func() {
	t.Helper()
	if err := exec.Command("mount", "--bind", dir, dir).Run(); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	if out, err := exec.Command("mount", "-o", "remount,bind,ro", dir).CombinedOutput(); err != nil {
		t.Skipf("needs the right to mount: %v: %s", err, out)
	}
	return func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Fatalf("umount: %v: %s", err, out)
		}
	}
}

// TestForeignFilesStay runs into a directory that holds files of others.
func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 100)
	if err := os.Mkdir(r.out, 0o755); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(r.out, "README")
	writeFile(t, other, "not ours\n")
	r.run().want(t, exitOK)
	if got := readFile(t, other); got != "not ours\n" {
		t.Errorf("README is now %q", got)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	r.exact(in.lines)
}

// nextPart is the name of the part that the next checkpoint will write, when one
// part has been written so far.
func (r *rig) nextPart() string {
	r.t.Helper()
	names, err := filepath.Glob(filepath.Join(r.out, "*+*.ndjson"))
	if err != nil || len(names) != 1 {
		r.t.Fatalf("parts: %v, %v", names, err)
	}
	f := strings.Split(names[0], "+")
	var n int
	if _, err := fmt.Sscan(f[2], &n); err != nil {
		r.t.Fatal(err)
	}
	f[2] = fmt.Sprintf("%020d", n+1)
	return strings.Join(f, "+")
}

// TestRefuseStateInUse starts a second process on one state directory. B23, E08.
func TestRefuseStateInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 1000)
	first := r.start(r.runArgs("--follow")...)
	first.until("a part", func() bool { return r.lanes().Len() > 0 })
	pid := fmt.Sprintf("process %d", first.cmd.Process.Pid)
	r.run().want(t, exitInUse, r.state, pid, "what to do: ")
	for _, args := range [][]string{{"status"}, {"verify"}} {
		r.exec(append(args, "--state", r.state)...).want(t, exitInUse, pid)
	}
	first.signal(15)
	first.wait().want(t, exitOK)
	r.exact(in.lines)
}

// TestRefuseNewerState opens a state directory of a format that does not exist yet. Q04.
func TestRefuseNewerState(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 100)
	r.run().want(t, exitOK)
	undo := r.raiseStateFormat()
	r.run().want(t, exitState, r.state, "format", "what to do: ")
	undo()
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// raiseStateFormat gives the state directory a version of the future, and returns
// what undoes it.
func (r *rig) raiseStateFormat() func() {
	r.t.Helper()
	path := filepath.Join(r.state, "FORMAT")
	old := readFile(r.t, path)
	writeFile(r.t, path, strings.Replace(old, "2", "3", 1))
	return func() { writeFile(r.t, path, old) }
}
