//go:build linux

package loopdev

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func write(t *testing.T, path string, data []byte, sync bool) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

// A power cut keeps what was synced and forgets what was not.
func TestSnapshot(t *testing.T) {
	for fs, megabytes := range map[string]int{"ext4": 32, "xfs": 300} {
		t.Run(fs, func(t *testing.T) {
			d := New(t, fs, megabytes)
			data := bytes.Repeat([]byte("walsink "), 1<<14)
			write(t, filepath.Join(d.Dir(), "synced"), data, true)
			write(t, filepath.Join(d.Dir(), "unsynced"), data, false)
			s := d.Snapshot(t)
			if got, err := os.ReadFile(filepath.Join(s.Dir(), "synced")); err != nil || !bytes.Equal(got, data) {
				t.Errorf("synced: %d bytes, %v", len(got), err)
			}
			if got, err := os.ReadFile(filepath.Join(s.Dir(), "unsynced")); err == nil && bytes.Equal(got, data) {
				t.Error("unsynced data outlived the power cut")
			}
			if got, err := os.ReadFile(filepath.Join(d.Dir(), "unsynced")); err != nil || !bytes.Equal(got, data) {
				t.Errorf("the original lost data: %v", err)
			}
		})
	}
}

func TestFill(t *testing.T) {
	d := New(t, "ext4", 32)
	filler := d.Fill(t, 0)
	path := filepath.Join(d.Dir(), "file")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing to a full device: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Errorf("after space was freed: %v", err)
	}
}

// A device that fails takes nothing more; what was synced is there when it is back.
func TestFail(t *testing.T) {
	for fs, megabytes := range map[string]int{"ext4": 32, "xfs": 300} {
		t.Run(fs, func(t *testing.T) {
			d := New(t, fs, megabytes)
			path := filepath.Join(d.Dir(), "file")
			write(t, path, []byte("before"), true)
			d.Fail(t)
			if err := os.WriteFile(path+"2", []byte("after"), 0o600); !errors.Is(err, syscall.EIO) {
				t.Errorf("writing to a failed device: %v", err)
			}
			d.Reattach(t)
			if got, err := os.ReadFile(path); err != nil || string(got) != "before" {
				t.Errorf("%q, %v", got, err)
			}
			d.Detach(t)
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a file of a detached device: %v", err)
			}
			d.Reattach(t)
			if got, err := os.ReadFile(path); err != nil || string(got) != "before" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
