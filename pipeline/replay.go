package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/committer"
)

// repeat does the checkpoints of an earlier run again, each at its place, for one branch
// after the other. It is done record by record on one goroutine: rare, and short as long
// as marks of idle lanes are carried forward.
func (j *job) repeat(ctx context.Context) error {
	for _, b := range j.branches {
		if len(b.barriers) == 0 {
			continue
		}
		j.log.Warn("local state was lost: repeating checkpoints", "output", j.name(b), "from", b.barriers[0].Checkpoint,
			"to", b.barriers[len(b.barriers)-1].Checkpoint)
		if err := j.move(ctx, b.at); err != nil {
			return err
		}
		for _, n := range b.barriers {
			if err := j.repeatOne(ctx, b, n); err != nil {
				return fmt.Errorf("repeat checkpoint %d: %w", n.Checkpoint, err)
			}
			j.last = n.Checkpoint
			j.repeated++
		}
		b.at = j.at
	}
	j.last = max(j.last, j.used)
	return nil
}

func (j *job) repeatOne(ctx context.Context, b *branch, n Barrier) error {
	target, err := j.p.place(n.Position)
	if err != nil {
		return err
	}
	if target.layout != j.at.layout {
		if err := j.advance(ctx, b, j.at.layout, target, func(s sourcePlace) uint64 { return s.since }); err != nil {
			return err
		}
		j.at = j.at.relaid(target.layout)
	}
	if err := j.advance(ctx, b, target.layout, target, func(s sourcePlace) uint64 { return s.count }); err != nil {
		return err
	}
	j.at.widest = target.widest
	if err := j.cut(ctx, b.outs, n.Checkpoint, func(int) []byte { return n.Position }); err != nil {
		return err
	}
	if err := j.sync(b.outs, n.Checkpoint); err != nil {
		return err
	}
	if len(j.branches) == 1 {
		if err := j.save(ctx, n.Checkpoint, n.Position); err != nil {
			return err
		}
	}
	for _, i := range b.outs {
		if err := j.completeOne(ctx, i, n.Checkpoint); err != nil {
			return err
		}
	}
	return nil
}

// advance reads every source up to a count of the target, under a layout.
func (j *job) advance(ctx context.Context, b *branch, l layout, target place, to func(sourcePlace) uint64) error {
	there := true
	for i, s := range j.at.sources {
		there = there && s.count == to(target.sources[i])
	}
	if there {
		return nil
	}
	route, err := routeOf(l.route, j.p.Route)
	if err != nil {
		return err
	}
	workers, err := j.workers(ctx, b.outs, l, route)
	if err != nil {
		return err
	}
	for i := range j.at.sources {
		if err := j.advanceSource(ctx, l, route, workers, i, to(target.sources[i])); err != nil {
			return err
		}
	}
	return j.keep(ctx, workers)
}

func (j *job) advanceSource(ctx context.Context, l layout, route Route, workers []*worker, source int, to uint64) error {
	at, in := &j.at.sources[source], j.p.Sources[source]
	if to < at.count {
		return fmt.Errorf("%w: source %s is at record %d already, the checkpoint is at %d", committer.ErrReplayDiffers, in.Name, at.count, to)
	}
	for at.count < to {
		recs, err := in.Source.Read(ctx, int(min(readLimit, to-at.count)))
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: source %s ends at record %d, the checkpoint is at %d", committer.ErrReplayDiffers, in.Name, at.count, to)
		}
		if err != nil {
			return fmt.Errorf("source %s: %w", in.Name, err)
		}
		for _, rec := range recs {
			if err := workers[l.lane(source, at.count, route, rec)].process(source, at.count, rec); err != nil {
				return err
			}
			at.count++
		}
		at.position = in.Source.Position()
	}
	for _, w := range workers {
		w.account()
	}
	return nil
}

// keep takes the states out of the workers of a phase that ends.
func (j *job) keep(ctx context.Context, workers []*worker) error {
	parts := make([][][]byte, len(workers))
	for i, w := range workers {
		var err error
		if parts[i], err = w.chain.snapshot(ctx, j.last+1); err != nil {
			return err
		}
	}
	j.states = j.p.collect(parts)
	return nil
}

