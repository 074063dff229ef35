package redis

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// deadPage is how many dead letters are read at a time.
const deadPage = 100

// DeadLetters implements [sinks.DeadLetterBox]. Of a record of which the first commands
// were applied, Record holds those that were not.
func (s *Sink) DeadLetters(ctx context.Context, id sinks.LaneID, after sinks.LetterID) iter.Seq2[sinks.DeadLetter, error] {
	return func(yield func(sinks.DeadLetter, error) bool) {
		for m, err := range s.deadEntries(ctx, id) {
			var d sinks.DeadLetter
			if err == nil {
				if d, err = decodeDead(m); err != nil {
					err = &sinks.Error{Kind: sinks.Permanent, Op: "dead letters", Lane: id, Err: fmt.Errorf("entry %s: %w", m.ID, err)}
				}
			}
			if err != nil {
				yield(sinks.DeadLetter{}, err)
				return
			}
			if d.ID().Compare(after) > 0 && !yield(d, nil) {
				return
			}
		}
	}
}

// deadEntries ranges over the entries of the stream.
func (s *Sink) deadEntries(ctx context.Context, id sinks.LaneID) iter.Seq2[goredis.XMessage, error] {
	return func(yield func(goredis.XMessage, error) bool) {
		for start := "-"; ; {
			page, err := s.control.XRangeN(ctx, s.opts.keys(id).dead, start, "+", deadPage).Result()
			if err != nil {
				yield(goredis.XMessage{}, &sinks.Error{Kind: classify(ctx, err, false), Op: "dead letters", Lane: id, Err: redact(err)})
				return
			}
			for _, m := range page {
				if !yield(m, nil) {
					return
				}
				start = "(" + m.ID
			}
			if len(page) < deadPage {
				return
			}
		}
	}
}

func decodeDead(m goredis.XMessage) (d sinks.DeadLetter, err error) {
	text := func(field string) string { s, _ := m.Values[field].(string); return s }
	for field, to := range map[string]*uint64{"checkpoint": &d.Checkpoint, "number": &d.Number} {
		if *to, err = strconv.ParseUint(text(field), 10, 64); err != nil {
			return d, fmt.Errorf("%w: %s", record.ErrCorrupt, field)
		}
	}
	d.Field, d.Code, d.Reason = text("field"), text("code"), text("reason")
	applied := 0
	if n, ok := strings.CutPrefix(d.Field, "command "); ok { // in a cluster nothing else says so
		if applied, err = strconv.Atoi(n); err != nil {
			return d, fmt.Errorf("%w: field", record.ErrCorrupt)
		}
		applied--
	}
	if n := text("applied"); n != "" {
		if applied, err = strconv.Atoi(n); err != nil {
			return d, fmt.Errorf("%w: applied", record.ErrCorrupt)
		}
	}
	d.Record, err = behind(text("record"), applied)
	return d, err
}

// behind is a record without its first n commands. What is no record stays as it is.
func behind(rec string, n int) ([]byte, error) {
	var v view
	if n <= 0 {
		return []byte(rec), nil
	}
	if err := v.parse(rec); err != nil || n >= len(v.ends) {
		return []byte(rec), nil //nolint:nilerr // to say why it is refused is for the replay
	}
	var rest []Command
	for _, args := range v.commands() {
		rest = append(rest, slices.Clone(Command(args)))
	}
	return AppendCommands(nil, rest[n:]...)
}

// DropDeadLetters implements [sinks.DeadLetterBox].
func (s *Sink) DropDeadLetters(ctx context.Context, id sinks.LaneID, letters []sinks.LetterID) error {
	drop := make(map[sinks.LetterID]bool, len(letters))
	for _, l := range letters {
		drop[l] = true
	}
	var entries []string
	for m, err := range s.deadEntries(ctx, id) {
		if err != nil {
			return err
		}
		if d, err := decodeDead(m); err == nil && drop[d.ID()] {
			entries = append(entries, m.ID)
		}
	}
	for page := range slices.Chunk(entries, deadPage) {
		if err := s.control.XDel(ctx, s.opts.keys(id).dead, page...).Err(); err != nil {
			return &sinks.Error{Kind: classify(ctx, err, false), Op: "drop dead letters", Lane: id, Err: redact(err)}
		}
	}
	return nil
}
