package wal

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// format1Logs hold what buildLog wrote when the format was 1, whose values are in the
// value logs of Badger: one closed, one of a process that was killed.
var format1Logs = []string{"testdata/log-1-closed.tar.gz", "testdata/log-1-killed.tar.gz"}

func unpack(t *testing.T, archive string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("tar", "-xzf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// format2Logs are the same of format 2.
var format2Logs = []string{"testdata/log-2-closed.tar.gz", "testdata/log-2-killed.tar.gz"}

// TestFormats: a log of any format is read, damage in it is named, and it becomes one of
// the present format with the first generation that is made in it (Q04).
func TestFormats(t *testing.T) {
	for _, fixture := range slices.Concat(format1Logs, format2Logs) {
		t.Run(filepath.Base(fixture), func(t *testing.T) {
			dir := unpack(t, fixture)
			if complaints := survey(t, dir, 9); len(complaints) > 0 {
				t.Fatal(complaints)
			}
			if slices.Contains(format1Logs, fixture) {
				wantFormat(t, dir, format1)
			}
			for c := uint64(10); c <= 12; c++ {
				l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
				writeKillBatches(t, l, c)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				wantFormat(t, dir, format)
			}
			if complaints := survey(t, dir, 12); len(complaints) > 0 {
				t.Fatal(complaints)
			}
		})
		t.Run("damaged "+filepath.Base(fixture), func(t *testing.T) {
			dir, holder := unpack(t, fixture), valueFile
			if slices.Contains(format1Logs, fixture) {
				holder = "*.vlog"
			}
			files, err := filepath.Glob(filepath.Join(dir, "gen-*", holder))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			b, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			if err := os.WriteFile(files[0], b, 0o600); err != nil {
				t.Fatal(err)
			}
			if complaints := survey(t, dir, 9); len(complaints) == 0 {
				t.Error("nobody complains")
			}
		})
	}
}

func wantFormat(t *testing.T, dir, want string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(dir, formatName)); err != nil || string(got) != want {
		t.Fatalf("format %q, %v, want %q", got, err, want)
	}
}
