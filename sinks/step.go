package sinks

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"time"

	"github.com/walsink/walsink/record"
)

// A Mark is the ledger entry of a lane: how far the lane is in. It is a value;
// Position and Partial are not changed after it was made. Its JSON form is what
// stores keep.
type Mark struct {
	// Fence is the number of the owner that holds the lane. Each Acquire raises it.
	Fence uint64 `json:"fence"`
	// Seq, Chain, Checkpoint and Position are of the last batch that is wholly in;
	// Seq 0 and Chain Genesis if there was none.
	Seq        uint64       `json:"seq"`
	Chain      record.Chain `json:"chain"`
	Checkpoint uint64       `json:"checkpoint"`
	Position   []byte       `json:"position,omitempty"`
	// Records and Dead count the records in, over the life of the lane. Dead ones
	// went to the dead letters and are not part of Records.
	Records uint64 `json:"records"`
	Dead    uint64 `json:"dead,omitempty"`
	// Partial is the batch that comes next, if a part of it is in or it is pinned.
	Partial *Partial `json:"partial,omitempty"`
	// UpdatedAt is when the mark was written, for people.
	UpdatedAt time.Time `json:"updated_at"`
}

// A Partial is a batch of which the first Done records are in. With Done 0 the batch
// is pinned: none of it is in, but this batch and no other must come next. A store
// that has to prepare a batch before it writes pins it, as a Redis cluster does; a
// mark may show that after a Flush of the batch that did not succeed, never after
// one that did.
type Partial struct {
	Batch record.Batch `json:"batch"`
	// Done counts the records that were dealt with, dead ones included. It may be 0.
	Done uint64 `json:"done"`
	// Dead are the numbers, from 0 and within the batch, of those of the Done
	// records that went to the dead letters, ascending.
	Dead []uint64 `json:"dead,omitempty"`
}

// Tip stands for all that is in, a part of a batch included. Two marks of a lane
// with the same tip are of the same contents. It is the value that a store
// compares.
func (m Mark) Tip() record.Chain {
	if m.Partial == nil {
		return m.Chain
	}
	chain := m.Partial.Batch.Chain()
	b := append([]byte("walsink tip 1\x00"), m.Chain[:]...)
	b = append(b, chain[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Partial.Done)
	return sha256.Sum256(b)
}

// Head is the end of the last batch that is wholly in.
func (m Mark) Head() record.Head {
	return record.Head{Seq: m.Seq, Chain: m.Chain, Checkpoint: m.Checkpoint, Position: m.Position}
}

// A Step is one atomic change: the records of one or more batches, in order, or
// of a part of one batch. A step that an operator asked for has no records: it puts
// Next into the place of Prev as it is, whether or not Batches, of which there may be
// none, lead there.
type Step struct {
	// ID is the lane, for messages.
	ID LaneID
	// Prev is the mark the step builds on. Only its tip is compared.
	Prev Mark
	// Next is the mark to store. The adapter sets Next.Fence to its own and adds
	// what it rejects itself; see Tolerate.
	Next Mark
	// Batches are those of which the step has records, in order. All but the last
	// end in this step; the last does unless Next.Partial is set. They are the audit
	// rows to write: those that end in the step, with Dead counted.
	Batches []Audit
	// Records and Bytes count what Runs will yield.
	Records, Bytes int64
	// Runs ranges over the good records in order. It may be ranged over more than
	// once. A run is valid until the next one is asked for. The first error ends
	// it, means that the log could not be read, and is to be returned as it is.
	Runs iter.Seq2[Run, error]
	// Dead are records that were found bad before, to be put to the dead letters in
	// this same atomic step, in order. They do not come in Runs.
	Dead []DeadLetter
	// Lost is usually 0. Else the step is about one batch that an operator gave up, and
	// so many of its records come in neither Runs nor Dead. Next.Dead and the batch's
	// Dead count them.
	Lost uint64
	// Tolerate is for sinks that find bad records only while the step has already
	// begun to change the store, as Redis does: how many more of them may go to the
	// dead letters within the step. Such a sink counts them in the mark it stores
	// and returns them in Result.Rejected. All other sinks return Poison.
	Tolerate int
}

// A Run is records of one batch that follow each other without a gap.
type Run struct {
	// Batch is the index in Step.Batches.
	Batch int
	// First is the number within the batch, from 0, of the first record.
	First uint64
	// Block holds the records.
	Block record.Block
}

// A Reject is a record that the store will never take, as an adapter reports it.
type Reject struct {
	// Batch is the index in Step.Batches, Number the record's number in that batch,
	// from 0.
	Batch  int
	Number uint64
	// Field is the column or field at fault, if the store says.
	Field string
	// Code is the store's code for the error, as "22P02" or "WRONGTYPE".
	Code string
	// Reason is the store's text, without the record's contents.
	Reason string
}

// A DeadLetter is a record with the reason it was put aside.
type DeadLetter struct {
	Reject
	// Checkpoint is the checkpoint of the record's batch.
	Checkpoint uint64
	// Record is in the sink's wire form. It is valid during Flush.
	Record []byte
}

// ID is what names the letter in its lane.
func (d DeadLetter) ID() LetterID { return LetterID{d.Checkpoint, d.Number} }

// A Result says what a successful Flush found. The zero Result is usual.
type Result struct {
	// Rejected are the records the sink put to the dead letters on its own, at most
	// Step.Tolerate, ascending.
	Rejected []Reject
}
