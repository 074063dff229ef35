package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
)

// files is the output directory. Every look at it and every change to it goes
// through a method of files, so that tests can make each of them fail.
type files struct {
	root *os.Root
	// wrap, if set, stands between a method and the operation it does. It sees one
	// operation at a time.
	wrap func(op, name string, do func() error) error
	mu   sync.Mutex // held while wrap runs
}

func (f *files) do(op, name string, fn func() error) error {
	if f.wrap == nil {
		return fn()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrap(op, name, fn)
}

// create makes a new file for writing, with exactly the permission mode.
func (f *files) create(name string, mode fs.FileMode) (*stagedFile, error) {
	var file *os.File
	err := f.do("create", name, func() (err error) {
		file, err = f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		if file != nil {
			file.Close()
		}
		return nil, err
	}
	s := &stagedFile{File: file, fs: f, name: name}
	if mode == 0o600 {
		return s, nil
	}
	if err := f.do("chmod", name, func() error { return file.Chmod(mode) }); err != nil {
		file.Close()
		return nil, err
	}
	return s, nil
}

// reopen opens a file that create made.
func (f *files) reopen(name string, flag int) (s *stagedFile, err error) {
	err = f.do("open", name, func() error {
		file, err := f.root.OpenFile(name, flag, 0)
		s = &stagedFile{File: file, fs: f, name: name}
		return err
	})
	return s, err
}

// touch makes an empty file if it is not there.
func (f *files) touch(name string) error {
	return f.do("create", name, func() error {
		file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		return file.Close()
	})
}

// read returns the contents of a file of at most limit bytes.
func (f *files) read(name string, limit int64) (data []byte, err error) {
	err = f.do("read", name, func() error {
		info, err := f.root.Lstat(name)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() > limit {
			return fmt.Errorf("%s: %w: not a regular file of at most %d bytes", name, errDamaged, limit)
		}
		data, err = f.root.ReadFile(name)
		return err
	})
	return data, err
}

// list returns the names in a directory, in no order.
func (f *files) list(dir string) (names []string, err error) {
	err = f.do("list", dir, func() error {
		d, err := openDir(f.root, dir)
		if err != nil {
			return err
		}
		defer d.Close()
		names, err = d.Readdirnames(-1)
		return err
	})
	return names, err
}

// lstat returns nil, nil if nothing has the name.
func (f *files) lstat(name string) (info fs.FileInfo, err error) {
	err = f.do("lstat", name, func() error {
		info, err = f.root.Lstat(name)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

func (f *files) remove(name string) error {
	return f.do("remove", name, func() error { return f.root.Remove(name) })
}

// mkdir makes sure that name is a directory, and that it is not a symbolic link to
// one. The permission counts only when it is new, which it reports.
func (f *files) mkdir(name string, mode fs.FileMode) (made bool, err error) {
	err = f.do("mkdir", name, func() error {
		if err := f.root.Mkdir(name, mode); err != nil {
			return err
		}
		return f.root.Chmod(name, mode)
	})
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	info, err := f.lstat(name)
	if err == nil && (info == nil || !info.IsDir()) {
		err = fmt.Errorf("%s: %w", name, errNotDir)
	}
	return false, err
}

// syncDir makes the entries of a directory durable. If it is the fsync that fails,
// the error is an errSync: what was lost may stay lost.
func (f *files) syncDir(dir string) error {
	if plant.Active(plant.NoDirSync) {
		return nil
	}
	d, err := openDir(f.root, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := f.do("syncdir", dir, d.Sync); err != nil {
		return fmt.Errorf("%w: %w", errSync, err)
	}
	return nil
}

// place renames from to to, unless something has that name: then fs.ErrExist.
func (f *files) place(from, to string) error {
	return f.do("rename", to, func() error { return noReplace(f.root, from, to) })
}

// linkThenRemove is place on a system, or a file system, without a rename that
// does not replace. A crash between the two leaves one file with two names.
func linkThenRemove(root *os.Root, from, to string) error {
	if err := root.Link(from, to); err != nil {
		return err
	}
	_ = root.Remove(from) // what is left is one file with two names, which publishing and sweeping know
	return nil
}

// openDir opens a directory below root that is not a symbolic link.
func openDir(root *os.Root, name string) (*os.File, error) {
	want, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !want.IsDir() {
		return nil, fmt.Errorf("%s: %w", name, errNotDir)
	}
	d, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	if got, err := d.Stat(); err != nil || !os.SameFile(got, want) {
		d.Close()
		return nil, errors.Join(err, fmt.Errorf("%s: %w", name, errNotDir))
	}
	return d, nil
}

// stagedFile is a file that is being written.
type stagedFile struct {
	*os.File
	fs   *files
	name string
}

func (s *stagedFile) Write(p []byte) (n int, err error) {
	err = s.fs.do("write", s.name, func() error {
		n, err = s.File.Write(p)
		return err
	})
	return n, err
}

// finish makes the contents durable and closes the file. After an error the file
// is worth nothing: what a failed fsync has dropped, a second one does not bring
// back.
func (s *stagedFile) finish() error {
	crash.Point(crash.FileWritten)
	err := s.fs.do("sync", s.name, func() error {
		if plant.Active(plant.RenameNoSync) {
			return nil
		}
		return s.Sync()
	})
	return errors.Join(err, s.Close())
}

// makeDir makes sure that dir exists and that its entry is durable.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		parent := filepath.Dir(dir)
		if err := makeDir(parent); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return syncPath(parent)
	}
	// An earlier process may have made it and died before the fsync. A parent that
	// this user must not read was not written by it either.
	if err := syncPath(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

func syncPath(dir string) error {
	if plant.Active(plant.NoDirSync) {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// hidden is the directory, below the output directory, of all that is not a part.
const hidden = ".walsink"

// laneDir is the directory of a lane below the output directory.
func laneDir(sink, lane string) string { return path.Join(hidden, sink, lane) }
