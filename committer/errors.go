package committer

import "errors"

// Refusals. Details and what to do follow after the text; match with errors.Is.
var (
	// ErrStateBehind says that the store holds more than the local log and state
	// know of, or something else, and that the pipeline cannot start again from the
	// store's mark.
	ErrStateBehind = errors.New("the store is not where the local state is")
	// ErrLedgerMissing says that the log knows of batches that were committed, and
	// the store has no mark: somebody removed the ledger or the whole store.
	ErrLedgerMissing = errors.New("the store has lost its ledger")
	// ErrLedgerBehind says that the store's mark is older than anything retained
	// here, and the source cannot go back that far.
	ErrLedgerBehind = errors.New("the ledger is behind what is retained")
	// ErrReplayDiffers says that replayed records are not those that the ledger
	// remembers: source or transform is not deterministic, or was changed.
	ErrReplayDiffers = errors.New("the replay differs from what is in the store")
	// ErrForeignPosition says that the position in a mark belongs to another source:
	// two jobs share one sink id. It is for those who read positions to return.
	ErrForeignPosition = errors.New("the position belongs to another source")

	// ErrDamaged says that a batch read from the log is not the batch that was
	// sealed. Nothing of the step is in the store.
	ErrDamaged = errors.New("batch damaged")
	// ErrFormat says that a batch is in another wire form than the sink takes.
	ErrFormat = errors.New("batch in another wire form")
	// ErrClosed says that the Committer was closed.
	ErrClosed = errors.New("committer closed")
)
