package pipeline

import (
	"context"
	"errors"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

// A Source is a stream of records that can be read again from a position. Its
// methods are called from one goroutine at a time.
type Source interface {
	// Open starts reading at a position that Position returned, in this or in an
	// earlier process, or at the beginning if it is nil. It fails with
	// committer.ErrForeignPosition if the position is of another source.
	Open(ctx context.Context, position []byte) error

	// Read returns the next records, at least one and at most limit. They and the
	// slice are valid until the next call. It waits if there is none yet, and returns
	// the context's error at once, with nothing consumed, when the context ends; the
	// source is still usable then. At the end it returns io.EOF, again and again.
	//
	// The records from one position to another are always the same, in the same
	// order, however the calls cut them.
	Read(ctx context.Context, limit int) ([][]byte, error)

	// Position returns where to resume after the last record that Read returned. The
	// bytes belong to the caller. It does no I/O.
	Position() []byte

	// Close releases what Open took. It is idempotent. A source that can be read again
	// can be opened again.
	Close() error
}

// A Replayer is an optional ability of a Source: saying whether it can really be
// read again, and if not, why. A Source without it can.
type Replayer interface {
	Replayable() (ok bool, reason string)
}

// An Endless is an optional ability of a Source: saying that it may never end.
type Endless interface {
	Endless() bool
}

// An Output takes the records of numbered checkpoints. [Walsink] makes one of a
// walsink.Output. Lanes are used concurrently, everything else from one goroutine
// at a time.
type Output interface {
	// Lane returns the lane of that name, the same one for the same name.
	Lane(ctx context.Context, name string) (Lane, error)

	// Seal ends the open batch of every lane; position says where to resume after
	// it. No lane is appended to meanwhile. On return the batches are durable but not
	// to be seen yet.
	Seal(ctx context.Context, checkpoint uint64, position []byte) error

	// Complete says that the checkpoint, and with it every lower one, is durable
	// everywhere. It does not wait for the store. It may be repeated.
	Complete(ctx context.Context, checkpoint uint64) error

	// Drain returns when everything complete is in the store, else with an error
	// that says what is not.
	Drain(ctx context.Context) error
}

// A Lane takes the records of one lane, in order. It is used by one goroutine at a
// time.
type Lane interface {
	// Append adds a record to the open batch. It copies rec, and waits while the
	// output has no room.
	Append(ctx context.Context, rec []byte) error
}

// A Resumer is an optional ability of an Output: knowing where to go on. Without
// it the checkpoint storage decides.
type Resumer interface {
	// Position returns where the source has to resume, nil for the beginning.
	Position() []byte
	// Last returns the highest checkpoint that the output knows of; 0 if none.
	Last() uint64
	// Barriers returns the checkpoints that have to be repeated, with exactly these
	// ids and at exactly these positions, before any new one; ascending. There are
	// some only after local state was lost.
	Barriers() []Barrier
}

// A Barrier is a checkpoint to be repeated, and where.
type Barrier = committer.Barrier

// A Cutter is an optional ability of an Output: sealing in two steps, so that the
// lanes stand still for the first one only.
type Cutter interface {
	// Cut is Seal without waiting for the disk.
	Cut(ctx context.Context, checkpoint uint64, position []byte) error
	// Sync makes durable what was cut before. Lanes are appended to meanwhile.
	Sync() error
}

// An Aborter is an optional ability of an Output: being told that a checkpoint
// will not complete. The records stay and belong to the next one.
type Aborter interface {
	Abort(ctx context.Context, checkpoint uint64) error
}

// A Watcher is an optional ability of an Output: failing on its own.
type Watcher interface {
	// Failed is closed when the output can take nothing more.
	Failed() <-chan struct{}
	// Err says why Failed was closed; nil before.
	Err() error
}

// A Holder is an optional ability of an Output: knowing whether another process has taken
// its lanes over.
type Holder interface {
	// Held returns nil if at one moment during the call all open lanes were its own. A
	// pipeline with state asks all of several outputs when their lanes are open: else two
	// processes that begin at once could have one output each.
	Held(ctx context.Context) error
}

// A Guarantor is an optional ability of an Output: declaring what its store makes
// of a replayed flush. An Output without it is taken as at-least-once.
type Guarantor interface {
	Guarantee() (g sinks.Guarantee, reason string)
}

// Restored is what an output is told when it opens. The zero value says nothing.
type Restored struct {
	// Checkpoint is the newest one in storage, Position its position: it counts as
	// complete even if the output has no note of that. 0: there is none.
	Checkpoint uint64
	Position   []byte
	// Stateful says that the pipeline keeps state that belongs to what the output has of
	// its own, so that the output cannot go on from the mark of its store alone.
	Stateful bool
	// Completed is the newest checkpoint that another output knows to be complete. If
	// this one has sealed it, it counts as complete here too, up to where it was sealed
	// here.
	Completed uint64
	// RefuseNew makes Open fail with walsink.ErrNew if the output is new; it can be
	// opened again then. An output that cannot tell is not new.
	RefuseNew bool
	// Begin is where an output begins that is new; nil: at the beginning.
	Begin *Barrier
	// Lanes are those that the run begins with.
	Lanes []string
}

// A Sink is an output before it is opened.
type Sink struct {
	// Name is for messages. It tells outputs apart.
	Name string
	// Open opens the output. Run closes it if it has a Close method.
	Open func(ctx context.Context, restored Restored) (Output, error)
	// Encode appends the sink's wire form of a record to dst; nil means that records
	// are in it already. It is called from several goroutines.
	Encode func(dst, rec []byte) ([]byte, error)
	// Findings are what probing the store found, see [sinks.Prober]. The promise is no
	// stronger than they let it be; one that is to be refused leaves at-most-once.
	Findings []sinks.Finding
	// Start is where the output begins if it is new and others are not.
	Start Start
}

// A Start says where an output begins that comes new into a pipeline whose other
// outputs have records already.
type Start uint8

const (
	// StartUnsaid refuses such an output, with ErrNewOutput.
	StartUnsaid Start = iota
	// StartBeginning gives it everything: the sources are read again from the
	// beginning, and the other outputs get nothing until they stand where they stood.
	StartBeginning
	// StartNow gives it what comes after what the output has that is furthest.
	StartNow
)

// ErrNewOutput says that an output is new, others are not, and nobody said where it
// begins.
var ErrNewOutput = errors.New("the output is new to a pipeline that has been at work")

// An Input is a source with its name.
type Input struct {
	// Name is part of every position: a position of other inputs is refused. It is
	// also what messages call the source.
	Name   string
	Source Source
}
