package committer

import (
	"bytes"
	"fmt"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// An Outcome says how a lane goes on after Open.
type Outcome uint8

const (
	// Connected: local batches continue the mark. They are being flushed.
	Connected Outcome = iota + 1
	// Covered: everything local is in the store.
	Covered
	// Resume: the local log has nothing that continues the mark, and was made to
	// continue it. The source has to go to the mark's position.
	Resume
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Connected:
		return "connected"
	case Covered:
		return "covered"
	case Resume:
		return "resume"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// An Opening is the result of Open.
type Opening struct {
	Outcome Outcome
	// Mark is the store's. With Outcome Resume the source resumes at Mark.Position.
	// If Mark.Partial is set then, the source is to be replayed up to the end of
	// that batch, and sealed there under its checkpoint, before anything else.
	Mark sinks.Mark
	// Behind is set with Outcome Resume if the store has lost batches that were in
	// once and are no longer retained: the source has to go back further than it
	// would have to for this log.
	Behind *Gap
}

// A Gap is a range of batches.
type Gap struct {
	// After is the store's mark, Upto the last batch known to have been in.
	After, Upto uint64
}

// A view is what the log knows of a lane.
type view struct {
	known     bool
	head      record.Head
	committed uint64
	batches   []record.Batch
}

func viewOf(log Log, key string) view {
	var v view
	v.head, v.committed, v.known = log.Head(key)
	if v.known {
		v.batches = log.Batches(key)
	}
	return v
}

// covered counts the records that the mark has and that the log did not know to be
// in.
func (v view) covered(m sinks.Mark) (records uint64) {
	if _, ok := v.connect(m); !ok {
		return 0
	}
	for _, b := range v.batches {
		if v.committed < b.Seq && b.Seq <= m.Seq {
			records += b.Records
		}
	}
	return records
}

// floor is the Seq below which nothing is retained: all up to it was dropped,
// and so was committed.
func (v view) floor() uint64 {
	if len(v.batches) > 0 {
		return v.batches[0].Seq - 1
	}
	return v.head.Seq
}

// connect finds the batch that continues m: its index, or len(batches) if the
// end of the log does.
func (v view) connect(m sinks.Mark) (int, bool) {
	for i, b := range v.batches {
		if b.Prev == m.Chain {
			return i, true
		}
	}
	return len(v.batches), v.known && v.head.Chain == m.Chain
}

// A verdict is what the opening table says. The changes are made in the order of
// the fields.
type verdict struct {
	Opening
	err error
	// write is a mark to put into the store in place of the one that was read.
	write *sinks.Mark
	// lose is a part of a batch to put into the store without its records. The mark
	// behind it is Mark.
	lose *part
	// reset is the head that the log is to continue.
	reset *record.Head
}

// Inspect says how Open would decide about a lane with this mark, and changes
// nothing: neither is the lane taken over, nor is the log written to.
func Inspect(log Log, id sinks.LaneID, m sinks.Mark, o Options) (Opening, error) {
	d := decide(viewOf(log, id.String()), m, o)
	return d.Opening, d.err
}

// decide is the opening table of the package comment.
func decide(v view, m sinks.Mark, o Options) verdict {
	d := compare(v, m, o)
	if d.err == nil && d.Outcome == Resume && m.Partial != nil && o.NoReplay {
		return unfinished(m, o.Accept)
	}
	return d
}

// compare is decide for a source that can send a batch again of which a part is in.
func compare(v view, m sinks.Mark, o Options) verdict {
	done := max(v.committed, v.floor())
	i, connected := v.connect(m)
	switch {
	case m.Seq == 0 && m.Partial == nil && done > 0:
		return missing(v, m, done, connected, o.Accept)
	case connected:
		return connect(v, m, i, o)
	case !v.known && m.Seq == 0 && m.Partial == nil:
		return verdict{Opening: Opening{Outcome: Covered, Mark: m}, reset: new(m.Head())}
	case v.known && m.Seq < v.floor():
		return behind(v, m, o)
	}
	return apart(v, m, o)
}

func resume(m sinks.Mark) verdict {
	return verdict{Opening: Opening{Outcome: Resume, Mark: m}, reset: new(m.Head())}
}

// connect: local batches from i on continue the mark.
func connect(v view, m sinks.Mark, i int, o Options) verdict {
	ok := verdict{Opening: Opening{Outcome: Connected, Mark: m}}
	switch {
	case i < len(v.batches):
		if err := samePartial(m, v.batches[i]); err != nil {
			if o.Accept&AcceptDuplicates != 0 {
				w := m
				w.Partial = nil
				ok.write, ok.Mark = &w, w
				return ok
			}
			if p := m.Partial.Batch; !o.Stateful && !o.NoReplay && !sameCut(p, v.batches[i]) {
				return resume(m) // of another history: the source has the batch that is partly in
			}
			return verdict{err: fmt.Errorf("%w; to write the whole batch, so that the first %d records come twice, accept duplicates",
				err, m.Partial.Done)}
		}
	case m.Partial != nil: // a part of a batch that we have yet to get again
		ok.Outcome = Resume
	default:
		ok.Outcome = Covered
	}
	return ok
}

// sameCut reports whether two batches end at one and the same checkpoint.
func sameCut(a, b record.Batch) bool {
	return a.Checkpoint == b.Checkpoint && bytes.Equal(a.Position, b.Position)
}

// samePartial refuses a batch that is not the one of which a part is in.
func samePartial(m sinks.Mark, b record.Batch) error {
	if m.Partial == nil || m.Partial.Batch.Chain() == b.Chain() {
		return nil
	}
	p := m.Partial.Batch
	return fmt.Errorf("%w: checkpoint %d (%d records, %d bytes, digest %s) follows where %d records of checkpoint %d (%d records, %d bytes, digest %s) are in",
		ErrReplayDiffers, b.Checkpoint, b.Records, b.Bytes, b.Digest, m.Partial.Done, p.Checkpoint, p.Records, p.Bytes, p.Digest)
}

// missing: batches were committed, and there is no mark.
func missing(v view, m sinks.Mark, done uint64, connected bool, a Accept) verdict {
	switch {
	case a&AcceptLoss != 0:
		return adopt(v, m, done)
	case a&AcceptDuplicates != 0 && connected:
		return verdict{Opening: Opening{Outcome: Connected, Mark: m}}
	case a&AcceptDuplicates != 0:
		return resume(m)
	}
	many := fmt.Sprintf("%d batches are", done)
	if done == 1 {
		many = "1 batch is"
	}
	return verdict{err: fmt.Errorf("%w: the log says that %s in, the store has no mark; put the ledger back, or, "+
		"if the store is empty, accept duplicates to write everything again, or, if it holds its data, accept loss to take the log's word", ErrLedgerMissing, many)}
}

// behind: the store lost more than is retained.
func behind(v view, m sinks.Mark, o Options) verdict {
	switch {
	case o.Accept&AcceptLoss != 0:
		return adopt(v, m, v.floor())
	case o.Accept&AcceptDuplicates != 0 || !o.Stateful && !o.NoReplay:
		r := resume(m)
		r.Behind = &Gap{After: m.Seq, Upto: v.floor()}
		return r
	}
	return verdict{err: fmt.Errorf("%w: the store ends with batch %d (checkpoint %d), batches %d to %d are gone from both; "+
		"restore the store, or accept duplicates to replay the source from the mark, or accept loss to go on without them",
		ErrLedgerBehind, m.Seq, m.Checkpoint, m.Seq+1, v.floor())}
}

// apart: the store holds what this log never held, or the log is gone.
func apart(v view, m sinks.Mark, o Options) verdict {
	pending := v.known && v.head.Seq > v.committed
	switch {
	case !o.Stateful && !(o.NoReplay && pending), o.Accept&AcceptLoss != 0:
		return resume(m)
	case o.Accept&AcceptDuplicates != 0 && !pending && m.Partial == nil:
		head := m.Head()
		if v.known {
			head.Checkpoint, head.Position = v.head.Checkpoint, v.head.Position
		}
		return verdict{Opening: Opening{Outcome: Covered, Mark: m}, reset: &head}
	}
	local := "there is no local log"
	if v.known {
		local = fmt.Sprintf("the log ends with batch %d (checkpoint %d) of another history", v.head.Seq, v.head.Checkpoint)
	}
	return verdict{err: fmt.Errorf("%w: the store ends with batch %d (checkpoint %d), %s; restore the state that belongs to it, "+
		"or accept loss to go on from the store's position, or, if nothing local is unflushed, accept duplicates to go on from the local one",
		ErrStateBehind, m.Seq, m.Checkpoint, local)}
}

// unfinished: a part of a batch is in, and nobody has the rest.
func unfinished(m sinks.Mark, a Accept) verdict {
	b, done := m.Partial.Batch, m.Partial.Done
	if a&AcceptLoss == 0 {
		return verdict{err: fmt.Errorf("%w: %d of the %d records of batch %d (checkpoint %d) are in, there is no local log of the rest, and the source "+
			"cannot be read again; restore the log, or accept loss to go on without the rest", ErrStateBehind, done, b.Records, b.Seq, b.Checkpoint)}
	}
	p := rest(b, m)
	w := p.endLost(m)
	return verdict{Opening: Opening{Outcome: Resume, Mark: w}, lose: &p, reset: new(w.Head())}
}

// adopt moves the mark to the end of batch seq, on the word of the log.
func adopt(v view, m sinks.Mark, seq uint64) verdict {
	w := m
	w.Partial, w.Seq, w.Chain = nil, v.head.Seq, v.head.Chain
	w.Checkpoint, w.Position = v.head.Checkpoint, v.head.Position
	out := Covered
	for i, b := range v.batches {
		if b.Seq == seq+1 {
			w.Seq, w.Chain, w.Checkpoint, w.Position = seq, b.Prev, m.Checkpoint, m.Position
			if i > 0 {
				h := v.batches[i-1].Head()
				w.Checkpoint, w.Position = h.Checkpoint, h.Position
			}
			out = Connected
		}
	}
	return verdict{Opening: Opening{Outcome: out, Mark: w}, write: &w}
}

// overrideStep puts next into the store in place of prev without any record. The
// audit row it leaves does not fit the chain, so that an audit shows the break. If the
// chain stays, and only a part of a batch is forgotten, it leaves none.
func overrideStep(id sinks.LaneID, prev, next sinks.Mark) *sinks.Step {
	st := &sinks.Step{ID: id, Prev: prev, Next: next, Runs: func(func(sinks.Run, error) bool) {}}
	if next.Chain == prev.Chain {
		return st
	}
	b := record.Batch{
		Seq: next.Seq, Checkpoint: next.Checkpoint, Prev: prev.Chain, Position: next.Position,
		Digest: record.NewHasher().Sum(), SealedAt: time.Now().UnixMilli(),
	}
	st.Batches = []sinks.Audit{{Batch: b}}
	return st
}
