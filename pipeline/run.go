package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/walsink/walsink/checkpoint"
)

// ErrGrace says that a stopped run could not end within Grace.
var ErrGrace = errors.New("not ended within the grace period; nothing is lost, the next run goes on from the last completed checkpoint")

type eventKind uint8

const (
	errorEvent  eventKind = iota
	sourceEvent           // a source has sent barrier id, place says where
	laneEvent             // a lane has made cut id, parts is its state
	endEvent              // a source has ended
)

// An event is what a reader or a worker tells the coordinating goroutine.
type event struct {
	kind  eventKind
	index int
	id    uint64
	place sourcePlace
	parts [][]byte
	err   error
}

func post(ctx context.Context, events chan<- event, e event) {
	select {
	case events <- e:
	case <-ctx.Done():
	}
}

// A cut is what has been collected for a pending checkpoint.
type cut struct {
	sources []sourcePlace
	parts   [][][]byte
}

// A phase is readers and workers at work, and the goroutine that coordinates
// them. Its fields belong to that goroutine.
type phase struct {
	*job
	ctx      context.Context
	cancel   context.CancelCauseFunc
	readers  []*reader
	workers  []*worker
	events   chan event
	moved    chan struct{}
	coord    *checkpoint.Coordinator
	cuts     map[uint64]*cut
	counted  uint64 // records that coord knows of
	begun    uint64 // records before the phase
	covers   uint64 // the last completed checkpoint
	covered  uint64 // records before it
	left     int    // sources that have not ended
	stopping bool
	ending   bool      // the final checkpoint waits for those in flight
	untold   error     // of the last notice
	deadline time.Time // of the grace period
}

// run is the main phase: it reads until the end of all sources or of ctx, takes
// the final checkpoint, and drains.
func (j *job) run(ctx context.Context) error {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	ph := &phase{
		job: j, ctx: inner, cancel: cancel, cuts: map[uint64]*cut{}, left: len(j.at.sources),
		events: make(chan event, 64), moved: make(chan struct{}, 1), begun: j.at.records(), covered: j.at.records(),
	}
	var wg sync.WaitGroup
	unhook := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) }) // opening lanes waits for the stores
	err := ph.launch(&wg)
	unhook()
	if err != nil {
		return err
	}
	err = ph.loop(ctx)
	cancel(nil)
	wg.Wait()
	j.ended = ph.left == 0
	if err != nil {
		return err
	}
	return ph.drainAll(ctx)
}

// launch makes readers and workers, joins them, and starts them.
func (ph *phase) launch(wg *sync.WaitGroup) error {
	l, route := ph.at.layout, ph.p.Route
	workers, err := ph.job.workers(ph.ctx, ph.all(), l, route)
	if err != nil {
		return err
	}
	ph.workers = workers
	from := ph.from()
	for _, w := range workers {
		w.from = from
	}
	for i := range ph.at.sources {
		ph.readers = append(ph.readers, ph.newReader(i, l, route))
	}
	ph.connect(l)
	opts := ph.p.Checkpoints
	opts.Tasks = len(ph.readers) + len(ph.workers)
	ph.coord = checkpoint.NewCoordinator(opts, ph.last, time.Now())
	for _, r := range ph.readers {
		wg.Go(r.run)
	}
	for _, w := range ph.workers {
		wg.Go(w.run)
	}
	for i, out := range ph.outs {
		if w, ok := out.(Watcher); ok {
			wg.Go(func() { ph.watch(ph.p.Outputs[i].Name, w) })
		}
	}
	return nil
}

func (ph *phase) newReader(i int, l layout, route Route) *reader {
	r := &reader{
		job: ph.job, index: i, source: ph.p.Sources[i].Source, layout: l, route: route,
		ctx: ph.ctx, events: ph.events, moved: ph.moved, lanes: map[int]chan<- message{},
		open: make([]*batch, len(ph.workers)), quota: ph.p.Checkpoints.Records, at: ph.at.sources[i], limit: readLimit / 16, joins: ph.joins(i),
		notify: make(chan struct{}, 1),
	}
	r.renew()
	return r
}

// connect gives every worker a channel from each source that feeds it.
func (ph *phase) connect(l layout) {
	for i, w := range ph.workers {
		w.events = ph.events
		for s, r := range ph.readers {
			if l.shared || i/l.lanes == s {
				ch := make(chan message, channelDepth)
				w.inputs = append(w.inputs, ch)
				r.lanes[i] = ch
			}
		}
		w.align = checkpoint.NewAligner(len(w.inputs), ph.p.Mode)
	}
}

// watch reports an output that fails on its own.
func (ph *phase) watch(name string, w Watcher) {
	select {
	case <-w.Failed():
		post(ph.ctx, ph.events, event{err: fmt.Errorf("output %s: %w", name, w.Err())})
	case <-ph.ctx.Done():
	}
}

