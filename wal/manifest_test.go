package wal

import (
	"os"
	"path/filepath"
	"testing"
)

// TestManifestOfClose: Badger has listed its table in the manifest, could not sync that,
// and removed the table again. The log of the memory table has everything.
func TestManifestOfClose(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
	appendSeal(t, l, testLane, 1, "one")
	if err := l.Checkpoint(1, []byte("here")); err != nil {
		t.Fatal(err)
	}
	st, ok := l.active.st.(*badgerStore)
	if !ok {
		t.Fatal("not the store of Badger")
	}
	left := copyDir(t, dir)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(st.dir, "MANIFEST"))
	if err != nil || len(manifest) <= emptyManifest {
		t.Fatalf("manifest of %d bytes, %v", len(manifest), err)
	}
	if err := os.WriteFile(filepath.Join(left, filepath.Base(st.dir), "MANIFEST"), manifest, 0o600); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		l = mustOpen(t, left, Options{GenerationBytes: 1 << 20, Logger: quiet})
		if c, p := l.Completed(); c != 1 || string(p) != "here" || len(l.Stat().Damage) > 0 {
			t.Errorf("completed %d at %q, damage %v", c, p, l.Stat().Damage)
		}
		if held := l.Batches(testLane); len(held) != 1 || len(readBatch(t, l, testLane, 1)) != 1 {
			t.Errorf("%d batches are held", len(held))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
