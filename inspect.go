package walsink

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/internal/seam"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// An Inspection says how Open would go on.
type Inspection struct {
	// Log says that there is a local log.
	Log   bool
	Lanes []LaneInspection
	// Refusal is why Open would refuse; nil if it would not. It is that of a lane, or of
	// all of them together.
	Refusal error
}

// A LaneInspection is how a lane would go on.
type LaneInspection struct {
	sinks.LaneID
	// Mark is the store's; with Fence 0 if it has none.
	Mark sinks.Mark
	// Head is the end of the log, Committed the last batch that it knows to be in; zero
	// without a log.
	Head      record.Head
	Committed uint64
	// Outcome is that of the opening table; 0 if the lane is refused.
	Outcome committer.Outcome
	// Refusal is why the lane would be refused, or nil.
	Refusal error
}

// Inspect says how Open with the same arguments would go on. It takes no lane over and
// writes neither to the store nor to the log, which it has open meanwhile; without
// a log it makes none. The sink must be a [sinks.Ledger]; it is not closed. Errors are
// about the looking.
func Inspect(ctx context.Context, sink sinks.Sink, opts Options) (in Inspection, err error) {
	ledger, ok := sink.(sinks.Ledger)
	if !ok {
		return in, errors.New("inspect: sink " + sink.Info().Name + " cannot list its ledger")
	}
	opts = opts.withDefaults()
	o := &Output{id: opts.ID, opts: opts, sink: sink}
	if _, err := os.Stat(opts.Dir); err == nil {
		if o.log, err = seam.OpenWAL(opts.Dir, opts.Log); err != nil {
			return in, err
		}
		in.Log = true
		defer func() { err = errors.Join(err, o.log.Close()) }()
		if in.Refusal = o.ours(); in.Refusal != nil {
			return in, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return in, err
	}
	marks, err := ledger.Marks(ctx, o.id)
	if err != nil {
		return in, err
	}
	in.Lanes = o.inspect(marks)
	var claims []claim
	for _, l := range in.Lanes {
		if l.Refusal != nil {
			in.Refusal = l.Refusal
			return in, nil
		}
		claims = append(claims, claim{l.LaneID, committer.Opening{Outcome: l.Outcome, Mark: l.Mark}})
	}
	if !in.Log && len(claims) == 0 {
		return in, nil
	}
	_, err = o.consider(ctx, claims)
	for _, refusal := range []error{committer.ErrStateBehind, committer.ErrLedgerBehind, committer.ErrReplayDiffers} {
		if errors.Is(err, refusal) {
			in.Refusal = err
			return in, nil
		}
	}
	return in, err
}

// inspect decides about each lane that log or store know.
func (o *Output) inspect(marks []sinks.LaneMark) []LaneInspection {
	stored := make(map[string]sinks.Mark)
	for _, m := range marks {
		stored[m.Lane] = m.Mark
	}
	log := committer.Log(absent{})
	if o.log != nil {
		log = o.log
	}
	var lanes []LaneInspection
	for _, name := range o.known(marks) {
		l := LaneInspection{LaneID: sinks.LaneID{Sink: o.id, Lane: name}}
		l.Mark = sinks.Mark{Chain: l.Genesis()}
		if m, ok := stored[name]; ok {
			l.Mark = m
		}
		l.Head, l.Committed, _ = log.Head(l.String())
		opening, err := committer.Inspect(log, l.LaneID, l.Mark, o.opts.Flush)
		l.Outcome, l.Refusal = opening.Outcome, err
		lanes = append(lanes, l)
	}
	return lanes
}

// absent is a log that is not there.
type absent struct{ committer.Log }

func (absent) Head(string) (record.Head, uint64, bool) { return record.Head{}, 0, false }
func (absent) Batches(string) []record.Batch           { return nil }
