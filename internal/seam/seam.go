// Package seam is where a test puts a log of its own under an output, in place of
// the one on disk. The log comes with the context of the call that opens the
// output; a program never sets one.
package seam

import (
	"context"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/wal"
)

// A Log is what an output needs of its write-ahead log. The methods promise what
// those of [wal.Log] do.
type Log interface {
	committer.Log
	Lane(name string) (Lane, error)
	Lanes() []string
	Completed() (checkpoint uint64, position []byte)
	Complete(checkpoint uint64, position []byte) error
	Sealed() uint64
	SealDone(checkpoint uint64) error
	Truncate() error
	Restarted() bool
	Rewind(checkpoint uint64, position []byte) error
	Stat() wal.Stat
	Close() error
}

// A Lane is what an output needs of a lane of its log, as [wal.Lane] promises it.
type Lane interface {
	Append(ctx context.Context, rec []byte) error
	Seal(checkpoint uint64, position []byte, format string, force bool) (b record.Batch, ok bool, err error)
}

// An Opener opens the log of a directory.
type Opener func(dir string, opts wal.Options) (Log, error)

type key struct{}

// With returns a context under which Open uses the opener.
func With(ctx context.Context, open Opener) context.Context {
	return context.WithValue(ctx, key{}, open)
}

// Open opens the log of a directory: the real one, unless the context has an
// opener.
func Open(ctx context.Context, dir string, opts wal.Options) (Log, error) {
	if open, ok := ctx.Value(key{}).(Opener); ok {
		return open(dir, opts)
	}
	return OpenWAL(dir, opts)
}

// OpenWAL opens the real log.
func OpenWAL(dir string, opts wal.Options) (Log, error) {
	log, err := wal.Open(dir, opts)
	if err != nil {
		return nil, err
	}
	return walLog{log}, nil
}

type walLog struct{ *wal.Log }

func (l walLog) Lane(name string) (Lane, error) {
	lane, err := l.Log.Lane(name)
	if err != nil {
		return nil, err
	}
	return lane, nil
}