// collect orders the snapshots of the lanes by stage.
func (p *Pipeline) collect(parts [][][]byte) states {
	all := states{}
	for i, s := range p.Stages {
		if !s.State {
			continue
		}
		for _, lane := range parts {
			all[s.Name] = append(all[s.Name], lane[i])
		}
	}
	return all
}

// cut seals the checkpoint on outputs at the same time, and leaves to sync what the
// lanes need not stand still for.
func (j *job) cut(ctx context.Context, outs []int, id uint64, position func(out int) []byte) error {
	return j.each(outs, func(i int) error {
		if c, ok := j.outs[i].(Cutter); ok {
			return c.Cut(ctx, id, position(i))
		}
		return j.outs[i].Seal(ctx, id, position(i))
	}, "seal", id)
}

// sync makes durable what was cut.
func (j *job) sync(outs []int, id uint64) error {
	return j.each(outs, func(i int) error {
		if c, ok := j.outs[i].(Cutter); ok {
			return c.Sync()
		}
		return nil
	}, "sync", id)
}

// each calls do for outputs at the same time.
func (j *job) each(outs []int, do func(out int) error, op string, id uint64) error {
	errs := make([]error, len(outs))
	var wg sync.WaitGroup
	for n, i := range outs {
		call := func() {
			if err := do(i); err != nil {
				errs[n] = fmt.Errorf("output %s: %s checkpoint %d: %w", j.p.Outputs[i].Name, op, id, err)
			}
		}
		if len(outs) == 1 {
			call()
		} else {
			wg.Go(call)
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// all are the numbers of all outputs.
func (j *job) all() []int {
	all := make([]int, len(j.outs))
	for i := range all {
		all[i] = i
	}
	return all
}

// save stores the checkpoint with the states, durably, and lets the stages forget
// what no stored checkpoint needs.
func (j *job) save(ctx context.Context, id uint64, position []byte) error {
	if j.p.Storage == nil {
		return nil
	}
	snap := checkpoint.Snapshot{ID: id, Taken: time.Now(), Parts: []checkpoint.Part{{Name: positionPart, Data: position}}}
	for _, s := range j.p.Stages {
		for lane, b := range j.states[s.Name] {
			snap.Parts = append(snap.Parts, checkpoint.Part{Name: statePart(s.Name, lane), Data: b})
		}
	}
	oldest, err := j.p.Storage.Save(ctx, snap)
	if err != nil {
		return err
	}
	j.oldest = oldest
	return nil
}

// workers makes the lanes of a layout that lead to some outputs, and brings their states
// back. Lanes of wider layouts are kept open at the outputs.
func (j *job) workers(ctx context.Context, outs []int, l layout, route Route) ([]*worker, error) {
	n := l.width(len(j.at.sources))
	j.p.stats.lanes.Store(int64(n))
	workers := make([]*worker, n)
	for i := range max(n, j.at.widest) {
		lanes, err := j.lanes(ctx, outs, i, n)
		if err != nil {
			return nil, err
		}
		if i < n {
			if workers[i], err = j.newWorker(ctx, Owner{Lane: i, Lanes: n, route: route}, lanes); err != nil {
				return nil, err
			}
		}
	}
	return workers, j.held(ctx, outs)
}

// held makes sure that outputs with one position have one owner.
func (j *job) held(ctx context.Context, outs []int) error {
	if !j.p.stateful() || len(outs) < 2 {
		return nil
	}
	for _, i := range outs {
		if h, ok := j.outs[i].(Holder); ok {
			if err := h.Held(ctx); err != nil {
				return fmt.Errorf("output %s: %w", j.p.Outputs[i].Name, err)
			}
		}
	}
	return nil
}

// lanes opens lane i at the outputs that have it: all have the first n.
func (j *job) lanes(ctx context.Context, outs []int, i, n int) ([]Lane, error) {
	lanes := make([]Lane, len(j.outs))
	for _, out := range outs {
		if i >= max(n, j.branchOf(out).at.widest) {
			continue
		}
		lane, err := j.outs[out].Lane(ctx, laneName(i))
		if err != nil {
			return nil, fmt.Errorf("output %s lane %s: %w", j.p.Outputs[out].Name, laneName(i), err)
		}
		lanes[out] = lane
	}
	return lanes, nil
}
