//go:build linux

package file

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A small is a small file system of its own.
type small struct {
	t   *testing.T
	dir string
}

// newSmall mounts a tmpfs of so many bytes on dir.
func newSmall(t *testing.T, dir, size string) *small {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("needs the right to mount: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	return &small{t, dir}
}

func (s *small) ballast() string { return filepath.Join(s.dir, ".ballast") }

// fill takes all space but keep bytes.
func (s *small) fill(keep int64) {
	s.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		s.t.Fatal(err)
	}
	f, err := os.Create(s.ballast())
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, max(1, int64(st.Bavail)*st.Bsize-keep)); err != nil {
		s.t.Fatal(err)
	}
}

// free gives back what fill took.
func (s *small) free() {
	s.t.Helper()
	if err := os.Remove(s.ballast()); err != nil {
		s.t.Fatal(err)
	}
}

// stuckRig is a job whose store is a full file system.
func stuckRig(t *testing.T, job maker) (*rig, *input, *small) {
	t.Helper()
	r := job(t)
	in := newInput(t, r.input, 10_000)
	store := newSmall(t, r.out, "64m")
	store.fill(256 << 10)
	r.flags = []string{"--checkpoint-records", "1000", "--lanes", "2"}
	return r, in, store
}

// TestB17OutputDiskFull fills the disk of the output: the run waits, with a line
// in the log that says why, and goes on by itself when there is space. C110.
func TestB17OutputDiskFull(t *testing.T) {
	t.Parallel()
	r, in, store := stuckRig(t, normal)
	p := r.start(r.runArgs()...)
	p.until("an error of the store", func() bool { return strings.Contains(p.stderr.String(), "no space") })
	store.free()
	p.wait().want(t, exitOK, "10,000 records")
	r.exact(in.lines)
}

// TestB17StateDiskFull fills the disk of the state at several levels: an error
// with its own code, or back-pressure; never a signal of the system, and nothing
// lost once there is space. B19, Q06.
func TestB17StateDiskFull(t *testing.T) {
	for name, keep := range map[string]int64{"nothing left": 0, "1 MiB left": 1 << 20, "8 MiB left": 8 << 20, "40 MiB left": 40 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, normalBuild)
			in := newInput(t, r.input, 300_000)
			disk := newSmall(t, r.state, "128m")
			r.state = filepath.Join(r.state, "log")
			disk.fill(keep)
			r.flags = []string{"--checkpoint-records", "10000", "--generation-size", "8MiB", "--max-bytes", "1GiB", "--retain", "0s"}
			res := r.run()
			if res.code != exitOK {
				res.want(t, exitState, r.state, "space", "what to do: ")
			}
			if err := r.lanes().Sound(in.lines); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: exit code %d, %d of %d rows", name, res.code, r.lanes().Len(), len(in.lines))
			disk.free()
			r.run().want(t, exitOK)
			r.exact(in.lines)
		})
	}
}

// TestQ06DrainWhileStateDiskFull fills both disks with work in the log, frees the
// output only, and drains: that needs no new space for the log.
func TestQ06DrainWhileStateDiskFull(t *testing.T) {
	t.Parallel()
	r, in, store := stuckRig(t, normal)
	disk := newSmall(t, r.state, "512m")
	r.state = filepath.Join(r.state, "log")
	p := r.start(r.runArgs("--drain-timeout", "300ms")...)
	p.until("an error of the store", func() bool { return strings.Contains(p.stderr.String(), "no space") })
	p.signal(15)
	p.wait().want(t, exitInterrupted)
	had := r.lanes().Len()
	disk.fill(0)
	store.free()
	r.exec("drain", "--to", "file:"+r.out+"?"+r.opts, "--state", r.state).want(t, exitOK)
	if got := r.lanes().Len(); got <= had {
		t.Errorf("drain wrote nothing: %d rows before, %d after", had, got)
	}
	disk.free()
	r.run().want(t, exitOK)
	r.exact(in.lines)
}
