package wal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/walsink/walsink/record"
)

// MaxNote is the longest note, in bytes.
const MaxNote = 64 << 10

// pin finds a batch of a completed checkpoint and keeps it from being dropped.
func (l *Log) pin(lane string, seq uint64) (*batch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lanes[lane]
	if ln == nil {
		return nil, fmt.Errorf("lane %s: the log does not know it", lane)
	}
	if next := ln.after(seq - 1); seq > 0 && len(next) > 0 && next[0].Seq == seq && next[0].Checkpoint <= l.complete.checkpoint {
		next[0].pins++
		return next[0], nil
	}
	if ln.broken != nil && seq > ln.committed && seq <= max(ln.head.Seq, ln.durable) {
		return nil, ln.broken
	}
	return nil, fmt.Errorf("lane %s batch %d: the log does not hold it", lane, seq)
}

func (l *Log) unpin(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.pins--; b.pins == 0 {
		l.kick()
	}
}

// Blocks ranges over the records of a batch, block by block. A block is valid
// until the next one is asked for. The first error ends it; damage is a *Damage
// that names generation, batch and block. The batch is not dropped meanwhile.
func (l *Log) Blocks(lane string, seq uint64) iter.Seq2[record.Block, error] {
	return func(yield func(record.Block, error) bool) {
		b, err := l.pin(lane, seq)
		if err != nil {
			yield(record.Block{}, err)
			return
		}
		defer l.unpin(b)
		for block, err := range l.blocks(b) {
			if !yield(block, err) {
				return
			}
		}
	}
}

// blocks ranges over the blocks of a batch that is pinned or otherwise safe, up to the
// first damage, and compares the digest at the end.
func (l *Log) blocks(b *batch) iter.Seq2[record.Block, error] {
	return func(yield func(record.Block, error) bool) {
		sum := record.NewHasher()
		for block, err := range l.each(b) {
			if err == nil {
				sum.Add(block)
			}
			if !yield(block, err) || err != nil {
				return
			}
		}
		if sum.Sum() != b.Digest || sum.Records() != b.Records {
			yield(record.Block{}, b.damaged(0, -1, fmt.Errorf("the records do not have the digest of the footer")))
		}
	}
}

// each ranges over all blocks of a batch, with an error in the place of each that cannot
// be read.
func (l *Log) each(b *batch) iter.Seq2[record.Block, error] {
	return func(yield func(record.Block, error) bool) {
		var (
			buf, key []byte
			block    record.Block
			seg      int
		)
		for i := range b.blocks {
			for seg+1 < len(b.segments) && b.segments[seg+1].first <= i {
				seg++
			}
			number := b.segments[seg].generation
			key = blockKey(key, b.id, i)
			var err error
			if buf, err = l.value(number, key, buf[:0]); err == nil {
				block, err = record.Decode(buf, block)
			}
			if err != nil {
				block, err = record.Block{}, b.damaged(number, int(i), err)
			}
			if !yield(block, err) {
				return
			}
		}
	}
}

// value reads a value from a generation by number.
func (l *Log) value(number uint64, key, dst []byte) ([]byte, error) {
	l.mu.Lock()
	g := l.gens[number]
	l.mu.Unlock()
	if g == nil {
		return dst, errors.New("the generation is missing")
	}
	if g.damage != nil {
		return dst, g.damage
	}
	return l.get(g, key, dst)
}

// damaged wraps what was met while reading the batch. The end of the log is not
// damage.
func (b *batch) damaged(generation uint64, block int, err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	if errors.Is(err, errAbsent) {
		err = errors.New("the block is missing")
	}
	return &Damage{
		Generation: generation, Lane: b.lane.name, Seq: b.Seq, Checkpoint: b.Checkpoint, Block: block, Err: err,
	}
}

// Note returns what PutNote stored for the batch, or nil; a *Damage if that does not
// read back.
func (l *Log) Note(lane string, seq uint64) ([]byte, error) {
	b, err := l.pin(lane, seq)
	if err != nil {
		return nil, fmt.Errorf("note: %w", err)
	}
	defer l.unpin(b)
	l.mu.Lock()
	numbers := slices.Clone(b.notes)
	l.mu.Unlock()
	for _, n := range slices.Backward(numbers) {
		note, err := l.value(n, idKey(kindNote, b.id), nil)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return nil, b.damaged(n, -1, err)
		}
		d := decode(note)
		text := d.bytes(MaxNote)
		if err := d.done(); err != nil {
			return nil, b.damaged(n, -1, err)
		}
		return text, nil
	}
	return nil, nil
}

// PutNote stores bytes with the batch, durable on return. They live as long as
// the batch. The limit is MaxNote.
func (l *Log) PutNote(lane string, seq uint64, note []byte) error {
	if len(note) > MaxNote {
		return fmt.Errorf("note lane %s batch %d: %w: %d bytes, the limit is %d", lane, seq, record.ErrTooLarge, len(note), MaxNote)
	}
	b, err := l.pin(lane, seq)
	if err != nil {
		return fmt.Errorf("note: %w", err)
	}
	defer l.unpin(b)
	if err := l.putNote(b, finish(appendBytes(begin(), note))); err != nil {
		return fmt.Errorf("note lane %s batch %d: %w", lane, seq, err)
	}
	return l.Sync()
}

// putNote writes a note, and makes the batch need the generation it is in.
func (l *Log) putNote(b *batch, value []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turnOver()
	g, err := l.control(normal, entry{idKey(kindNote, b.id), value})
	if err != nil {
		return err
	}
	if !b.needs(g.number) {
		g.live++
	}
	if !slices.Contains(b.notes, g.number) {
		b.notes = append(b.notes, g.number)
	}
	return nil
}

// Verify reads everything that the log holds and ranges over the damage it finds.
// An error that is not a *Damage ends it.
func (l *Log) Verify(ctx context.Context) iter.Seq[error] {
	return func(yield func(error) bool) {
		for _, err := range l.Stat().Damage {
			if !yield(err) {
				return
			}
		}
		for _, lane := range l.Lanes() {
			for _, b := range l.Batches(lane) {
				if err := ctx.Err(); err != nil {
					yield(err)
					return
				}
				for _, err := range l.Blocks(lane, b.Seq) {
					if err != nil && !yield(err) {
						return
					}
				}
			}
		}
	}
}
