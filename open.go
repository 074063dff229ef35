package walsink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// Open opens the log, takes over every lane that log, store or options know, and
// starts to flush what is complete. From its return on, a former owner of the
// sink id can write nothing more. The output owns sink from here on, also if Open
// fails.
//
// What to do with the source is then said by [Output.Position] and
// [Output.Barriers]. Errors are those of [wal.Open] and the refusals of
// [committer.Committer.Open]; each says what to do.
func Open(ctx context.Context, sink sinks.Sink, opts Options) (*Output, error) {
	opts = opts.withDefaults()
	o := &Output{id: opts.ID, opts: opts, sink: sink, lanes: make(map[string]*Lane), opening: make(chan struct{}, 1)}
	o.valid, _ = sink.(sinks.Validator)
	if err := o.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open sink %q: %w", opts.ID, err), o.release())
	}
	return o, nil
}

func (o *Output) open(ctx context.Context) error {
	if o.opts.Dir == "" {
		return errors.New("Options.Dir is empty: name a directory for the log")
	}
	if err := (sinks.LaneID{Sink: o.id, Lane: DefaultLane}).Validate(); err != nil {
		return err
	}
	log, err := wal.Open(o.opts.Dir, o.opts.Log)
	if err != nil {
		return err
	}
	o.log = log
	if err := o.ours(); err != nil {
		return err
	}
	if err := o.settle(); err != nil {
		return err
	}
	if o.eng, err = committer.New(o.sink, o.id, log, o.opts.Flush); err != nil {
		return err
	}
	names, err := o.laneNames(ctx)
	if err != nil {
		return err
	}
	marks, lost, err := o.acquire(ctx, names)
	if err != nil {
		return err
	}
	damaged, err := o.damaged()
	if err != nil {
		return err
	}
	checkpoint, position := o.log.Completed()
	o.position, o.last = position, checkpoint
	lost = lost || damaged || o.log.Restarted()
	for _, m := range marks {
		lost = lost || m.Checkpoint > checkpoint
		o.last = max(o.last, m.Checkpoint)
	}
	if lost {
		return o.recover(ctx, marks)
	}
	return nil
}

// damaged reports whether the log has lost batches of a lane that were complete. The
// source has them, and goes back; if it cannot, that is an error.
func (o *Output) damaged() (bool, error) {
	for _, l := range o.log.Stat().Lanes {
		if l.Broken == nil {
			continue
		}
		if o.opts.Flush.Stateful || o.opts.Flush.NoReplay {
			return true, fmt.Errorf("%w: %w", committer.ErrStateBehind, l.Broken)
		}
		o.opts.Logger.Error("the log has lost batches, the source goes back to what the store has", "sink", o.id, "error", l.Broken)
		return true, nil
	}
	return false, nil
}

// release closes what a failed Open had opened, or all that Close has to.
func (o *Output) release() error {
	var errs []error
	if o.eng != nil {
		errs = append(errs, o.eng.Close())
	}
	if o.log != nil {
		errs = append(errs, o.log.Close())
	}
	return errors.Join(append(errs, o.sink.Close())...)
}

// ours refuses a log that completed a checkpoint under another sink id.
func (o *Output) ours() error {
	done, _ := o.log.Completed()
	for _, key := range o.log.Lanes() {
		id, _, _ := strings.Cut(key, "/")
		if id != o.id && done > 0 {
			return fmt.Errorf("%w: %s is of %q, with checkpoint %d complete; give each sink id a directory of its own",
				ErrForeignState, o.opts.Dir, id, done)
		}
	}
	return nil
}

// settle decides which sealed batches count: those of the restored checkpoint, or
// of the newest one that the log knows to be complete. The source sends the rest
// again. A restored checkpoint that this log never sealed does not count: records
// before it may be nowhere.
func (o *Output) settle() error {
	done, _ := o.log.Completed()
	if r := o.opts.Restored; r != nil && r.Checkpoint != done {
		if r.Checkpoint < done {
			return fmt.Errorf("%w: the state was restored from checkpoint %d, checkpoint %d is complete here; restore the newer one, or start over under another sink id",
				committer.ErrStateBehind, r.Checkpoint, done)
		}
		if sealed := o.log.Sealed(); sealed < r.Checkpoint {
			o.opts.Logger.Warn("the log does not have the checkpoint that the state was restored from",
				"sink", o.id, "restored", r.Checkpoint, "sealed", sealed, "completed", done)
		} else if err := o.log.Complete(r.Checkpoint, r.Position); err != nil {
			return err
		}
	}
	return o.log.Truncate()
}

