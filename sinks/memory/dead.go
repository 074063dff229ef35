package memory

import (
	"context"
	"iter"
	"slices"

	"github.com/walsink/walsink/sinks"
)

// DeadLetters ranges over the dead letters of a lane. It implements
// [sinks.DeadLetterBox].
func (s *Sink) DeadLetters(_ context.Context, id sinks.LaneID, after sinks.LetterID) iter.Seq2[sinks.DeadLetter, error] {
	return func(yield func(sinks.DeadLetter, error) bool) {
		letters := s.store.DeadLetters(id)
		slices.SortStableFunc(letters, func(a, b Dead) int { return a.id().Compare(b.id()) })
		for _, d := range letters {
			letter := sinks.DeadLetter{
				Reject:     sinks.Reject{Number: d.Number, Field: d.Field, Code: d.Code, Reason: d.Reason},
				Checkpoint: d.Checkpoint, Record: d.Record,
			}
			if d.id().Compare(after) > 0 && !yield(letter, nil) {
				return
			}
		}
	}
}

// DropDeadLetters removes dead letters. It implements [sinks.DeadLetterBox].
func (s *Sink) DropDeadLetters(_ context.Context, id sinks.LaneID, letters []sinks.LetterID) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	e, ok := s.store.lanes[id]
	if !ok {
		return nil
	}
	var kept []Dead // a new slice: snapshots have the old one
	for _, d := range e.dead {
		if !slices.Contains(letters, d.id()) {
			kept = append(kept, d)
		}
	}
	e.dead = kept
	s.store.lanes[id] = e
	return nil
}

func (d Dead) id() sinks.LetterID { return sinks.LetterID{Checkpoint: d.Checkpoint, Number: d.Number} }
