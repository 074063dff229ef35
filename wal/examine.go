package wal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Facts are what Examine finds out about the directory of a log.
type Facts struct {
	// Dir is the directory or, if that is not there, the closest one above it, where it
	// would be made.
	Dir string
	// Exists says that the directory is there, and HasLog that it holds a log.
	Exists, HasLog bool
	// Contents is why Open would refuse what the directory holds: ErrForeign, ErrFormat,
	// ErrDamaged, or that it cannot be read.
	Contents error
	// Mode is that of Dir, and Owner its user, -1 where there are none.
	Mode  fs.FileMode
	Owner int
	// Holder is the process that has the log open; empty if none has.
	Holder string
	// FileSystem names the file system of Dir, or its number. Network says that locks may
	// not keep out other hosts there, which Open refuses; Volatile that nothing on it
	// outlives a restart of the machine.
	FileSystem        string
	Network, Volatile bool
	// Write is why a file cannot be made, mapped, synced and renamed there; nil if it can.
	// A disk without space is no reason.
	Write error
	// Allocate is why blocks cannot be taken ahead of use; nil if they can. The log then
	// stops short of a full disk.
	Allocate error
	// Free is the bytes that this user may still use, and Used those of the log.
	Free, Used int64
}

// Examine looks at a directory as Open would find it. The log may be open, in this or in
// another process. What is tried out is removed again. While Examine looks at the lock,
// for some microseconds, an Open can fail with ErrLocked.
func Examine(dir string) Facts {
	f := Facts{Dir: dir, Owner: -1}
	info, err := os.Stat(dir)
	f.Exists = err == nil
	for ; errors.Is(err, fs.ErrNotExist) && f.Dir != filepath.Dir(f.Dir); info, err = os.Stat(f.Dir) {
		if f.Dir, err = filepath.Abs(filepath.Join(f.Dir, "..")); err != nil {
			break
		}
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", f.Dir)
	}
	if err != nil {
		f.Contents, f.Write = err, err
		return f
	}
	f.Mode, f.Owner = info.Mode(), ownerOf(info)
	f.FileSystem, f.Network, f.Volatile = fileSystemOf(f.Dir)
	f.Free, _ = free(f.Dir) // the trial tells what is wrong
	if f.Exists {
		f.inside()
	}
	f.Write, f.Allocate = trial(f.Dir, f.Exists)
	return f
}

// inside looks at what the directory holds.
func (f *Facts) inside() {
	if f.Contents = CheckDir(f.Dir); f.Contents != nil {
		return
	}
	text, err := os.ReadFile(filepath.Join(f.Dir, formatName))
	switch {
	case err == nil:
		f.HasLog, f.Contents = true, matchFormat(string(text))
	case !errors.Is(err, fs.ErrNotExist):
		f.Contents = err
	default:
		gens, _ := filepath.Glob(filepath.Join(f.Dir, genPrefix+"*"))
		if f.HasLog = len(gens) > 0; f.HasLog {
			f.Contents = fmt.Errorf("%w: the file %s is missing, but generations are there", ErrDamaged, formatName)
		}
	}
	f.Holder = holder(filepath.Join(f.Dir, lockName))
	_ = filepath.WalkDir(f.Dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a running process removes files
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			f.Used += used(info)
		}
		return nil
	})
}

// holder returns the process that holds a lock, "" if none does.
func holder(path string) string {
	lock, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer lock.Close()
	if !lockedByOther(lock) {
		return ""
	}
	pid := make([]byte, 32)
	n, _ := lock.Read(pid) // for the message only
	if text := strings.TrimSpace(string(pid[:n])); text != "" {
		return text
	}
	return "unknown"
}

// trial does what the log needs in a directory that is removed again.
func trial(dir string, own bool) (write, alloc error) {
	name := ".walsink-probe-"
	if own {
		name = probeName + "-"
	}
	sub := filepath.Join(dir, name+rand.Text()[:10])
	if err := os.Mkdir(sub, 0o700); err != nil {
		return ignoreFull(err), nil
	}
	defer os.RemoveAll(sub)
	path := filepath.Join(sub, "file")
	if err := firstErr(probe(sub), ignoreFull(createFile(path, []byte(format)))); err != nil {
		return err, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return ignoreFull(err), nil
	}
	defer f.Close()
	return nil, ignoreFull(allocate(f, 1<<16))
}