// laneNames are the lanes of this sink id that options, log and store know.
func (o *Output) laneNames(ctx context.Context) ([]string, error) {
	names := slices.Clone(o.opts.Lanes)
	for _, key := range o.log.Lanes() {
		if name, ok := strings.CutPrefix(key, o.id+"/"); ok {
			names = append(names, name)
		}
	}
	if ledger, ok := o.sink.(sinks.Ledger); ok {
		marks, err := ledger.Marks(ctx, o.id)
		if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		for _, m := range marks {
			names = append(names, m.Lane)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// acquire opens the lanes. lost says that the log does not continue the mark of
// one of them.
func (o *Output) acquire(ctx context.Context, names []string) (marks []sinks.LaneMark, lost bool, err error) {
	for _, name := range names {
		opening, err := o.eng.Open(ctx, name)
		if err != nil {
			return nil, false, err
		}
		lost = lost || opening.Outcome == committer.Resume
		marks = append(marks, sinks.LaneMark{LaneID: sinks.LaneID{Sink: o.id, Lane: name}, Mark: opening.Mark})
		if _, err := o.addLane(name); err != nil {
			return nil, false, err
		}
	}
	return marks, lost, nil
}

// recover starts from the ledger: the local log is lost, or older or younger
// than the store. What still connects goes to the store first; then the source
// goes back to the lane that is least far, and the lanes that are further repeat
// what they have.
func (o *Output) recover(ctx context.Context, marks []sinks.LaneMark) error {
	if err := o.eng.Drain(ctx); err != nil {
		return err
	}
	plan, err := o.plan(ctx, marks)
	if err != nil {
		return err
	}
	for _, p := range plan.Lanes {
		if o.lanes[p.Lane] == nil {
			return fmt.Errorf("lane %s/%s came into the ledger while it was read: somebody else uses the sink id", o.id, p.Lane)
		}
	}
	if err := o.log.Rewind(plan.Checkpoint, plan.Position); err != nil {
		return err
	}
	o.position, o.barriers = plan.Position, plan.Barriers
	for _, p := range plan.Lanes {
		l := o.lanes[p.Lane]
		l.last = p.Mark.Checkpoint
		o.last = max(o.last, p.Mark.Checkpoint)
		if len(p.Covered) > 0 {
			l.replay = committer.NewReplay(p.Lane, p.Covered)
		}
	}
	if n := len(o.barriers); n > 0 {
		o.last = max(o.last, o.barriers[n-1].Checkpoint)
	}
	o.opts.Logger.Warn("starting from the ledger, without local log", "sink", o.id,
		"checkpoint", plan.Checkpoint, "lanes", len(plan.Lanes), "barriers", len(plan.Barriers))
	return nil
}

// plan asks the ledger how to start. A sink that cannot list its ledger can have
// one lane only, and the mark of that says it all.
func (o *Output) plan(ctx context.Context, marks []sinks.LaneMark) (committer.Plan, error) {
	if ledger, ok := o.sink.(sinks.Ledger); ok {
		return committer.ReadPlan(ctx, ledger, o.id)
	}
	if len(marks) > 1 {
		return committer.Plan{}, fmt.Errorf("%w: the log is lost, and sink %s cannot list the marks of its %d lanes; restore the log",
			committer.ErrStateBehind, o.sink.Info().Name, len(marks))
	}
	status := o.eng.Status()
	marks[0].Mark = status[slices.IndexFunc(status, func(s committer.LaneStatus) bool { return s.Lane == marks[0].Lane })].Mark
	return committer.Recover(marks, nil)
}

// byName orders lanes as their names do.
func byName(a, b *Lane) int { return cmp.Compare(a.name, b.name) }
