package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"

	"github.com/walsink/walsink/sinks"
)

// deadPage is how many dead letters are read or removed at a time.
const deadPage = 100

// DeadLetters implements [sinks.DeadLetterBox].
func (s *Sink) DeadLetters(ctx context.Context, id sinks.LaneID, after sinks.LetterID) iter.Seq2[sinks.DeadLetter, error] {
	return func(yield func(sinks.DeadLetter, error) bool) {
		for {
			page, err := s.deadAfter(ctx, id, after)
			if err != nil {
				yield(sinks.DeadLetter{}, s.fail(ctx, "dead letters", id, preparing, err))
				return
			}
			for _, d := range page {
				if !yield(d, nil) {
					return
				}
				after = d.ID()
			}
			if len(page) < deadPage {
				return
			}
		}
	}
}

func (s *Sink) deadAfter(ctx context.Context, id sinks.LaneID, after sinks.LetterID) ([]sinks.DeadLetter, error) {
	results, err := s.query(ctx, sql(`select checkpoint, number, encode(record, 'hex'), field, code, reason from `+s.ledger.dead+`
	where sink = $1 and lane = $2 and (checkpoint, number) > ($3, $4) order by checkpoint, number limit $5`,
		id.Sink, id.Lane, int64(min(after.Checkpoint, math.MaxInt64)), int64(min(after.Number, math.MaxInt64)), int64(deadPage)))
	if err != nil {
		return nil, err
	}
	page := make([]sinks.DeadLetter, 0, len(results[0].Rows))
	for _, row := range results[0].Rows {
		r := scanner{row: row}
		var d sinks.DeadLetter
		d.Checkpoint, d.Number, d.Record = r.uint(), r.uint(), r.bytes()
		d.Field, d.Code, d.Reason = r.text(), r.text(), r.text()
		if r.err != nil {
			return nil, fmt.Errorf("%w: dead letter %s: %v", errRefused, d.ID(), r.err)
		}
		page = append(page, d)
	}
	return page, nil
}

// DropDeadLetters implements [sinks.DeadLetterBox]. The role needs the right to delete
// from the ledger's table dead_letter, as [Script] grants it.
func (s *Sink) DropDeadLetters(ctx context.Context, id sinks.LaneID, letters []sinks.LetterID) error {
	for len(letters) > 0 {
		n := min(len(letters), deadPage)
		text, err := json.Marshal(letters[:n])
		if err == nil {
			_, err = s.query(ctx, sql(`delete from `+s.ledger.dead+` d using json_to_recordset($3::json) as r(checkpoint bigint, number bigint)
	where d.sink = $1 and d.lane = $2 and d.checkpoint = r.checkpoint and d.number = r.number`, id.Sink, id.Lane, string(text)))
		}
		if err != nil {
			return s.fail(ctx, "drop dead letters", id, preparing, err)
		}
		letters = letters[n:]
	}
	return nil
}
