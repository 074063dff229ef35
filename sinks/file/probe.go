package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/walsink/walsink/sinks"
)

// Probe says what a sink opened on dir would find: whether the directory is there or
// could be made, what else is in it, and whether its file system does what the sink
// relies on. That is tried in a directory that is removed again; nothing stays.
func Probe(ctx context.Context, dir string, opts Options) ([]sinks.Finding, error) {
	opts, err := opts.resolve()
	if err != nil {
		return nil, fail("probe", sinks.LaneID{}, 0, fmt.Errorf("%w: %w", errRefused, err))
	}
	at, err := filepath.Abs(dir)
	if err != nil {
		return nil, fail("probe", sinks.LaneID{}, 0, err)
	}
	there, at, info, err := nearest(at)
	if err != nil {
		return []sinks.Finding{finding("directory", err, "name another directory, or give this user permission")}, nil
	}
	found := sinks.Finding{Subject: "directory", Found: fmt.Sprintf("%s, %v", at, info.Mode()), Guarantee: sinks.ExactlyOnce}
	if !there {
		found.Found = "not there yet, to be made in " + at
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return []sinks.Finding{finding("directory", err, "give this user read, write and search permission")}, nil
	}
	defer root.Close()
	s := &Sink{opts: opts, target: at, fs: &files{root: root}}
	findings := append([]sinks.Finding{found}, s.fileSystem()...)
	if there {
		findings = append(findings, s.contents())
	}
	trial := ".walsink-probe-" + rand.Text()[:10]
	if _, err := s.fs.mkdir(trial, 0o700); err != nil {
		return append(findings, attempt("new files", err)), ctx.Err()
	}
	findings = append(findings, s.trials(trial)...)
	if err := s.fs.remove(trial); err != nil {
		findings = append(findings, attempt("new files", err))
	}
	return findings, ctx.Err()
}

// nearest returns dir, or the closest directory above it that is there.
func nearest(dir string) (there bool, at string, info fs.FileInfo, err error) {
	for at = dir; ; at = filepath.Dir(at) {
		info, err = os.Stat(at)
		switch {
		case err == nil && !info.IsDir():
			return false, at, info, fmt.Errorf("%s: %w", at, syscall.ENOTDIR)
		case err == nil || !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at):
			return at == dir, at, info, err
		}
	}
}

// Probe tries out, in the hidden directory, what the sink relies on: new files,
// fsync of files and directories, a rename that does not replace. It also looks at
// the kind of file system and at its free space.
func (s *Sink) Probe(ctx context.Context) ([]sinks.Finding, error) {
	if err := ctx.Err(); err != nil {
		return nil, fail("probe", sinks.LaneID{}, 0, err)
	}
	findings := s.fileSystem()
	if _, err := s.fs.mkdir(hidden, 0o700); err != nil {
		return append(findings, attempt("new files", err)), nil
	}
	return append(findings, s.trials(hidden)...), nil
}

// trials makes files in dir, and removes them.
func (s *Sink) trials(dir string) []sinks.Finding {
	return []sinks.Finding{
		attempt("fsync of files and directories", s.probeSync(dir)), attempt("rename without replacing", s.probePlace(dir)),
	}
}

// advices are what to do where a trial fails and the error does not say it.
var advices = map[string]string{
	"fsync of files and directories": "use a local file system",
	"rename without replacing":       "use a file system with renameat2 or hard links",
}

// attempt is the outcome of a trial. A full disk is no verdict: a flush waits there.
func attempt(subject string, err error) sinks.Finding {
	advice := advices[subject]
	if _, text := classifyErrno(err); err != nil && (advice == "" || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		advice = text
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return sinks.Finding{Subject: subject, Found: "not tried: " + err.Error(), Guarantee: sinks.ExactlyOnce, Advice: "make space"}
	}
	return finding(subject, err, advice)
}

// finding is the outcome of a trial: without what was tried, running would break a
// promise.
func finding(subject string, err error, advice string) sinks.Finding {
	if err == nil {
		return sinks.Finding{Subject: subject, Found: "works", Guarantee: sinks.ExactlyOnce}
	}
	return sinks.Finding{Subject: subject, Found: err.Error(), Guarantee: sinks.AtLeastOnce, Refuse: true, Advice: advice}
}

// aPart is the middle of a part's name: lane, first checkpoint, part.
var aPart = regexp.MustCompile(`\+[^+]+\+\d{20}(-\d+)?\+\d{5}\.`)

// contents looks for what is not the sink's own, and for parts without a ledger.
func (s *Sink) contents() sinks.Finding {
	f := sinks.Finding{Subject: "contents", Found: "nothing but parts", Guarantee: sinks.ExactlyOnce}
	names, err := s.fs.list(".")
	if err != nil {
		return finding("contents", err, "give this user permission to read the directory")
	}
	foreign, parts, ledger, example := 0, 0, false, ""
	for _, name := range names {
		switch {
		case name == hidden:
			ledger = true
		case aPart.MatchString(name):
			parts++
		case !strings.HasPrefix(name, ".") && !s.isBucket(name):
			foreign++
			example = name
		}
	}
	switch {
	case parts > 0 && !ledger:
		f.Found, f.Refuse = plural(parts, "part", "parts")+" and no ledger", true
		f.Advice = "put the directory " + hidden + " back, or move the parts away to begin again"
	case foreign > 0:
		f.Found = plural(foreign, "entry", "entries") + " of others, as " + example
		f.Advice = "who reads everything here reads them too: better a directory of its own"
	case parts == 0:
		f.Found = "empty"
	}
	return f
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

func (s *Sink) isBucket(name string) bool {
	info, err := s.fs.lstat(name)
	return s.opts.Buckets && err == nil && info != nil && info.IsDir()
}

func probeName(dir string) string { return path.Join(dir, ".probe-"+rand.Text()[:10]) }

func (s *Sink) probeSync(dir string) error {
	name := probeName(dir)
	defer s.fs.remove(name) //nolint:errcheck // an empty hidden file is left at worst
	if err := s.probeFile(name); err != nil {
		return err
	}
	return errors.Join(s.fs.syncDir(dir), s.fs.syncDir("."))
}

func (s *Sink) probeFile(name string) error {
	f, err := s.fs.create(name, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(s.fs.do("sync", name, f.Sync), f.Close())
}

func (s *Sink) probePlace(dir string) error {
	a, b := probeName(dir), probeName(dir)
	defer s.fs.remove(a) //nolint:errcheck // an empty hidden file is left at worst
	defer s.fs.remove(b) //nolint:errcheck // an empty hidden file is left at worst
	if err := s.probeFile(a); err != nil {
		return err
	}
	if err := s.fs.place(a, b); err != nil {
		return err
	}
	if err := s.probeFile(a); err != nil {
		return err
	}
	if err := s.fs.place(a, b); !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("a rename to a name that is taken: %v, want %w", err, fs.ErrExist)
	}
	return nil
}
