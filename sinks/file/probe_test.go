package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/walsink/walsink/sinks"
)

// about returns the finding about a subject.
func about(t *testing.T, all []sinks.Finding, subject string) sinks.Finding {
	t.Helper()
	i := slices.IndexFunc(all, func(f sinks.Finding) bool { return f.Subject == subject })
	if i < 0 {
		t.Fatalf("no finding about %q in %+v", subject, all)
	}
	return all[i]
}

// tree is every path below dir.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSinkProbe(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	findings, err := s.Probe(t.Context())
	if err != nil || len(findings) < 2 {
		t.Fatalf("%+v, %v", findings, err)
	}
	for _, f := range findings {
		if f.Refuse || f.Guarantee == 0 || f.Subject == "" || f.Found == "" {
			t.Errorf("%+v", f)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(dir, hidden)); err != nil || len(entries) != 0 {
		t.Errorf("the probe left %v, %v", entries, err)
	}
	for op, subject := range map[string]string{"sync": "fsync", "syncdir": "fsync", "rename": "rename", "mkdir": "new files"} {
		for errno, refuse := range map[syscall.Errno]bool{syscall.EINVAL: true, syscall.EACCES: true, syscall.EROFS: true, syscall.ENOSPC: false} {
			s.fs.wrap = func(got, _ string, do func() error) error {
				if got == op {
					return errno
				}
				return do()
			}
			findings, err := s.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			hit := slices.ContainsFunc(findings, func(f sinks.Finding) bool {
				return strings.Contains(f.Subject, subject) && f.Refuse == refuse && (f.Guarantee < sinks.ExactlyOnce) == refuse && f.Advice != ""
			})
			if !hit {
				t.Errorf("%s: %v, and the probe says %+v", op, errno, findings)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Probe(ctx); sinks.KindOf(err) != sinks.Cancelled {
		t.Error(err)
	}
}

// TestProbe looks at directories that no sink has open, and leaves them as they are.
func TestProbe(t *testing.T) {
	base := t.TempDir()
	in := func(name string) string { return filepath.Join(base, name) }
	for name, files := range map[string][]string{
		"empty": nil, "used": {"a+000+00000000000000000001+00000.ndjson", ".walsink/a/000/log/1"},
		"orphans": {"a+000+00000000000000000001-7+00000.ndjson.gz"}, "mixed": {"notes.txt", ".hidden", "k=v/part"},
	} {
		if err := os.Mkdir(in(name), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			path := filepath.Join(in(name), f)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := tree(t, base)
	for _, c := range []struct {
		dir            string
		opts           Options
		subject, found string
		refuse, advice bool
	}{
		{"empty", Options{}, "contents", "empty", false, false},
		{"empty", Options{}, "directory", "drwxr-xr-x", false, false},
		{"empty", Options{}, "rename without replacing", "works", false, false},
		{"empty", Options{}, "fsync of files and directories", "works", false, false},
		{"used", Options{}, "contents", "nothing but parts", false, false},
		{"orphans", Options{}, "contents", "1 part and no ledger", true, true},
		{"mixed", Options{}, "contents", "2 entries of others", false, true},
		{"mixed", Options{Buckets: true}, "contents", "1 entry of others, as notes.txt", false, true},
		{"not/there", Options{}, "directory", "not there yet, to be made in " + base, false, false},
		{"not/there", Options{}, "fsync of files and directories", "works", false, false},
		{"mixed/notes.txt", Options{}, "directory", "not a directory", true, true},
		{"mixed/notes.txt/below", Options{}, "directory", "not a directory", true, true},
	} {
		all, err := Probe(t.Context(), in(c.dir), c.opts)
		if err != nil {
			t.Fatal(err)
		}
		f := about(t, all, c.subject)
		if !strings.Contains(f.Found, c.found) || f.Refuse != c.refuse || (f.Advice != "") != c.advice {
			t.Errorf("%s %+v: got %+v", c.dir, c.opts, f)
		}
	}
	if after := tree(t, base); !slices.Equal(before, after) {
		t.Errorf("probing changed %v to %v", before, after)
	}
	if _, err := Probe(t.Context(), base, Options{Format: "xml"}); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("bad options: %v", err)
	}
}
