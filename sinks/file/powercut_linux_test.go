package file

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/sinks"
)

// disk is a file system of its own on a loop device. What is in its backing file is
// what a power cut would leave.
type disk struct {
	image, dir string
}

func newDisk(t testing.TB, kind string, size int64) *disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("loop devices need root")
	}
	d := &disk{image: filepath.Join(t.TempDir(), "image"), dir: t.TempDir()}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.image, size); err != nil {
		t.Fatal(err)
	}
	args := map[string][]string{"ext4": {"-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"}, "xfs": {"-q", "-f"}}[kind]
	if out, err := exec.Command("mkfs."+kind, append(args, d.image)...).CombinedOutput(); err != nil {
		t.Skipf("mkfs.%s: %v %s", kind, err, out)
	}
	d.mount(t)
	return d
}

func (d *disk) mount(t testing.TB) {
	t.Helper()
	opts := "loop"
	if out, _ := exec.Command("blkid", "-o", "value", "-s", "TYPE", d.image).Output(); strings.TrimSpace(string(out)) == "xfs" {
		opts += ",nouuid"
	}
	if out, err := exec.Command("mount", "-o", opts, d.image, d.dir).CombinedOutput(); err != nil {
		t.Skipf("mount: %v %s", err, out)
	}
	t.Cleanup(d.unmount)
}

func (d *disk) unmount() { _ = exec.Command("umount", d.dir).Run() }

// afterCut is the disk as it would come up after a power cut now.
func (d *disk) afterCut(t testing.TB) *disk {
	t.Helper()
	c := &disk{image: filepath.Join(t.TempDir(), "image"), dir: t.TempDir()}
	if out, err := exec.Command("cp", "--sparse=always", d.image, c.image).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	c.mount(t)
	return c
}

// powerCuts cuts the power at every so many operations, before them or after them, of
// a process that writes batches, and looks at what a start after that finds. It
// returns the first thing that is wrong.
func powerCuts(t *testing.T, kind string, every int, after bool, env ...string) error {
	size := map[string]int64{"ext4": 16 << 20, "xfs": 300 << 20}[kind]
	d := newDisk(t, kind, size)
	defer d.unmount()
	confirm := filepath.Join(t.TempDir(), "confirmed")
	if err := os.WriteFile(confirm, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(d.dir, "out")
	j := job{Dir: dir, Batches: 3, Recs: 200, Opts: Options{Buckets: true}, Buckets: 3,
		Op: 1, After: after, Every: every, Signal: syscall.SIGSTOP, Confirm: confirm}
	p := start(t, j, env...)
	defer func() {
		_ = p.cmd.Process.Kill() // it may have ended
		p.wait()
	}()
	cuts := 0
	for ; p.stopped(); cuts++ {
		text, err := os.ReadFile(confirm)
		if err != nil {
			t.Fatal(err)
		}
		confirmed, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkCut(t, d, j, confirmed); err != nil {
			return fmt.Errorf("cut %d, %d batches confirmed: %w", cuts, confirmed, err)
		}
		p.signal(syscall.SIGCONT)
	}
	if cuts*every < 150 {
		t.Fatalf("only %d cuts", cuts)
	}
	campaign.Figures{Cycles: cuts, Faults: map[string]int{"power cut, files on " + kind: cuts}}.Report(t)
	return nil
}

func checkCut(t *testing.T, d *disk, j job, confirmed uint64) error {
	c := d.afterCut(t)
	defer os.Remove(c.image)
	defer c.unmount()
	dir := filepath.Join(c.dir, "out")
	src := j.source()
	if confirmed > 0 {
		m := markOf(t, dir)
		if m.Seq < confirmed {
			return fmt.Errorf("the mark is at %d", m.Seq)
		}
		for name, want := range src[:confirmed].buckets(t) {
			if got := bucketsIn(t, dir)[name]; !strings.HasPrefix(got, want) {
				return fmt.Errorf("bucket %s: published records are missing: %d bytes, want %d", name, len(got), len(want))
			}
		}
	}
	if err := src.run(dir, j.Opts, nil); err != nil {
		return err
	}
	got, want := bucketsIn(t, dir), src.buckets(t)
	for name := range want {
		if got[name] != want[name] {
			return fmt.Errorf("bucket %s: %d bytes after the restart, want %d", name, len(got[name]), len(want[name]))
		}
	}
	return nil
}

// F09 and C100: a power cut at some operations, at all of them with
// WALSINK_CAMPAIGN. Whatever was confirmed is there, with the right contents; the
// rest comes with the restart.
func TestC100F09PowerCut(t *testing.T) {
	for kind, every := range map[string]int{"ext4": 9, "xfs": 37} {
		if campaign.Long() {
			every = 1
		}
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s after=%v", kind, after), func(t *testing.T) {
				if err := powerCuts(t, kind, every, after); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// A full disk holds the flush up; with space again, it goes on. Nothing half is seen
// meanwhile.
func TestB17DiskFull(t *testing.T) {
	d := newDisk(t, "ext4", 8<<20)
	defer d.unmount()
	dir := filepath.Join(d.dir, "out")
	src := bigSource(3, 20_000) // 1.5 MB a batch
	o := acquire(t, dir, Options{})
	defer o.sink.Close()
	o.flush(src[0])
	filler := filepath.Join(d.dir, "filler")
	fillDisk(t, filler)
	err := o.try(src[1])
	wantKind(t, err, sinks.Transient)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make space") {
		t.Errorf("error %v", err)
	}
	wantConcat(t, dir, src.upTo(1))
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	m, err := o.lane.Mark(t.Context())
	if err != nil || m.Seq != 1 {
		t.Fatalf("mark %+v, %v", m, err)
	}
	o.flush(src[1])
	o.flush(src[2])
	wantConcat(t, dir, src.upTo(3))
}

func fillDisk(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for buf := make([]byte, 64<<10); len(buf) > 0; {
		if _, err := f.Write(buf); err != nil {
			buf = buf[:len(buf)/2]
		}
	}
}

// F08: the target is a mount point, TMPDIR is on another file system.
func TestF08TargetIsMountPoint(t *testing.T) {
	d := newDisk(t, "ext4", 8<<20)
	defer d.unmount()
	t.Setenv("TMPDIR", scratch(t))
	src := newSource(2)
	if err := src.run(d.dir, Options{}, nil); err != nil {
		t.Fatal(err)
	}
	wantConcat(t, d.dir, src.upTo(2))
}

// A file system that turns read-only stops the lane with advice.
func TestReadOnlyFileSystem(t *testing.T) {
	d := newDisk(t, "ext4", 8<<20)
	defer d.unmount()
	dir := filepath.Join(d.dir, "out")
	o := acquire(t, dir, Options{})
	defer o.sink.Close()
	o.flush(lines(1, "a"))
	if out, err := exec.Command("mount", "-o", "remount,ro", d.dir).CombinedOutput(); err != nil {
		t.Skipf("remount: %v %s", err, out)
	}
	err := o.try(lines(2, "b"))
	wantKind(t, err, sinks.Permanent)
	if !strings.Contains(err.Error(), "read-only") {
		t.Error(err)
	}
	if m, err := o.lane.Mark(t.Context()); err != nil || m.Seq != 1 {
		t.Errorf("mark %+v, %v", m, err)
	}
}
