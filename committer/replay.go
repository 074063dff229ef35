package committer

import (
	"fmt"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A Replay takes the records of a lane again that its mark already covers. It
// keeps none of them; it compares what it is given, at each seal, with what the
// ledger remembers. It is not safe for concurrent use.
type Replay struct {
	lane  string
	rows  []sinks.Audit // those not yet reached, in order
	block record.Builder
	hash  *record.Hasher
}

// NewReplay returns a Replay of a lane against its audit rows, in order. Plan
// has them as LanePlan.Covered.
func NewReplay(lane string, rows []sinks.Audit) *Replay {
	return &Replay{lane: lane, rows: rows, hash: record.NewHasher()}
}

// Append takes one record. The caller may reuse rec at once.
func (r *Replay) Append(rec []byte) error {
	if err := r.block.Append(rec); err != nil {
		return fmt.Errorf("replay lane %s: %w", r.lane, err)
	}
	if r.block.Full() {
		r.flush()
	}
	return nil
}

func (r *Replay) flush() {
	r.block.Finish(r.hash)
	r.block.Reset()
}

// Seal ends the records before a barrier. The error wraps ErrReplayDiffers and
// names lane and checkpoint. Records before a checkpoint at which the lane has no
// row belong to its next one: the checkpoint was aborted when other lanes had sealed
// and this one had not.
func (r *Replay) Seal(checkpoint uint64, position []byte) error {
	if len(r.rows) == 0 || r.rows[0].Checkpoint > checkpoint {
		return nil
	}
	r.flush()
	want := r.rows[0]
	r.rows = r.rows[1:]
	defer r.hash.Reset()
	if want.Checkpoint != checkpoint || string(want.Position) != string(position) {
		return fmt.Errorf("%w: lane %s: the barrier of checkpoint %d is not where the ledger has checkpoint %d",
			ErrReplayDiffers, r.lane, checkpoint, want.Checkpoint)
	}
	if r.hash.Records() == want.Records && r.hash.Bytes() == want.Bytes && r.hash.Sum() == want.Digest {
		return nil
	}
	return fmt.Errorf("%w: lane %s checkpoint %d: now %d records, %d bytes, digest %s; the ledger has %d, %d, %s; "+
		"source and transform must give the same records again", ErrReplayDiffers, r.lane, checkpoint,
		r.hash.Records(), r.hash.Bytes(), r.hash.Sum(), want.Records, want.Bytes, want.Digest)
}

// Done reports whether all rows have been passed: records from here on are new
// to the store.
func (r *Replay) Done() bool { return len(r.rows) == 0 }
