package committer

import (
	"errors"
	"fmt"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// GiveUp notes in the log, durably, that a batch is not to be flushed, because its
// records cannot be read any more. The next Committer moves the mark over it without
// its records, and counts those that are not in as dead; what follows is flushed as
// usual. The chain of the lane stays whole, since the batch stays in it. Loss is all
// that this does: for a source that can be read again, wal.Log.Void is the way out
// that loses nothing. A note that the log has lost is taken for an empty one: what is
// dead of the part that is in, the mark knows. Call it while no Committer is at work on the log.
func GiveUp(log Log, lane string, seq uint64) error {
	for _, b := range log.Batches(lane) {
		if b.Seq != seq {
			continue
		}
		data, err := log.Note(lane, seq)
		if err != nil && !errors.Is(err, record.ErrCorrupt) {
			return err
		}
		n, err := decodeNote(data, b)
		if err != nil {
			return fmt.Errorf("give up lane %s batch %d: %w", lane, seq, err)
		}
		n.GivenUp = true
		if data, err = n.encode(); err != nil {
			return fmt.Errorf("give up lane %s batch %d: %w", lane, seq, err)
		}
		return log.PutNote(lane, seq, data)
	}
	return fmt.Errorf("give up lane %s batch %d: the log does not hold it", lane, seq)
}

// GivenUp reports whether GiveUp was called for a batch.
func GivenUp(log Log, lane string, b record.Batch) (bool, error) {
	data, err := log.Note(lane, b.Seq)
	if err != nil {
		return false, err
	}
	n, err := decodeNote(data, b)
	return n.GivenUp, err
}

// rest is what mark m lacks of batch b, to be passed over.
func rest(b record.Batch, m sinks.Mark) part {
	p := part{batch: b, to: b.Records, lost: true}
	if m.Partial != nil {
		p.from, p.split = m.Partial.Done, split(nil).adopt(m.Partial)
	}
	return p
}

// endLost is the mark behind a part that is passed over.
func (p part) endLost(m sinks.Mark) sinks.Mark {
	next := after(m, p)
	next.Dead += p.to - p.from
	return next
}

// lostAudit is the audit row of a batch whose rest is passed over.
func (p part) lostAudit() sinks.Audit {
	return sinks.Audit{Batch: p.batch, Dead: uint64(len(p.split)) + p.to - p.from}
}

// lostStep is the step that passes a part over.
func (p part) lostStep(id sinks.LaneID, prev sinks.Mark) *sinks.Step {
	return &sinks.Step{
		ID: id, Prev: prev, Next: p.endLost(prev), Batches: []sinks.Audit{p.lostAudit()}, Lost: p.to - p.from,
		Runs: func(func(sinks.Run, error) bool) {},
	}
}
