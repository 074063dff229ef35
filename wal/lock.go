package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	lockName   = "LOCK"   // locked by the owner, holds its pid
	formatName = "FORMAT" // version of the format
	probeName  = "PROBE"  // what the file system was tried with
)

// The content of the file FORMAT. Since version 2, values that are not small are in a
// file of their own; version 1 is read too, and raised when a generation is made.
const (
	formatPrefix = "walsink log "
	format       = formatPrefix + "2\n"
	format1      = formatPrefix + "1\n"
)

// openDir makes the directory if need be, locks it, and checks its format and
// the file system. It returns the open lock.
func openDir(dir string) (*os.File, error) {
	for _, step := range []func(string) error{CheckDir, makeDir, refuseNetwork} {
		if err := step(dir); err != nil {
			return nil, err
		}
	}
	lock, err := takeLock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	if err := firstErr(checkFormat(dir), probe(dir)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// logNames are the beginnings of the names in a log directory, which may also be
// the root of a file system.
var logNames = []string{formatName, lockName, probeName, spareFile, genPrefix, dropPrefix, "lost+found"}

// CheckDir refuses a directory that holds something else than a log, with
// ErrForeign: Open would take the rights of others from it. Open calls it; a
// program calls it that has other work to do before. A directory that is missing or
// empty is fine.
func CheckDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	other := ""
	for _, e := range entries {
		if e.Name() == formatName {
			return nil
		}
		if !slices.ContainsFunc(logNames, func(p string) bool { return strings.HasPrefix(e.Name(), p) }) {
			other = e.Name()
		}
	}
	if other != "" {
		return fmt.Errorf("%w: %s holds %s; name a new or an empty one", ErrForeign, dir, other)
	}
	return nil
}

// refuseNetwork refuses a directory whose lock another host may not see, before
// the lock is taken: there it can fail for reasons that say nothing.
func refuseNetwork(dir string) error {
	name, err := networkOf(dir)
	if err != nil || name == "" {
		return err
	}
	return fmt.Errorf("%w: the directory is on %s, a network file system, where a lock may not keep out another host; "+
		"put the state directory on a local disk", ErrUnsupported, name)
}

func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	busy, err := lockFile(f)
	if busy {
		owner, _ := io.ReadAll(io.LimitReader(f, 32)) // for the message only
		return nil, errors.Join(fmt.Errorf("%w: process %s holds %s", ErrLocked, bytes.TrimSpace(owner), path), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: lock: %w", ErrUnsupported, err), f.Close())
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%-20d\n", os.Getpid()), 0); err != nil && !isNoSpace(err) {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkFormat refuses directories of another format. A directory that holds
// generations and no format has lost files.
func checkFormat(dir string) error {
	path := filepath.Join(dir, formatName)
	got, err := os.ReadFile(path)
	if err == nil {
		return matchFormat(string(got))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	gens, err := filepath.Glob(filepath.Join(dir, genPrefix+"*"))
	if err != nil {
		return err
	}
	if len(gens) > 0 {
		return fmt.Errorf("%w: the file %s is missing, but generations are there; if nothing else was removed, write %q into it",
			ErrDamaged, formatName, format)
	}
	return noSpace(createFile(path, []byte(format)))
}

func matchFormat(got string) error {
	if got == format || got == format1 {
		return nil
	}
	if version, ok := strings.CutPrefix(got, formatPrefix); ok && len(version) < 8 {
		return fmt.Errorf("%w: version %s, this build reads %q", ErrFormat, strings.TrimSpace(version), strings.TrimSpace(format))
	}
	return fmt.Errorf("%w: the file %s is not as it was written", ErrDamaged, formatName)
}

// raiseFormat makes builds that do not know generations as this one writes them
// refuse the log.
func raiseFormat(dir string) error {
	path := filepath.Join(dir, formatName)
	got, err := os.ReadFile(path)
	if err != nil || string(got) != format1 {
		return err
	}
	return noSpace(createFile(path, []byte(format)))
}

// probe checks that the file system does what Badger needs. A full disk ends it
// without a verdict.
func probe(dir string) error {
	const page = 4096
	path := filepath.Join(dir, probeName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return ignoreFull(err)
	}
	_, err = f.Write(make([]byte, page))
	if err == nil {
		if perr := probeMapping(f, page); perr != nil {
			err = fmt.Errorf("%w: %w", ErrUnsupported, perr)
		}
	}
	return errors.Join(ignoreFull(err), f.Close(), os.Remove(path))
}

func ignoreFull(err error) error {
	if isNoSpace(err) {
		return nil
	}
	return err
}
