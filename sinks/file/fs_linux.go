package file

import (
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/walsink/walsink/internal/plant"
)

func noReplace(root *os.Root, from, to string) error {
	src, err := openDir(root, path.Dir(from))
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := openDir(root, path.Dir(to))
	if err != nil {
		return err
	}
	defer dst.Close()
	flags := uint(unix.RENAME_NOREPLACE)
	if plant.Active(plant.ReplayUpsert) {
		flags = 0
	}
	for {
		err = unix.Renameat2(int(src.Fd()), path.Base(from), int(dst.Fd()), path.Base(to), flags)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		return linkThenRemove(root, from, to)
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
