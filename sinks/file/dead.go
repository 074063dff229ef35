package file

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/walsink/walsink/sinks"
)

// maxDead bounds a part of dead letters: those of one step, each in base 64.
const maxDead = 1 << 30

// DeadLetters implements [sinks.DeadLetterBox]. It gives out parts that are published.
func (s *Sink) DeadLetters(ctx context.Context, id sinks.LaneID, after sinks.LetterID) iter.Seq2[sinks.DeadLetter, error] {
	return func(yield func(sinks.DeadLetter, error) bool) {
		names, err := s.deadParts(id)
		if err != nil {
			yield(sinks.DeadLetter{}, fail("dead letters", id, 0, err))
			return
		}
		for _, name := range names {
			letters, err := s.readDead(ctx, name)
			if err != nil {
				yield(sinks.DeadLetter{}, fail("dead letters", id, 0, err))
				return
			}
			for _, d := range letters {
				if d.ID().Compare(after) > 0 && !yield(d, nil) {
					return
				}
			}
		}
	}
}

// deadParts are the parts of dead letters of a lane, in order.
func (s *Sink) deadParts(id sinks.LaneID) ([]string, error) {
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	dir := path.Join(laneDir(id.Sink, id.Lane), "dead")
	names, err := s.fs.list(dir)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, name := range names {
		if strings.HasPrefix(name, partPrefix(id)) {
			parts = append(parts, path.Join(dir, name))
		}
	}
	slices.Sort(parts)
	return parts, nil
}

// readDead reads a part, which somebody may have removed.
func (s *Sink) readDead(ctx context.Context, name string) ([]sinks.DeadLetter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, err := s.fs.read(name, maxDead)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var letters []sinks.DeadLetter
	for line := range bytes.Lines(data) {
		var d deadLetter
		if err := json.Unmarshal(line, &d); err != nil {
			return nil, fmt.Errorf("%s: %w: line %d is no dead letter: %v", name, errDamaged, len(letters)+1, err)
		}
		letters = append(letters, sinks.DeadLetter{
			Reject:     sinks.Reject{Number: d.Number, Field: d.Field, Code: d.Code, Reason: d.Reason},
			Checkpoint: d.Checkpoint, Record: d.Record,
		})
	}
	slices.SortStableFunc(letters, func(a, b sinks.DeadLetter) int { return a.ID().Compare(b.ID()) })
	return letters, nil
}

// DropDeadLetters implements [sinks.DeadLetterBox]. A part that keeps some of its letters
// is replaced by one with those.
func (s *Sink) DropDeadLetters(ctx context.Context, id sinks.LaneID, letters []sinks.LetterID) error {
	drop := make(map[sinks.LetterID]bool, len(letters))
	for _, l := range letters {
		drop[l] = true
	}
	names, err := s.deadParts(id)
	if err != nil {
		return fail("drop dead letters", id, 0, err)
	}
	for _, name := range names {
		if err := s.dropDead(ctx, name, drop); err != nil {
			return fail("drop dead letters", id, 0, err)
		}
	}
	return nil
}

func (s *Sink) dropDead(ctx context.Context, name string, drop map[sinks.LetterID]bool) error {
	held, err := s.readDead(ctx, name)
	if err != nil || !slices.ContainsFunc(held, func(d sinks.DeadLetter) bool { return drop[d.ID()] }) {
		return err
	}
	kept := slices.DeleteFunc(held, func(d sinks.DeadLetter) bool { return drop[d.ID()] })
	if len(kept) == 0 {
		err = s.fs.remove(name)
	} else {
		err = s.replaceDead(name, kept)
	}
	if err != nil {
		return err
	}
	return s.fs.syncDir(path.Dir(name))
}

func (s *Sink) replaceDead(name string, letters []sinks.DeadLetter) error {
	tmp := path.Join(path.Dir(name), ".new-"+rand.Text())
	f, err := s.fs.create(tmp, s.opts.Mode)
	if err != nil {
		return err
	}
	for _, d := range letters {
		line, err := encodeDead(d)
		if err == nil {
			_, err = f.Write(line)
		}
		if err != nil {
			return errors.Join(err, f.Close(), s.fs.remove(tmp))
		}
	}
	if err := f.finish(); err != nil {
		return errors.Join(err, s.fs.remove(tmp))
	}
	return s.fs.do("replace", name, func() error { return s.fs.root.Rename(tmp, name) })
}

// encodeDead is a letter as a line of a part.
func encodeDead(d sinks.DeadLetter) ([]byte, error) {
	line, err := json.Marshal(deadLetter{
		Checkpoint: d.Checkpoint, Number: d.Number, Field: d.Field, Code: d.Code, Reason: d.Reason, Record: d.Record,
	})
	if err != nil {
		return nil, fmt.Errorf("dead letter %s: %w", d.ID(), err)
	}
	return append(line, '\n'), nil
}
