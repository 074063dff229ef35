package wal

import (
	"errors"
	"fmt"

	"github.com/walsink/walsink/record"
)

// Errors of the log. Details follow after the text; match with errors.Is.
var (
	// ErrLocked says that another process, named by its pid, has the log open.
	ErrLocked = errors.New("log is in use")
	// ErrFailed says that the storage failed once and that the log therefore
	// acknowledges nothing more. It wraps the first cause. Close and open again:
	// what is on disk decides.
	ErrFailed = errors.New("log failed")
	// ErrFull says that the byte budget is used up by what no flush can free.
	ErrFull = errors.New("log is full")
	// ErrNoSpace says that the file system has no room, and that no flush can free
	// any. Nothing was taken; the same call may succeed once there is room, unless the
	// error is ErrFailed as well.
	ErrNoSpace = errors.New("no space for the log")
	// ErrForeign says that the directory holds something else than a log.
	ErrForeign = errors.New("not a log directory")
	// ErrFormat says that the directory was written by a newer format.
	ErrFormat = errors.New("unknown log format")
	// ErrDamaged says that bytes which were acknowledged do not read back.
	ErrDamaged = errors.New("log is damaged")
	// ErrClosed says that the log is closed.
	ErrClosed = errors.New("log is closed")
	// ErrUnsupported says that the file system or the operating system lacks what
	// the log needs: shared mappings that sync, and file locks that keep out every
	// other process. A network file system is one.
	ErrUnsupported = errors.New("log storage is not supported here")
)

// A Damage names what does not read back. It is an error of kind ErrDamaged, and of
// kind record.ErrCorrupt for those who do not know the log.
type Damage struct {
	// Generation is the number in the directory's name; 0 if not known.
	Generation uint64
	// Lane, Seq and Checkpoint name the batch; Lane is empty if the damage is not
	// in one batch.
	Lane       string
	Seq        uint64
	Checkpoint uint64
	// Block is the number of the block in the batch, or -1.
	Block int
	// Err is the cause.
	Err error
}

// Error returns "generation 3: lane a/b batch 7 checkpoint 9 block 12: cause".
func (d *Damage) Error() string {
	s := ErrDamaged.Error()
	if d.Generation != 0 {
		s += fmt.Sprintf(": generation %d", d.Generation)
	}
	if d.Lane != "" {
		s += fmt.Sprintf(": lane %s", d.Lane)
	}
	if d.Seq != 0 {
		s += fmt.Sprintf(" batch %d", d.Seq)
	}
	if d.Checkpoint != 0 {
		s += fmt.Sprintf(" checkpoint %d", d.Checkpoint)
	}
	if d.Block >= 0 {
		s += fmt.Sprintf(" block %d", d.Block)
	}
	return fmt.Sprintf("%s: %v", s, d.Err)
}

// Unwrap returns ErrDamaged and the cause.
func (d *Damage) Unwrap() []error { return []error{ErrDamaged, d.Err} }

// Is reports whether target is record.ErrCorrupt.
func (d *Damage) Is(target error) bool { return target == record.ErrCorrupt }
