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
	// Lane is as in wal.Log.
	Lane(name string) (Lane, error)
	// Lanes is as in wal.Log.
	Lanes() []string
	// Completed is as in wal.Log.
	Completed() (checkpoint uint64, position []byte)
	// Complete is as in wal.Log.
	Complete(checkpoint uint64, position []byte) error
	// Checkpoint is as in wal.Log.
	Checkpoint(checkpoint uint64, position []byte) error
	// Sealed is as in wal.Log.
	Sealed() (first, last uint64)
	// SealedEnd is as in wal.Log.
	SealedEnd(checkpoint uint64) (position []byte, ok bool)
	// SealDone is as in wal.Log.
	SealDone(checkpoint uint64) error
	// Truncate is as in wal.Log.
	Truncate() error
	// Restarted is as in wal.Log.
	Restarted() bool
	// Rewind is as in wal.Log.
	Rewind(checkpoint uint64, position []byte) error
	// Stat is as in wal.Log.
	Stat() wal.Stat
	// Close is as in wal.Log.
	Close() error
}

// A Lane is what an output needs of a lane of its log, as [wal.Lane] promises it.
type Lane interface {
	// Append is as in wal.Lane.
	Append(ctx context.Context, rec []byte) error
	// Seal is as in wal.Lane.
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
