package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks"
)

// On a file system without a rename that does not replace, a link and a removal take
// its place, for parts and for manifests.
func TestLinkInPlaceOfRename(t *testing.T) {
	link := func(s *Sink) operation {
		return func(op, name string, do func() error) error {
			if op != "rename" {
				return do()
			}
			return linkThenRemove(s.fs.root, newestStaged(t, s, name), name)
		}
	}
	dir := t.TempDir()
	s := open(t, dir, Options{})
	s.fs.wrap = link(s)
	l, m, err := s.Acquire(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	src := newSource(3)
	for _, b := range src {
		step := stepAfter(orders, m, b)
		if _, err := l.Flush(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		m = step.Next
	}
	wantConcat(t, dir, src.upTo(3))
	old := &owner{t, s, l, m}
	acquire(t, dir, Options{})
	wantKind(t, old.try(lines(4, "x")), sinks.Fenced)
	wantNoStaging(t, dir)
}

// newestStaged is the staged file that is about to get the name.
func newestStaged(t *testing.T, s *Sink, name string) string {
	t.Helper()
	kind := "*.part"
	if strings.Contains(name, "/log/") {
		kind = "*.manifest"
	}
	names, err := fs.Glob(s.fs.root.FS(), laneDir(orders.Sink, orders.Lane)+"/stage/"+kind)
	if err != nil || len(names) != 1 {
		t.Fatalf("staged: %v, %v", names, err)
	}
	return names[0]
}

// A crash between the link and the removal leaves one file with two names. It is
// published already.
func TestPartWithTwoNames(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	crash := errors.New("crash")
	o.sink.fs.wrap = func(op, name string, do func() error) error {
		if op != "rename" || strings.Contains(name, "/log/") {
			return do()
		}
		return errors.Join(o.sink.fs.root.Link(newestStaged(t, o.sink, name), name), crash)
	}
	if err := o.try(lines(1, "a")); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	acquire(t, dir, Options{}).flush(lines(2, "b"))
	wantConcat(t, dir, "a\nb\n")
	wantNoStaging(t, dir)
}

func TestPlaceDoesNotReplace(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for name, place := range map[string]func(root *os.Root, from, to string) error{"rename": noReplace, "link": linkThenRemove} {
		for _, file := range []string{"from", "to"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := place(s.fs.root, "from", "to"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "to")); err != nil || string(text) != "to" {
			t.Errorf("%s: %s, %v", name, text, err)
		}
		if err := place(s.fs.root, "missing", "new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKindsOfFileSystem(t *testing.T) {
	for magic, want := range map[uint32]sinks.Guarantee{
		0xef53: sinks.ExactlyOnce, 0x58465342: sinks.ExactlyOnce, 0x12345678: sinks.ExactlyOnce,
		0x6969: sinks.AtLeastOnce, 0xff534d42: sinks.AtLeastOnce, 0x65735546: sinks.AtLeastOnce, 0x01021994: sinks.AtLeastOnce,
	} {
		if f := kindOf(magic); f.Guarantee != want || f.Found == "" || (f.Advice == "") != (want == sinks.ExactlyOnce) {
			t.Errorf("%#x: %+v", magic, f)
		}
	}
	if f := freeSpace(1<<20, 5); f.Advice == "" || f.Refuse || f.Found != "1 MiB, 5 inodes" {
		t.Errorf("%+v", f)
	}
	if f := freeSpace(1<<40, 5); f.Advice != "" {
		t.Errorf("%+v", f)
	}
}

// A name that is a symbolic link, or becomes one, is not opened as a directory.
func TestOpenDirFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "file"} {
		if d, err := openDir(s.fs.root, name); !errors.Is(err, errNotDir) {
			d.Close()
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.fs.read("link", 10); !errors.Is(err, errDamaged) {
		t.Errorf("read of a link: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 11), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.fs.read("file", 10); !errors.Is(err, errDamaged) {
		t.Errorf("read over the limit: %v", err)
	}
}

// A spill file that was damaged is an error, not a shorter bucket.
func TestDamagedSpill(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{Buckets: true})
	l := o.lane.(*lane)
	for _, spill := range []string{"\x05abc", "\x05", "\x80", "\xff\xff\xff\xff\x7f", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		sp := &spools{lane: l, all: map[string]*spool{}}
		s := &spool{bucket: "b", spill: l.stagedName("spill"), spilled: int64(len(spill))}
		sp.all["b"] = s
		if err := os.WriteFile(filepath.Join(dir, s.spill), []byte(spill), 0o600); err != nil {
			t.Fatal(err)
		}
		var got error
		for _, err := range sp.records("b") {
			got = err
		}
		if got == nil {
			t.Errorf("%q was read without an error", spill)
		}
		sp.discard()
	}
	if names := staging(t, dir); len(names) != 0 {
		t.Errorf("spill files are left: %v", names)
	}
}
