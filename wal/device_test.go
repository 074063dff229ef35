//go:build linux

package wal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/loopdev"
)

// TestQ07DeviceGone takes the disk away from a process that writes. The process
// ends soon, with an error or by the signal of Badger's mapping, and when the disk
// is back all that it was told is there.
func TestQ07DeviceGone(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a loop device")
	}
	for _, fs := range []string{"ext4", "xfs"} {
		for name, take := range map[string]func(*loopdev.Device, testing.TB){
			"failed": (*loopdev.Device).Fail, "detached": (*loopdev.Device).Detach,
		} {
			for _, in := range []string{".", "log"} { // the log is the mount point, or in it
				t.Run(fs+" "+name+" "+in, func(t *testing.T) {
					dev := loopdev.New(t, fs, 400)
					dir := filepath.Join(dev.Dir(), in)
					said, ended := loseDevice(t, dir, func() { take(dev, t) })
					dev.Reattach(t)
					cause, _, _ := strings.Cut(ended, "\n")
					if !strings.HasPrefix(cause, "error") && !strings.Contains(ended, "SIGBUS") {
						t.Errorf("the process ended with no reason: %.500s", ended)
					}
					t.Log(cause)
					checkApart(t, dir, said)
				})
			}
		}
	}
}

// loseDevice runs a child in dir until it has told of a few checkpoints, takes the
// disk away, and waits for its end. It returns what the child said before it ended,
// and with what.
func loseDevice(t *testing.T, dir string, take func()) (said []byte, ended string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "error") {
			ended += lines.Text() + "\n"
			continue
		}
		said = fmt.Appendln(said, lines.Text())
		if lines.Text() == "completed 5" {
			take()
		}
	}
	err = cmd.Wait()
	if !hung.Stop() {
		t.Fatalf("the process went on for a minute without its disk: %s", said)
	}
	if err == nil {
		t.Fatalf("the process came to its end without its disk: %s", said)
	}
	return said, ended + errs.String() + err.Error()
}

// TestQ07DirectoryReplaced puts an empty directory in the place of the log's, as
// unmounting its disk does. Nothing is acknowledged that is in the wrong place.
func TestQ07DirectoryReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	opts := Options{GenerationBytes: 1 << 20, Logger: quiet}
	l := mustOpen(t, dir, opts)
	rec := bytes.Repeat([]byte("x"), 100<<10)
	put(t, l, testLane, 1, rec)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, opts) // nothing is being written
	if err := errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	ln := mustLane(t, l, testLane)
	var told uint64 = 1
	var failure error
	for c := uint64(2); failure == nil && c < 100; c++ {
		for range 5 {
			failure = firstErr(failure, ln.Append(t.Context(), rec))
		}
		_, _, err := ln.Seal(c, nil, "", false)
		if failure = firstErr(failure, err, l.Sync()); failure == nil {
			told = c
		}
	}
	if !errors.Is(failure, ErrFailed) {
		t.Fatalf("error %v, want ErrFailed", failure)
	}
	if !strings.Contains(failure.Error(), "mounted") {
		t.Errorf("error %v does not say what to look at", failure)
	}
	if err := l.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("close: %v", err)
	}
	if files := filesOf(t, dir); len(files) > 0 {
		t.Errorf("files in the wrong place: %v", files)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, opts)
	if got := l.tipOf(mustLane(t, l, testLane)); got < told {
		t.Errorf("batches up to %d are there, was told %d", got, told)
	}
}
