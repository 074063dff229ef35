//go:build linux

// Package loopdev gives tests a file system on a loop device of its own: small,
// so that it can be filled, and with a backing file that can be copied, so that
// the power can be cut.
//
// # What a power cut is here
//
// The backing file holds what the file system has handed to its disk. What is
// only in the page cache of the mounted file system is not in it. A copy of the
// backing file is therefore what a machine would find after its power failed now,
// with a disk that keeps every write it was given. A process that writes
// meanwhile is to be stopped before, since the copy is not made in an instant.
// Disks that lose or reorder writes between two flushes are not modelled.
//
// Linux and root only; elsewhere the test skips, or fails if CI=true.
package loopdev

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// A Device is a mounted file system in a file.
type Device struct {
	fs, image, dir string
}

// New makes a file system of the given type, "ext4" or "xfs", and size and mounts
// it until the test ends. Ext4 wants 16 MB at least and xfs 300.
func New(t testing.TB, fs string, megabytes int) *Device {
	t.Helper()
	mkfs, err := exec.LookPath("mkfs." + fs)
	if err != nil {
		unavailable(t, err)
	}
	d := &Device{fs: fs, image: filepath.Join(t.TempDir(), fs+".img")}
	f, err := os.Create(d.image)
	if err == nil {
		err = f.Truncate(int64(megabytes) << 20)
		_ = f.Close()
	}
	if err != nil {
		t.Fatalf("loopdev: %v", err)
	}
	args := map[string][]string{
		"ext4": {"-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"},
		"xfs":  {"-q", "-f"},
	}[fs]
	if err := run(mkfs, append(args, d.image)...); err != nil {
		t.Fatalf("loopdev: %v", err)
	}
	d.mount(t)
	return d
}

// Dir returns the directory where the file system is mounted. It is empty but for
// lost+found.
func (d *Device) Dir() string { return d.dir }

// Snapshot returns a second device with what would be found if the power failed
// now: its journal has been replayed. The first one goes on.
func (d *Device) Snapshot(t testing.TB) *Device {
	t.Helper()
	s := &Device{fs: d.fs, image: filepath.Join(t.TempDir(), "snapshot.img")}
	if err := run("cp", "--sparse=always", "--reflink=auto", d.image, s.image); err != nil {
		t.Fatalf("loopdev: %v", err)
	}
	s.mount(t)
	return s
}

// Freeze stops a child of this process for a [Device.Snapshot]: none of its threads
// runs when it returns. It reports false if the child has ended. SIGCONT ends it.
//
// A signal alone is not enough: the child goes on until one of its threads is
// scheduled and takes it.
func Freeze(t testing.TB, child *os.Process) bool {
	t.Helper()
	if err := child.Signal(syscall.SIGSTOP); err != nil {
		return false
	}
	const pid, stopped = 1, 2 // P_PID and WSTOPPED
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pid, uintptr(child.Pid), 0, stopped, 0, 0)
		switch errno {
		case 0:
			return true
		case syscall.ECHILD:
			return false
		case syscall.EINTR:
		default:
			t.Fatalf("loopdev: wait for a stop: %v", errno)
		}
	}
}

// mount mounts the image through a loop device that the system frees on unmount.
func (d *Device) mount(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		unavailable(t, fmt.Errorf("mount: uid %d is not root", os.Getuid()))
	}
	d.dir = t.TempDir()
	if err := run("mount", "-t", d.fs, "-o", d.options(), d.image, d.dir); err != nil {
		unavailable(t, err)
	}
	t.Cleanup(func() {
		if err := run("umount", d.dir); err != nil {
			t.Errorf("loopdev: %v", err)
			_ = run("umount", "--lazy", d.dir)
		}
	})
}

func (d *Device) options() string {
	switch d.fs {
	case "ext4":
		return "loop,noatime,commit=300" // the test syncs, not a timer
	case "xfs":
		return "loop,noatime,nouuid" // a snapshot beside its original
	}
	return "loop,noatime"
}

// Fail makes the device fail from now on: reads and writes of the file system give
// an error, and what it had not handed to its disk is lost. Reattach ends it.
func (d *Device) Fail(t testing.TB) {
	t.Helper()
	f, err := os.Open(d.dir)
	if err != nil {
		t.Fatalf("loopdev: %v", err)
	}
	defer f.Close()
	const shutdown = 0x8004587d // the same for ext4 and xfs
	noFlush := uint32(2)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&noFlush))); errno != 0 {
		t.Fatalf("loopdev: shut down %s: %v", d.dir, errno)
	}
}

// Detach takes the file system from its directory, whoever uses it.
func (d *Device) Detach(t testing.TB) {
	t.Helper()
	if err := run("umount", "--lazy", d.dir); err != nil {
		t.Fatalf("loopdev: %v", err)
	}
}

// Reattach mounts the backing file again, in the same directory. It waits until
// nobody uses the file system that was there. Only the journal repairs anything.
func (d *Device) Reattach(t testing.TB) {
	t.Helper()
	_ = run("umount", d.dir) // unless it was detached
	for deadline := time.Now().Add(10 * time.Second); ; {
		out, err := exec.Command("losetup", "--associated", d.image).CombinedOutput()
		if err == nil && len(out) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("loopdev: still in use: %v: %s", err, out)
		}
		<-time.After(10 * time.Millisecond)
	}
	if err := run("mount", "-t", d.fs, "-o", d.options(), d.image, d.dir); err != nil {
		t.Fatalf("loopdev: %v", err)
	}
}

// Fill takes all space but about keep bytes. Removing the file that it returns
// gives it back.
func (d *Device) Fill(t testing.TB, keep int64) (path string) {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &s); err != nil {
		t.Fatalf("loopdev: statfs: %v", err)
	}
	path = filepath.Join(d.dir, "filler")
	if n := int64(s.Bavail)*s.Bsize - keep; n > 0 {
		if err := run("fallocate", "-l", strconv.FormatInt(n, 10), path); err != nil {
			t.Fatalf("loopdev: %v", err)
		}
	}
	return path
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

func unavailable(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("loopdev: CI=true and no loop device: %v", err)
	}
	t.Skipf("loopdev: no loop device: %v", err)
}
