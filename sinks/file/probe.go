package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/walsink/walsink/sinks"
)

// Probe tries out, in the hidden directory, what the sink relies on: new files,
// fsync of files and directories, a rename that does not replace. It also looks at
// the kind of file system and at its free space.
func (s *Sink) Probe(ctx context.Context) ([]sinks.Finding, error) {
	if err := ctx.Err(); err != nil {
		return nil, fail("probe", sinks.LaneID{}, 0, err)
	}
	if _, err := s.fs.mkdir(hidden, 0o700); err != nil {
		return nil, fail("probe", sinks.LaneID{}, 0, err)
	}
	findings := s.fileSystem()
	findings = append(findings, finding("fsync of files and directories", s.probeSync(), "use a local file system"))
	return append(findings, finding("rename without replacing", s.probePlace(), "use a file system with renameat2 or hard links")), nil
}

// finding is the outcome of a trial: without what was tried, running would break a
// promise.
func finding(subject string, err error, advice string) sinks.Finding {
	if err == nil {
		return sinks.Finding{Subject: subject, Found: "works", Guarantee: sinks.ExactlyOnce}
	}
	return sinks.Finding{Subject: subject, Found: err.Error(), Guarantee: sinks.AtLeastOnce, Refuse: true, Advice: advice}
}

func (s *Sink) probeName() string { return path.Join(hidden, ".probe-"+rand.Text()[:10]) }

func (s *Sink) probeSync() error {
	name := s.probeName()
	defer s.fs.remove(name) //nolint:errcheck // an empty hidden file is left at worst
	if err := s.probeFile(name); err != nil {
		return err
	}
	return errors.Join(s.fs.syncDir(hidden), s.fs.syncDir("."))
}

func (s *Sink) probeFile(name string) error {
	f, err := s.fs.create(name, 0o600)
	if err != nil {
		return err
	}
	return f.finish()
}

func (s *Sink) probePlace() error {
	a, b := s.probeName(), s.probeName()
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
