package wal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestQ15NetworkFileSystem: a state directory where a lock may not be seen by
// another host is refused at the start, in words that say what to do.
func TestQ15NetworkFileSystem(t *testing.T) {
	for magic, want := range map[uint32]string{
		0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb", 0x517b: "smb", 0x01021997: "9p",
		0x00c36400: "ceph", 0x5346414f: "afs", 0x0bd00bd0: "lustre",
		0xef53: "", 0x58465342: "", 0x9123683e: "", 0x01021994: "", 0x794c7630: "", // ext4, xfs, btrfs, tmpfs, overlay
		0x65735546: "", // FUSE: the probe decides
		0x12345678: "", // unknown: the probe decides
	} {
		if got := networks[magic]; got != want {
			t.Errorf("%#x is %q, want %q", magic, got, want)
		}
	}
	dir := filepath.Join(t.TempDir(), "log")
	mustOpen(t, dir, Options{Logger: quiet}).Close()
	t.Run("open", func(t *testing.T) { // as if the disk of this test were one
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			t.Fatal(err)
		}
		networks[uint32(s.Type)] = "nfs"
		defer delete(networks, uint32(s.Type))
		before := filesOf(t, dir)
		_, err := Open(dir, Options{Logger: quiet})
		if !errors.Is(err, ErrUnsupported) {
			t.Fatalf("error %v, want ErrUnsupported", err)
		}
		for _, text := range []string{dir, "nfs", "local disk"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("error %q does not say %q", err, text)
			}
		}
		if after := filesOf(t, dir); len(after) != len(before) {
			t.Errorf("files %v, before %v", after, before)
		}
	})
	t.Run("gone", func(t *testing.T) {
		if _, err := networkOf(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
}
