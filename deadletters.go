package walsink

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

// A Replay says what ReplayDeadLetters did.
type Replay struct {
	// Letters were taken from the lane's dead letters; Again of them the store refused
	// again: they are dead letters of lane ReplayLane, with their new reason. Counts of
	// a replay that was interrupted before are not included.
	Letters, Again uint64
	// Dropped are no longer among the lane's dead letters: those of earlier, interrupted
	// replays included.
	Dropped uint64
}

// ReplayLane is the lane under which the dead letters of a lane are replayed. Its sink id
// is one of its own, so that the job that owns the lane does not take it for one of its.
// The letters that the store refuses again are its dead letters, and can be replayed in
// the same way.
func ReplayLane(lane sinks.LaneID) sinks.LaneID {
	sum := sha256.Sum256([]byte(lane.String()))
	name := lane.Sink + "." + lane.Lane
	return sinks.LaneID{Sink: name[:min(len(name), 60)] + ".dead-" + hex.EncodeToString(sum[:6]), Lane: DefaultLane}
}

// ReplayedTo is the last dead letter of a lane that is in and may still be among its dead
// letters, as the mark of ReplayLane says: that of a replay that was interrupted.
func ReplayedTo(m sinks.Mark) (sinks.LetterID, error) { return parseLetter(m.Position) }

const (
	// replayLetters is how many dead letters make a batch: the reasons of all of them have
	// to fit the note of a batch, if all are refused again.
	replayLetters = 50
	// replayBytes ends a batch early.
	replayBytes = 8 << 20
)

// ErrStartedAnew says that a lane has dead letters from before it was started anew, whose
// numbers do not tell them from those of today. Nothing was replayed: look at them, and
// drop the old ones.
var ErrStartedAnew = errors.New("the lane was started anew")

// ErrFormForgotten says that the ledger no longer remembers the batch of a dead letter, and
// so not which types its record was made for. Nothing was replayed.
var ErrFormForgotten = errors.New("the form of a dead letter is forgotten")

