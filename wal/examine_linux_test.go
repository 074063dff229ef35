package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExamine looks at directories in every state, and leaves them so.
func TestExamine(t *testing.T) {
	base := t.TempDir()
	in := func(name string) string { return filepath.Join(base, name) }
	for name, file := range map[string]string{"empty": "", "foreign": "notes", "newer": formatName, "damaged": genPrefix + "7"} {
		if err := os.Mkdir(in(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(in(name), file), []byte(strings.ReplaceAll(format, "2", "3")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, in("log"), Options{Logger: quiet}).Close()
	held := mustOpen(t, in("held"), Options{Logger: quiet})
	names := map[string][]string{}
	for _, dir := range []string{"empty", "foreign", "newer", "damaged", "log"} {
		names[dir] = filesOf(t, in(dir))
	}
	for _, c := range []struct {
		dir      string
		exists   bool
		hasLog   bool
		contents error
	}{
		{"empty", true, false, nil}, {"foreign", true, false, ErrForeign}, {"newer", true, true, ErrFormat},
		{"damaged", true, true, ErrDamaged}, {"log", true, true, nil}, {"held", true, true, nil}, {"not/there", false, false, nil},
	} {
		f := Examine(in(c.dir))
		if f.Exists != c.exists || f.HasLog != c.hasLog || !errors.Is(f.Contents, c.contents) || c.contents == nil && f.Contents != nil {
			t.Errorf("%s: %+v", c.dir, f)
		}
		if f.Write != nil || f.Allocate != nil || f.Free <= 0 || f.Network || f.FileSystem == "" || f.Owner != os.Getuid() {
			t.Errorf("%s: %+v", c.dir, f)
		}
		if c.dir == "held" && f.Used == 0 {
			t.Errorf("%s: %d bytes used", c.dir, f.Used)
		}
		if want := map[bool]string{true: fmt.Sprint(os.Getpid())}[c.dir == "held"]; f.Holder != want {
			t.Errorf("%s: holder %q, want %q", c.dir, f.Holder, want)
		}
	}
	if f := Examine(in("not/there")); f.Dir != base {
		t.Errorf("it would be made in %s, want %s", f.Dir, base)
	}
	if f := Examine(in("foreign/notes/below")); f.Write == nil || f.Contents == nil {
		t.Errorf("below a file: %+v", f)
	}
	if f := Examine("/proc/self/walsink"); f.Write == nil {
		t.Errorf("in /proc: %+v", f)
	}
	if f := Examine("/dev/shm"); !f.Volatile || f.FileSystem != "tmpfs" || f.Write != nil {
		t.Errorf("tmpfs: %+v", f)
	}
	for dir, before := range names {
		if after := filesOf(t, in(dir)); !slices.Equal(before, after) {
			t.Errorf("%s: files %v, before %v", dir, after, before)
		}
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	mustOpen(t, in("held"), Options{Logger: quiet}).Close()
}
