package walsink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/internal/seam"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
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
		if errors.Is(err, ErrNew) {
			o.sink = keptOpen{sink}
		}
		return nil, errors.Join(fmt.Errorf("open sink %q: %w", opts.ID, err), o.release())
	}
	return o, nil
}

// keptOpen is a sink that its output does not close.
type keptOpen struct{ sinks.Sink }

func (keptOpen) Close() error { return nil }

func (o *Output) open(ctx context.Context) error {
	if o.opts.Dir == "" {
		return errors.New("Options.Dir is empty: name a directory for the log")
	}
	if err := (sinks.LaneID{Sink: o.id, Lane: DefaultLane}).Validate(); err != nil {
		return err
	}
	log, err := seam.Open(ctx, o.opts.Dir, o.opts.Log)
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
	marks, err := o.ledgerMarks(ctx)
	if err != nil {
		return err
	}
	fresh := len(marks) == 0 && o.nothingComplete()
	if fresh && o.opts.RefuseNew {
		return ErrNew
	}
	names := slices.Concat(o.opts.Lanes, o.known(marks))
	if fresh {
		names = append(names, o.opts.NewLanes...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	begun := fresh && o.opts.Begin != nil && o.opts.Begin.Checkpoint > 0
	if begun {
		if err := o.begin(names, o.opts.Begin); err != nil {
			return err
		}
	}
	lost := false
	found, err := o.eng.OpenAll(ctx, names, func(found []committer.Opening, ledger []sinks.LaneMark) (err error) {
		if err := o.alone(names, ledger); err != nil {
			return err
		}
		claims := o.claims(names, found)
		lost, err = o.consider(ctx, claims)
		for i, c := range claims {
			found[i].Outcome = c.Outcome
		}
		return err
	})
	if err != nil {
		return err
	}
	claims := o.claims(names, found)
	checkpoint, position := o.log.Completed()
	o.position, o.last = position, checkpoint
	for i, name := range names {
		o.last = max(o.last, found[i].Mark.Checkpoint)
		if _, err := o.addLane(name); err != nil {
			return err
		}
	}
	switch {
	case lost:
		return o.recover(ctx, claims)
	case begun:
		return o.eng.Drain(ctx)
	}
	return nil
}

// A claim is a lane that was taken over, and how it goes on.
type claim struct {
	sinks.LaneID
	committer.Opening
}

func (o *Output) claims(names []string, found []committer.Opening) []claim {
	claims := make([]claim, len(names))
	for i, name := range names {
		claims[i] = claim{sinks.LaneID{Sink: o.id, Lane: name}, found[i]}
	}
	return claims
}

// consider decides whether the source has to go back to what the store has, and
// refuses what could not be carried through. If the store has what this log never
// had, what the log has of other lanes is set aside: it may be of another history,
// which would be mixed with that of the store. It changes nothing but the claims.
func (o *Output) consider(ctx context.Context, claims []claim) (lost bool, err error) {
	var done uint64
	if o.log != nil {
		if lost, err = o.damaged(claims); err != nil {
			return lost, err
		}
		done, _ = o.log.Completed()
	}
	foreign := o.log != nil && o.log.Restarted()
	for _, c := range claims {
		foreign = foreign || c.Outcome == committer.Resume
		lost = lost || c.Mark.Checkpoint > done
	}
	if lost = lost || foreign; !lost {
		return false, nil
	}
	if f := o.opts.Flush; foreign && !f.NoReplay && f.Accept == 0 {
		for i := range claims {
			if claims[i].Outcome == committer.Connected {
				claims[i].Outcome = committer.Resume
			}
		}
	}
	plan, err := o.foresee(ctx, claims)
	if err != nil {
		return true, err
	}
	return true, o.repeatable(plan)
}

// foresee is the plan that recover will find, once what connects is in the store.
func (o *Output) foresee(ctx context.Context, claims []claim) (committer.Plan, error) {
	ledger, ok := o.sink.(sinks.Ledger)
	if !ok && len(claims) > 1 {
		return committer.Plan{}, fmt.Errorf("%w: the log is lost, and sink %s cannot list the marks of its %d lanes; restore the log",
			committer.ErrStateBehind, o.sink.Info().Name, len(claims))
	}
	var marks []sinks.LaneMark
	rows := make(map[string][]sinks.Audit)
	for _, c := range claims {
		m, pending := o.foretell(c)
		marks = append(marks, sinks.LaneMark{LaneID: c.LaneID, Mark: m})
		for _, b := range pending {
			rows[c.Lane] = append(rows[c.Lane], sinks.Audit{Batch: b})
		}
	}
	if !ok {
		return committer.Recover(marks, nil)
	}
	if err := committer.ReadRows(ctx, ledger, marks, rows); err != nil {
		return committer.Plan{}, err
	}
	return committer.Recover(marks, rows)
}

// foretell is the mark of a lane when its complete batches are in, and these.
func (o *Output) foretell(c claim) (sinks.Mark, []record.Batch) {
	m := c.Mark
	if c.Outcome != committer.Connected {
		return m, nil
	}
	pending := slices.DeleteFunc(o.log.Batches(c.String()), func(b record.Batch) bool { return b.Seq <= c.Mark.Seq })
	if n := len(pending); n > 0 {
		head := pending[n-1].Head()
		m.Seq, m.Chain, m.Checkpoint, m.Position, m.Partial = head.Seq, head.Chain, head.Checkpoint, head.Position, nil
	}
	return m, pending
}

// repeatable refuses a plan that the source cannot carry out.
func (o *Output) repeatable(plan committer.Plan) error {
	f := o.opts.Flush
	if !f.NoReplay || len(plan.Barriers) == 0 || f.Accept&committer.AcceptLoss != 0 {
		return nil
	}
	return fmt.Errorf("%w: there is no local log, the lanes in the store are apart, from checkpoint %d to checkpoint %d, and the source cannot be read again; "+
		"restore the log, or accept loss to go on without what some lanes lack",
		committer.ErrStateBehind, plan.Checkpoint, plan.Barriers[len(plan.Barriers)-1].Checkpoint)
}

// damaged reports whether the log has lost batches of a lane that were complete. The
// source has them, and goes back; if it cannot, that is an error. A lane that is
// reset anyway does not count.
func (o *Output) damaged(claims []claim) (bool, error) {
	reset := make(map[string]bool)
	for _, c := range claims {
		reset[c.String()] = c.Outcome == committer.Resume
	}
	for _, l := range o.log.Stat().Lanes {
		if l.Broken == nil || reset[l.Name] {
			continue
		}
		if f := o.opts.Flush; (f.Stateful || f.NoReplay) && f.Accept&committer.AcceptLoss == 0 {
			return true, fmt.Errorf("%w: %w", committer.ErrStateBehind, l.Broken)
		}
		o.opts.Logger.Error("the log has lost batches, the source goes back to what the store has", "output", o.id, "lane", l.Name, "error", l.Broken)
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
		if !o.hasSealed(r.Checkpoint) {
			o.opts.Logger.Warn("the log does not have the checkpoint that the state was restored from",
				"output", o.id, "restored", r.Checkpoint, "completed", done)
		} else if err := o.log.Complete(r.Checkpoint, r.Position); err != nil {
			return err
		}
	}
	if n := o.opts.Completed; n > done && o.hasSealed(n) && !o.repeating() {
		_, end := o.log.Completed()
		if p, ok := o.log.SealedEnd(n); ok {
			end = p
		}
		if err := o.log.Complete(n, end); err != nil {
			return err
		}
	}
	return o.log.Truncate()
}

// hasSealed reports whether the log has what was sealed for a checkpoint that is not
// complete there. It does not if the checkpoint was forgotten and a later one was sealed
// in its place.
func (o *Output) hasSealed(checkpoint uint64) bool {
	first, last := o.log.Sealed()
	return first <= checkpoint && checkpoint <= last
}

// repeating reports whether the run before ended while it repeated checkpoints. Of
// these the log may hold no batch, so that it does not know where they end.
func (o *Output) repeating() bool {
	done, _ := o.log.Completed()
	return slices.ContainsFunc(o.log.Lanes(), func(key string) bool {
		head, _, _ := o.log.Head(key)
		return head.Checkpoint > done
	})
}

// begin makes the place known at which a new sink id begins. It is complete in the log
// before the store hears of the sink id: were it the other way round, a crash in between
// would leave a sink id that is no longer new and stands at the beginning of the source.
func (o *Output) begin(names []string, b *Barrier) error {
	for _, name := range names {
		if _, err := o.addLane(name); err != nil {
			return err
		}
	}
	return o.sealEmpty(*b, names...)
}

// sealEmpty gives lanes, whose open batches are empty, a batch without records that ends
// at b, and completes it. The flush workers are told by Drain.
func (o *Output) sealEmpty(b Barrier, names ...string) error {
	for _, name := range names {
		l, err := o.lookUp(name)
		if err == nil {
			_, err = l.seal(b.Checkpoint, b.Position, true)
		}
		if err != nil {
			return err
		}
	}
	if err := o.log.SealDone(b.Checkpoint); err != nil {
		return err
	}
	return o.log.Complete(b.Checkpoint, b.Position)
}

// nothingComplete reports whether no batch of this sink id in the log counts.
func (o *Output) nothingComplete() bool {
	done, _ := o.log.Completed()
	return done == 0 && !slices.ContainsFunc(o.known(nil), func(name string) bool {
		head, _, _ := o.log.Head(sinks.LaneID{Sink: o.id, Lane: name}.String())
		return head.Seq > 0
	})
}

// ledgerMarks are the marks of this sink id, if the sink can list them.
func (o *Output) ledgerMarks(ctx context.Context) ([]sinks.LaneMark, error) {
	ledger, ok := o.sink.(sinks.Ledger)
	if !ok {
		return nil, nil
	}
	marks, err := ledger.Marks(ctx, o.id)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	return marks, nil
}

// known are the lanes of this sink id in the log, if there is one, and in marks.
func (o *Output) known(marks []sinks.LaneMark) []string {
	var names []string
	if o.log != nil {
		for _, key := range o.log.Lanes() {
			if name, ok := strings.CutPrefix(key, o.id+"/"); ok {
				names = append(names, name)
			}
		}
	}
	for _, m := range marks {
		names = append(names, m.Lane)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// recover starts from the ledger: the local log is lost, or older or younger
// than the store. What still connects goes to the store first; then the source
// goes back to the lane that is least far, and the lanes that are further repeat
// what they have.
func (o *Output) recover(ctx context.Context, claims []claim) error {
	if err := o.eng.Drain(ctx); err != nil {
		return err
	}
	plan, err := o.plan(ctx, claims)
	if err != nil {
		return err
	}
	if o.opts.Flush.NoReplay {
		plan = plan.Forward()
	}
	if err := o.unmoved(plan); err != nil {
		return err
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
		if part := p.Mark.Partial; part != nil {
			l.partial = part.Batch.Checkpoint
		}
	}
	if n := len(o.barriers); n > 0 {
		o.last = max(o.last, o.barriers[n-1].Checkpoint)
	}
	o.opts.Logger.Warn("starting from the ledger, without local log", "output", o.id,
		"checkpoint", plan.Checkpoint, "lanes", len(plan.Lanes), "barriers", len(plan.Barriers))
	return nil
}

// alone refuses a ledger with lanes that this output neither has nor is about to have:
// another process has taken them up since, and has a source position of its own.
func (o *Output) alone(names []string, ledger []sinks.LaneMark) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range ledger {
		if o.lanes[m.Lane] == nil && !slices.Contains(names, m.Lane) {
			return fmt.Errorf("%w: lane %s came into the ledger while it was read; stop one of the two, or give each a sink id of its own", ErrShared, m.LaneID)
		}
	}
	return nil
}

// unmoved refuses a plan that is of other lanes, or of other marks, than those that were
// taken over.
func (o *Output) unmoved(plan committer.Plan) error {
	marks := make([]sinks.LaneMark, len(plan.Lanes))
	for i, p := range plan.Lanes {
		marks[i] = sinks.LaneMark{LaneID: sinks.LaneID{Sink: o.id, Lane: p.Lane}, Mark: p.Mark}
	}
	if err := o.alone(nil, marks); err != nil {
		return err
	}
	for _, l := range o.eng.Status() {
		i := slices.IndexFunc(marks, func(m sinks.LaneMark) bool { return m.Lane == l.Lane })
		if i < 0 {
			return fmt.Errorf("%w: lane %s/%s, which ended with batch %d, is gone; start again, and if the store was not put back just now, see who else writes",
				ErrMoved, o.id, l.Lane, l.Mark.Seq)
		}
		if marks[i].Tip() != l.Mark.Tip() {
			return fmt.Errorf("%w: lane %s/%s went from batch %d to batch %d; start again, and if the store was not put back just now, see who else writes",
				ErrMoved, o.id, l.Lane, l.Mark.Seq, marks[i].Seq)
		}
	}
	return nil
}

// plan asks the ledger how to start. A sink that cannot list its ledger can have
// one lane only, and the mark of that says it all.
func (o *Output) plan(ctx context.Context, claims []claim) (committer.Plan, error) {
	if ledger, ok := o.sink.(sinks.Ledger); ok {
		return committer.ReadPlan(ctx, ledger, o.id)
	}
	m := sinks.LaneMark{LaneID: claims[0].LaneID}
	status := o.eng.Status()
	m.Mark = status[slices.IndexFunc(status, func(s committer.LaneStatus) bool { return s.Lane == m.Lane })].Mark
	return committer.Recover([]sinks.LaneMark{m}, nil)
}

// byName orders lanes as their names do.
func byName(a, b *Lane) int { return cmp.Compare(a.name, b.name) }
