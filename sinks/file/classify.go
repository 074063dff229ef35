package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/walsink/walsink/sinks"
)

var (
	errDamaged = errors.New("damaged")
	errNotDir  = errors.New("not a directory, or a symbolic link to one")
	// errSync: the fsync of a directory failed.
	errSync = errors.New("sync directory")
	// errTaken: another manifest has the number.
	errTaken = errors.New("the number of the next manifest is taken")
	// errRefused: what the directory holds is not what the ledger says.
	errRefused = errors.New("refused")
)

// unsure is an error after which the manifest may be there or not.
type unsure struct{ err error }

func (u unsure) Error() string { return u.err.Error() }
func (u unsure) Unwrap() error { return u.err }

// classify translates every error of this package's calls. One that says nothing
// in particular is transient: nothing was written, and the records are safe in the
// log while somebody looks.
func classify(err error) (kind sinks.Kind, advice string) {
	if _, ok := errors.AsType[unsure](err); ok {
		return sinks.Ambiguous, ""
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return sinks.Cancelled, ""
	case errors.Is(err, errTaken):
		return sinks.Transient, ""
	case errors.Is(err, errDamaged), errors.Is(err, errNotDir), errors.Is(err, errRefused):
		return sinks.Permanent, ""
	case errors.Is(err, errSync):
		return sinks.Permanent, "what the directory lost, a second fsync does not bring back: look at the kernel log and" +
			" check the file system, then start again"
	case errors.Is(err, fs.ErrExist):
		return sinks.Permanent, "something else has the name; move it away"
	case errors.Is(err, fs.ErrNotExist):
		return sinks.Permanent, "a file or directory of the sink was removed; restore it, or open the sink again"
	}
	return classifyErrno(err)
}

func classifyErrno(err error) (sinks.Kind, string) {
	errno, _ := errors.AsType[syscall.Errno](err)
	switch errno {
	case syscall.ENOSPC, syscall.EDQUOT:
		return sinks.Transient, "make space"
	case syscall.EMFILE, syscall.ENFILE:
		return sinks.Transient, "raise the limit of open files"
	case syscall.EROFS:
		return sinks.Permanent, "the file system is read-only; look at the kernel log, then mount it writable"
	case syscall.EACCES, syscall.EPERM:
		return sinks.Permanent, "give this user read, write and search permission"
	case syscall.ENOTDIR, syscall.ELOOP, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.EFBIG,
		syscall.EXDEV, syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP:
		return sinks.Permanent, "run the doctor on this directory"
	}
	return sinks.Transient, ""
}

// fail makes the *sinks.Error of a call about a lane.
func fail(op string, id sinks.LaneID, checkpoint uint64, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sinks.Error](err); ok {
		return err
	}
	kind, advice := classify(err)
	if advice != "" {
		err = fmt.Errorf("%w; %s", err, advice)
	}
	return &sinks.Error{Kind: kind, Op: op, Lane: id, Checkpoint: checkpoint, Err: err}
}
