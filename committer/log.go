package committer

import (
	"iter"

	"github.com/walsink/walsink/record"
)

// A Log is what the engine needs of the write-ahead log; *wal.Log is one. All
// methods are safe for concurrent use. A lane is named by its LaneID's String.
type Log interface {
	// Head returns the end of the lane's last batch of a completed checkpoint, held
	// or dropped long ago, and the highest Seq that Commit was told of. It is false
	// for a lane the log does not know.
	Head(lane string) (head record.Head, committed uint64, ok bool)

	// Batches returns the lane's batches of completed checkpoints that the log still
	// holds, committed ones within the retention window included, in order of Seq
	// without gaps.
	Batches(lane string) []record.Batch

	// Blocks ranges over the records of a batch, block by block. A block is valid
	// until the next one is asked for. The first error ends it; damage is an error
	// that names generation, batch and block. The batch is not dropped meanwhile.
	Blocks(lane string, seq uint64) iter.Seq2[record.Block, error]

	// Note returns what PutNote stored for the batch, or nil. If that does not read
	// back, the error is record.ErrCorrupt.
	Note(lane string, seq uint64) ([]byte, error)

	// PutNote stores bytes with the batch, durable on return. They live as long as
	// the batch.
	PutNote(lane string, seq uint64, note []byte) error

	// Commit says that the store holds the lane's batches up to seq. The log may
	// forget it at a crash, and may drop the batches after the retention window. If
	// seq is lower than before, the store was rolled back, and the log keeps what it
	// still holds above it.
	Commit(lane string, seq uint64) error

	// Reset sets all batches of the lane aside, so that they are never flushed, and
	// makes the next batch continue head, with committed = head.Seq. It is also how
	// a lane begins. Durable on return.
	Reset(lane string, head record.Head) error
}