// loop coordinates until the final checkpoint is complete.
func (ph *phase) loop(stop context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	stopped := stop.Done()
	if _, err := ph.do(ph.first()); err != nil {
		return err
	}
	for {
		ph.arm(timer)
		var actions []checkpoint.Action
		var err error
		switch what, e := ph.await(stopped, timer.C); what {
		case phaseEnded:
			return context.Cause(ph.ctx)
		case heardEvent:
			actions, err = ph.handle(e)
		case timeCame:
			actions = ph.coord.Tick(time.Now())
		case runStopped:
			stopped = nil
			actions = ph.stop()
		case recordsMoved:
			actions = ph.count()
		}
		done := false
		if err == nil {
			done, err = ph.do(actions)
		}
		if err != nil && ph.ctx.Err() != nil {
			return context.Cause(ph.ctx)
		}
		if done || err != nil {
			return err
		}
	}
}

// A wakeUp is what the coordinating goroutine has waited for.
type wakeUp uint8

const (
	phaseEnded wakeUp = iota
	heardEvent
	timeCame
	runStopped
	recordsMoved
)

// await waits for what happens next. Of several things that have happened already it
// returns the first in the order of the constants, so that a run hangs on what
// happened and not on chance. Records come last, because they may never end.
func (ph *phase) await(stop <-chan struct{}, timer <-chan time.Time) (wakeUp, event) {
	select {
	case <-ph.ctx.Done():
		return phaseEnded, event{}
	default:
	}
	select {
	case e := <-ph.events:
		return heardEvent, e
	default:
	}
	select {
	case <-timer:
		return timeCame, event{}
	default:
	}
	select {
	case <-stop:
		return runStopped, event{}
	default:
	}
	select {
	case <-ph.ctx.Done():
		return phaseEnded, event{}
	case e := <-ph.events:
		return heardEvent, e
	case <-timer:
		return timeCame, event{}
	case <-stop:
		return runStopped, event{}
	case <-ph.moved:
		return recordsMoved, event{}
	}
}

// first takes a checkpoint at once for a source without end that has no position
// yet, so that the next start knows which files this one saw.
func (ph *phase) first() []checkpoint.Action {
	for i, in := range ph.p.Sources {
		if e, ok := in.Source.(Endless); ok && e.Endless() && ph.at.sources[i].position == nil {
			return ph.coord.Request(time.Now())
		}
	}
	return nil
}

func (ph *phase) arm(timer *time.Timer) {
	if at, ok := ph.coord.Deadline(); ok {
		timer.Reset(time.Until(at))
	} else {
		timer.Reset(time.Hour)
	}
	ph.p.stats.pending.Store(int64(len(ph.cuts)))
}

// count tells the coordinator how many records have been read since it was told.
func (ph *phase) count() []checkpoint.Action {
	now := ph.p.stats.records.Load()
	n := now - ph.counted
	ph.counted = now
	actions := ph.coord.Count(time.Now(), n)
	if limit := ph.p.OpenBytes; limit > 0 && ph.p.stats.openBytes.Load() >= limit {
		actions = append(actions, ph.coord.Request(time.Now())...)
	}
	return actions
}

// stop begins an orderly shutdown within the grace period.
func (ph *phase) stop() []checkpoint.Action {
	grace := ph.p.grace()
	ph.stopping, ph.deadline = true, time.Now().Add(grace)
	timer := time.AfterFunc(grace, func() { ph.cancel(ErrGrace) })
	context.AfterFunc(ph.ctx, func() { timer.Stop() })
	for _, r := range ph.readers {
		r.stop()
	}
	return ph.end()
}

func (ph *phase) handle(e event) ([]checkpoint.Action, error) {
	switch e.kind {
	case sourceEvent:
		if c := ph.cuts[e.id]; c != nil {
			c.sources[e.index] = e.place
		}
		return ph.coord.Ack(e.id, e.index)
	case laneEvent:
		if c := ph.cuts[e.id]; c != nil {
			c.parts[e.index] = e.parts
		}
		return ph.coord.Ack(e.id, len(ph.readers)+e.index)
	case endEvent:
		if ph.left--; ph.left > 0 || ph.stopping {
			return nil, nil
		}
		return ph.end(), nil
	}
	return nil, e.err
}

// end asks for the final checkpoint once nothing is in flight, unless it would be
// empty.
func (ph *phase) end() []checkpoint.Action {
	if ph.ending = len(ph.cuts) > 0; ph.ending {
		return nil
	}
	read := ph.begun + ph.p.stats.records.Load()
	if ph.left == 0 && read == ph.covered && !ph.workers[0].chain.finishes() {
		return []checkpoint.Action{{Verb: checkpoint.Finish}}
	}
	return ph.coord.End(time.Now())
}

