//go:build linux

package wal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/loopdev"
)

// TestB10PowerCut cuts the power of a process that writes, at random moments: the
// log on what the disk then has must hold all that the process was told. Every
// cut may hit a rotation (B13), a fresh file (B14) or a first seal (B16).
func TestB10PowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a loop device and some seconds")
	}
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			dev := loopdev.New(t, fs, 400)
			dir := filepath.Join(dev.Dir(), "log")
			said, err := os.Create(filepath.Join(t.TempDir(), "said"))
			if err != nil {
				t.Fatal(err)
			}
			defer said.Close()
			rounds, cuts := 3, 0
			if campaign.Long() {
				rounds = 30
			}
			rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
			for range rounds {
				cuts += cutPower(t, dev, dir, said, rng)
			}
			campaign.Figures{Cycles: cuts, Faults: map[string]int{"power cut, log on " + fs: cuts}}.Report(t)
		})
	}
}

// cutPower runs a child and looks at what a power cut would leave at two moments. It
// returns how many were looked at.
func cutPower(t *testing.T, dev *loopdev.Device, dir string, said *os.File, rng *rand.Rand) (cuts int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		err := errors.Join(cmd.Process.Kill())
		if _, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok && err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	}()
	for range 2 {
		wait := time.NewTimer(time.Duration(50+rng.IntN(400)) * time.Millisecond)
		<-wait.C
		if !loopdev.Freeze(t, cmd.Process) {
			return cuts // it is done
		}
		out, err := os.ReadFile(said.Name())
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(out, []byte("sealed")) {
			cuts++
			checkCut(t, dev, out)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	return cuts
}

// checkCut looks at what the disk has now. The copy is gone when it returns.
func checkCut(t *testing.T, dev *loopdev.Device, said []byte) {
	t.Helper()
	t.Run("cut", func(t *testing.T) { checkApart(t, filepath.Join(dev.Snapshot(t).Dir(), "log"), said) })
}

// toldEnv names a file with what children said; see TestTold.
const toldEnv = "WALSINK_WAL_TOLD"

// checkApart is told.check in a process of its own, since Badger keeps a mapping
// of a file after a recovery, and the file system is to be unmounted.
func checkApart(t *testing.T, dir string, said []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "told")
	if err := os.WriteFile(path, said, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTold$", "-test.v")
	cmd.Env = append(os.Environ(), toldEnv+"="+path, "WALSINK_WAL_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestTold is the other process of checkApart; it does nothing in an ordinary run.
func TestTold(t *testing.T) {
	path := os.Getenv(toldEnv)
	if path == "" {
		return // not the other process
	}
	said, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	k := newTold()
	k.hear(said[:bytes.LastIndexByte(said, '\n')+1])
	if k.failed != "" {
		t.Fatal(k.failed)
	}
	k.check(t, os.Getenv("WALSINK_WAL_DIR"))
}

// TestB17Loop fills a loop device, where allocation is delayed and a journal needs
// room, kills the process at once, and opens on the full disk.
func TestB17Loop(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a loop device")
	}
	dev := loopdev.New(t, "ext4", 64)
	dir, k := filepath.Join(dev.Dir(), "log"), newTold()
	k.runChild(t, dir, time.Minute, "WALSINK_WAL_STOP=6")
	empty := fillDisk(t, dev.Dir())
	for range 3 { // a flush goes on through restarts, each on a full disk
		k.runChild(t, dir, time.Minute, "WALSINK_WAL_COMMIT=1")
		fillDisk(t, dev.Dir())
	}
	for _, name := range killLanes {
		if k.commit[name] != 3 {
			t.Errorf("%s: committed %d on the full disk, want 3", name, k.commit[name])
		}
	}
	empty()
	k.runChild(t, dir, time.Minute, "WALSINK_WAL_STOP=9")
	if k.completed != 9 {
		t.Errorf("completed %d after there was room, want 9", k.completed)
	}
}