// ReplayDeadLetters writes the dead letters of a lane into the store again, after the
// cause was mended: through log and ledger like any other records, under ReplayLane, so that
// each is in once, however often the replay is killed and started again. Letters that the
// store refuses again become dead letters of ReplayLane in the same atomic step. What is in is
// then dropped from the lane's dead letters.
//
// The sink must be a [sinks.DeadLetterBox]; it is not closed. Options.Dir is a directory for
// the replay alone, which may be removed when it has succeeded; ID and Lanes are not
// read. A letter whose wire form the ledger no longer remembers is ErrFormForgotten if
// the sink takes several, unless Flush.Accept has [committer.AcceptForm]. The job that owns
// the lane may be at work. Of two replays of one lane the one that
// began later goes on.
func ReplayDeadLetters(ctx context.Context, sink sinks.Sink, lane sinks.LaneID, opts Options) (r Replay, err error) {
	box, ok := sink.(sinks.DeadLetterBox)
	if !ok {
		return r, fmt.Errorf("replay dead letters: sink %s cannot give them out", sink.Info().Name)
	}
	formats, err := deadFormats(ctx, sink, lane)
	if err != nil {
		return r, err
	}
	to := ReplayLane(lane)
	opts.ID, opts.Lanes, opts.Restored, opts.RefuseNew, opts.Begin = to.Sink, []string{to.Lane}, nil, false, nil
	opts.Flush.DeadLetters, opts.Flush.DeadLimit, opts.Flush.NoReplay, opts.Flush.Stateful = true, replayLetters, false, false
	_, several := sink.(sinks.Taker)
	strict := several && opts.Flush.Accept&committer.AcceptForm == 0
	opts.Flush.Accept &^= committer.AcceptForm
	form := &letterSink{Sink: sink, format: sink.Info().Format}
	out, err := Open(ctx, form, opts)
	if err != nil {
		return r, fmt.Errorf("replay dead letters of lane %s: %w", lane, err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	p := &replayer{out: out, box: box, lane: lane, formats: formats, strict: strict, sink: form}
	if err := p.run(ctx); err != nil {
		return r, fmt.Errorf("replay dead letters of lane %s: %w", lane, err)
	}
	r.Letters, r.Again = p.letters, out.Status().Lanes[0].Dead
	if r.Dropped, err = p.drop(ctx); err == nil {
		err = p.end(ctx)
	}
	return r, err
}

// deadFormats are the wire forms of those batches of a lane that have dead letters, by
// checkpoint, as far as the ledger remembers.
func deadFormats(ctx context.Context, sink sinks.Sink, lane sinks.LaneID) (map[uint64]string, error) {
	formats := make(map[uint64]string)
	ledger, ok := sink.(sinks.Ledger)
	if !ok {
		return formats, nil
	}
	for row, err := range ledger.Audit(ctx, lane, 0) {
		if err != nil {
			return nil, fmt.Errorf("replay dead letters of lane %s: %w", lane, err)
		}
		if row.Dead > 0 {
			formats[row.Checkpoint] = row.Format
		}
	}
	return formats, nil
}

// A letterSink is a sink that its output does not close, and whose wire form is that of
// the letters being read.
type letterSink struct {
	sinks.Sink
	format string
}

func (s *letterSink) Close() error { return nil }

func (s *letterSink) Info() sinks.Info {
	info := s.Sink.Info()
	info.Format = s.format
	return info
}

// Takes is that of a sinks.Taker.
func (s *letterSink) Takes(format string) bool {
	t, ok := s.Sink.(sinks.Taker)
	return format == s.Sink.Info().Format || ok && t.Takes(format)
}

// A replayer is one replay.
type replayer struct {
	out     *Output
	box     sinks.DeadLetterBox
	lane    sinks.LaneID
	formats map[uint64]string
	strict  bool // the wire form of a letter has to be known
	sink    *letterSink

	at      sinks.LetterID // the last letter that is in a checkpoint
	letters uint64
}

// run reads the letters from where the ledger says, and returns when all are in.
func (p *replayer) run(ctx context.Context) error {
	var err error
	if p.at, err = parseLetter(p.out.Position()); err != nil {
		return err
	}
	if err := p.check(ctx); err != nil {
		return err
	}
	last, n, size := p.at, 0, 0
	for d, err := range p.box.DeadLetters(ctx, p.lane, p.at) {
		if err != nil {
			return err
		}
		format := p.formatOf(d)
		if !p.sink.Takes(format) {
			return fmt.Errorf("%w: dead letter %s is %q, the sink takes %q; open it with the options of that time",
				committer.ErrFormat, d.ID(), format, p.sink.Sink.Info().Format)
		}
		if n > 0 && format != p.sink.format { // a batch has one form
			if err := p.checkpoint(ctx, last, n); err != nil {
				return err
			}
			n, size = 0, 0
		}
		p.sink.format = format
		if err := p.out.Append(ctx, d.Record); err != nil {
			return fmt.Errorf("dead letter %s: %w", d.ID(), err)
		}
		last, n, size = d.ID(), n+1, size+len(d.Record)
		if !p.due(last, n, size) {
			continue
		}
		if err := p.checkpoint(ctx, last, n); err != nil {
			return err
		}
		n, size = 0, 0
	}
	if n > 0 {
		if err := p.checkpoint(ctx, last, n); err != nil {
			return err
		}
	}
	if b := p.out.Barriers(); len(b) > 0 {
		return fmt.Errorf("%w: a part of a replay that was interrupted is in, and the letters up to %q are not there any more", committer.ErrReplayDiffers, b[0].Position)
	}
	return p.out.Drain(ctx)
}

// check refuses letters before any is written. Their ids have to rise: the position of a
// replay is an id, so that it could not tell which of them are in. And where a store takes
// several wire forms, that of a letter has to be known: taken for another, its bytes may be
// other values.
func (p *replayer) check(ctx context.Context) error {
	last := p.at
	for d, err := range p.box.DeadLetters(ctx, p.lane, p.at) {
		if err != nil {
			return err
		}
		if d.ID().Compare(last) <= 0 {
			return fmt.Errorf("%w: dead letter %s comes behind %s; show them, and drop those of the old job", ErrStartedAnew, d.ID(), last)
		}
		last = d.ID()
		if _, known := p.formats[d.Checkpoint]; !known && p.strict {
			return fmt.Errorf("%w: the ledger does not remember the batch of %s any more; if the columns of the table are as they were then, "+
				"accept its form for that of today", ErrFormForgotten, d.ID())
		}
	}
	return nil
}

// formatOf is the wire form of a letter: that which the ledger remembers, or else that of
// today.
func (p *replayer) formatOf(d sinks.DeadLetter) string {
	if f, ok := p.formats[d.Checkpoint]; ok {
		return f
	}
	return p.sink.Sink.Info().Format
}

// due reports whether a checkpoint is taken behind a letter: a replay that was interrupted
// within one repeats it as it was.
func (p *replayer) due(at sinks.LetterID, n, size int) bool {
	if b := p.out.Barriers(); len(b) > 0 {
		return bytes.Equal(b[0].Position, formatLetter(at))
	}
	return n == replayLetters || size >= replayBytes
}

func (p *replayer) checkpoint(ctx context.Context, at sinks.LetterID, n int) error {
	if _, err := p.out.Checkpoint(ctx, formatLetter(at)); err != nil {
		return err
	}
	p.at = at
	p.letters += uint64(n)
	return nil
}

// dropAtOnce is how many letters are dropped in one call.
const dropAtOnce = 500

// drop removes the letters that are in.
func (p *replayer) drop(ctx context.Context) (n uint64, err error) {
	for {
		var done []sinks.LetterID
		for d, err := range p.box.DeadLetters(ctx, p.lane, sinks.LetterID{}) {
			if err != nil {
				return n, err
			}
			if d.ID().Compare(p.at) > 0 || len(done) == dropAtOnce {
				break
			}
			done = append(done, d.ID())
		}
		if len(done) == 0 {
			return n, nil
		}
		if err := p.box.DropDeadLetters(ctx, p.lane, done); err != nil {
			return n, fmt.Errorf("drop replayed dead letters of lane %s: %w", p.lane, err)
		}
		n += uint64(len(done))
	}
}

// end takes the position back to the beginning, since no letter is left before it: should
// the lane be started anew one day, its letters would have the numbers of those that are
// in, and be taken for them.
func (p *replayer) end(ctx context.Context) error {
	if p.at == (sinks.LetterID{}) {
		return nil
	}
	if err := p.out.sealEmpty(Barrier{Checkpoint: p.out.Last() + 1}, DefaultLane); err != nil {
		return fmt.Errorf("end the replay of dead letters of lane %s: %w", p.lane, err)
	}
	return p.out.Drain(ctx)
}

const letterForm = "dead letter "

func formatLetter(l sinks.LetterID) []byte { return []byte(letterForm + l.String()) }

// parseLetter reads a position; none is before the first letter.
func parseLetter(position []byte) (l sinks.LetterID, err error) {
	if len(position) == 0 {
		return l, nil
	}
	text, ok := strings.CutPrefix(string(position), letterForm)
	if _, err := fmt.Sscanf(text, "%d:%d", &l.Checkpoint, &l.Number); !ok || err != nil || !bytes.Equal(formatLetter(l), position) {
		return sinks.LetterID{}, fmt.Errorf("%w: not that of a dead letter", committer.ErrForeignPosition)
	}
	return l, nil
}
