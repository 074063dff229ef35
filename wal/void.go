package wal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/walsink/walsink/record"
)

// Void forgets the lane's batches from seq on, as if they had never been, so that
// the source has to send them again: what to do about a batch that cannot be read.
// Batches before it stay, those that wait for their flush included. Restarted is true
// afterwards, until the next start from what the store holds. A batch that the store
// has cannot be voided. Void is durable on return. An error or a crash in between leaves the lane
// on disk shorter by some of the batches, the newest first, which an open log does not
// see: close it after an error. Void must not run beside anything else that is done
// with the lane.
func (l *Log) Void(lane string, seq uint64) error {
	l.mu.Lock()
	ln := l.lanes[lane]
	l.mu.Unlock()
	if ln == nil {
		return fmt.Errorf("void lane %s: the log does not know it", lane)
	}
	ln.settle()
	if err := l.void(ln, seq); err != nil {
		return fmt.Errorf("void lane %s from batch %d on: %w", lane, seq, err)
	}
	return l.Sync()
}

func (l *Log) void(ln *Lane, seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq <= ln.committed {
		return fmt.Errorf("the store has the batches up to %d", ln.committed)
	}
	i, ok := slices.BinarySearchFunc(ln.batches, seq, func(b *batch, seq uint64) int { return cmp.Compare(b.Seq, seq) })
	if !ok {
		return errors.New("the log does not hold it")
	}
	gone := ln.batches[i:]
	if slices.ContainsFunc(gone, func(b *batch) bool { return b.pins > 0 }) {
		return errors.New("it is being read")
	}
	state := ln.laneState
	state.head = ln.before(i)
	state.durable, state.restarted = min(state.durable, seq-1), true
	// The state first: were a batch void whose end is still the head, it would count
	// as lost.
	entries := []entry{{laneKey(kindLane, ln.name), state.encode()}}
	for _, b := range slices.Backward(gone) {
		entries = append(entries, entry{idKey(kindVoid, b.id), begin()})
	}
	if err := l.controlAll(normal, entries); err != nil {
		return err
	}
	l.discardOpen(ln)
	for _, b := range gone {
		b.gone = true
		l.voids[b.id] = b.footer
		l.release(b)
	}
	ln.batches = ln.batches[:i:i]
	ln.laneState, ln.known, ln.stored, ln.written = state, true, true, state.head.Seq
	return nil
}

// before is the end of the batch before batches[i]. If it is no longer held, only its
// number and chain are known.
func (ln *Lane) before(i int) record.Head {
	if i > 0 {
		return ln.batches[i-1].Head()
	}
	return record.Head{Seq: ln.batches[0].Seq - 1, Chain: ln.batches[0].Prev}
}
