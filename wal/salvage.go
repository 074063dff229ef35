package wal

import (
	"iter"

	"github.com/walsink/walsink/record"
)

// Salvage ranges over what can still be read of a batch: its whole blocks, in order,
// and in the place of each other one a *Damage. A block is valid until the next one is
// asked for. Where a block is missing nobody knows how many records it had, so that
// the numbers of those behind it are not known. The digest of the batch is not
// compared. The batch is not dropped meanwhile.
func (l *Log) Salvage(lane string, seq uint64) iter.Seq2[record.Block, error] {
	return func(yield func(record.Block, error) bool) {
		b, err := l.pin(lane, seq)
		if err != nil {
			yield(record.Block{}, err)
			return
		}
		defer l.unpin(b)
		for block, err := range l.each(b) {
			if !yield(block, err) {
				return
			}
		}
	}
}
