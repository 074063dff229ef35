//go:build unix

package wal

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// TestFileModes: nobody else can read the log, whatever the umask.
func TestFileModes(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "log")
	l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
	put(t, l, testLane, 1, slices.Repeat([][]byte{make([]byte, 100<<10)}, 30)...)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		want := os.FileMode(0o600)
		if d.IsDir() {
			want = 0o700 | os.ModeDir
		}
		if err == nil && info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