// do carries out what the coordinator asks for. It is true after the final
// checkpoint.
func (ph *phase) do(actions []checkpoint.Action) (done bool, err error) {
	for len(actions) > 0 {
		a := actions[0]
		actions = actions[1:]
		var more []checkpoint.Action
		switch a.Verb {
		case checkpoint.Trigger:
			ph.trigger(a)
		case checkpoint.Store:
			more, err = ph.store(a.ID)
		case checkpoint.Complete:
			ph.announce(a.ID)
		case checkpoint.Abort:
			ph.abort(a.ID, a.Err)
		case checkpoint.Fail:
			return false, a.Err
		case checkpoint.Finish:
			return true, nil
		}
		if err != nil {
			return false, err
		}
		actions = append(actions, more...)
		if len(actions) == 0 && ph.ending {
			actions = ph.end()
		}
	}
	return false, nil
}

func (ph *phase) trigger(a checkpoint.Action) {
	ph.p.stats.openBytes.Store(0)
	ph.cuts[a.ID] = &cut{sources: make([]sourcePlace, len(ph.readers)), parts: make([][][]byte, len(ph.workers))}
	for _, r := range ph.readers {
		r.trigger(a.ID, a.Final)
	}
}

// store seals the outputs, for which all lanes stand still no longer than they must,
// and stores the checkpoint.
func (ph *phase) store(id uint64) ([]checkpoint.Action, error) {
	c := ph.cuts[id]
	at := ph.at
	at.sources = c.sources
	for _, b := range ph.branches {
		b.next = b.at.passed(at)
	}
	if err := ph.cut(ph.ctx, ph.all(), id, func(out int) []byte { return ph.branchOf(out).next.encode() }); err != nil {
		return ph.decline(id, err)
	}
	for _, w := range ph.workers {
		w.resume(id)
	}
	if err := ph.sync(ph.all(), id); err != nil {
		return ph.decline(id, err)
	}
	ph.states = ph.p.collect(c.parts)
	if err := ph.save(ph.ctx, id, ph.branches[0].next.encode()); err != nil {
		return ph.decline(id, err)
	}
	ph.covered = at.records()
	ph.at.sources = c.sources
	for _, b := range ph.branches {
		b.at = b.next
	}
	return ph.coord.Stored(time.Now(), id)
}

// decline aborts a checkpoint that could not be stored, or ends the run if an
// output cannot go on.
func (ph *phase) decline(id uint64, reason error) ([]checkpoint.Action, error) {
	for _, out := range ph.outs {
		if w, ok := out.(Watcher); ok && w.Err() != nil {
			return nil, reason
		}
	}
	if ph.ctx.Err() != nil {
		return nil, context.Cause(ph.ctx)
	}
	return ph.coord.Decline(time.Now(), id, reason), nil
}

// announce tells the outputs that a checkpoint is complete. A notice that fails
// is covered by the next one; the last one is repeated when the run ends.
func (ph *phase) announce(id uint64) {
	delete(ph.cuts, id)
	ph.last, ph.covers = id, id
	ph.p.stats.completed(id, time.Now())
	ph.log.Debug("checkpoint complete", "checkpoint", id, "records", ph.covered)
	if err := ph.workers[0].chain.retire(ph.oldest); err != nil {
		ph.log.Warn("old state is kept", "checkpoint", id, "error", err)
	}
	ph.untold = ph.complete(ph.ctx, id)
	if ph.untold != nil {
		ph.log.Warn("checkpoint is complete, an output was not told; the next one makes up for it", "checkpoint", id, "error", ph.untold)
	}
}

func (ph *phase) abort(id uint64, reason error) {
	delete(ph.cuts, id)
	ph.last = max(ph.last, id)
	ph.p.stats.abort(reason)
	ph.log.Warn("checkpoint aborted", "checkpoint", id, "reason", reason)
	for _, out := range ph.outs {
		if a, ok := out.(Aborter); ok {
			if err := a.Abort(ph.ctx, id); err != nil {
				ph.log.Warn("abort checkpoint", "checkpoint", id, "error", err)
			}
		}
	}
	for _, r := range ph.readers {
		r.abort(id)
	}
	for _, w := range ph.workers {
		w.abort(id)
	}
}

// drainAll waits for the stores: without bound at the end of the input, for what
// is left of the grace period after a stop.
func (ph *phase) drainAll(ctx context.Context) error {
	if ctx.Err() != nil {
		deadline := ph.deadline
		if deadline.IsZero() {
			deadline = time.Now().Add(ph.p.grace())
		}
		bound, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), deadline, ErrGrace)
		defer cancel()
		ctx = bound
	}
	if ph.untold != nil {
		if err := ph.complete(ctx, ph.covers); err != nil {
			return err
		}
	}
	if err := ph.drain(ctx); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}
