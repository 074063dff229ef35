package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/committer"
)

// A job is a Pipeline that is running.
type job struct {
	p       *Pipeline
	log     *slog.Logger
	outs    []Output // as Pipeline.Outputs; nil if not opened
	promise Promise

	branches []*branch
	at       place  // where the sources stand between two phases
	opened   bool   // the sources are
	last     uint64 // highest checkpoint that is complete or will never be
	used     uint64 // highest checkpoint id that any output knows
	restored uint64 // checkpoint that storage had, if it decides
	states   states // as of at
	repeated uint64
	oldest   uint64 // lowest checkpoint that storage still has
	ended    bool
}

// positionPart is the part of a snapshot that holds the position; states follow
// under "state/NAME/LANE".
const positionPart = "position"

// start opens everything and finds out where to go on. The job is never nil.
func (p *Pipeline) start(ctx context.Context) (*job, error) {
	j := &job{p: p, log: p.logger(), states: states{}}
	if err := p.require(p.promise(nil)); err != nil {
		return j, err
	}
	snap, err := j.load(ctx)
	if err != nil {
		return j, err
	}
	var restored Restored
	position, _ := snap.Part(positionPart)
	if p.stateful() {
		restored = Restored{Checkpoint: snap.ID, Position: position, Stateful: true}
		j.restored, j.last = snap.ID, snap.ID
	}
	restored.Lanes = p.laneNames()
	if err := j.openOutputs(ctx, restored); err != nil {
		return j, err
	}
	j.promise = p.promise(j.outs)
	if err := p.require(j.promise); err != nil {
		return j, err
	}
	j.log.Info("guarantee", "guarantee", j.promise.String())
	if err := j.branch(snap.ID, position); err != nil {
		return j, err
	}
	j.at = j.lowest()
	return j, j.openSources(ctx)
}

// load reads the newest snapshot.
func (j *job) load(ctx context.Context) (checkpoint.Snapshot, error) {
	if j.p.Storage == nil {
		return checkpoint.Snapshot{}, nil
	}
	snap, damaged, err := j.p.Storage.Load(ctx)
	for _, d := range damaged {
		j.log.Warn("checkpoint damaged, the one before it is used", "error", d)
	}
	if err != nil {
		return snap, err
	}
	for _, s := range j.p.Stages {
		if !s.State {
			continue
		}
		for lane := 0; ; lane++ {
			b, ok := snap.Part(statePart(s.Name, lane))
			if !ok {
				break
			}
			j.states[s.Name] = append(j.states[s.Name], b)
		}
	}
	return snap, nil
}

func statePart(stage string, lane int) string { return "state/" + stage + "/" + laneName(lane) }

// place decodes a position and compares it with the sources.
func (p *Pipeline) place(position []byte) (place, error) {
	if position == nil {
		at := place{sources: make([]sourcePlace, len(p.Sources))}
		for i, in := range p.Sources {
			at.sources[i].name = in.Name
		}
		return at.relaid(p.layout()), nil
	}
	at, err := decodePlace(position)
	if err != nil {
		return at, err
	}
	return at, p.sameSources(at)
}

func (p *Pipeline) sameSources(at place) error {
	var have, want []string
	for _, s := range at.sources {
		want = append(want, s.name)
	}
	for _, in := range p.Sources {
		have = append(have, in.Name)
	}
	if !slices.Equal(have, want) {
		return fmt.Errorf("%w: the position is of sources %q, this pipeline reads %q; use another sink id for another job",
			committer.ErrForeignPosition, want, have)
	}
	return nil
}

// openSources opens the sources where j.at says.
func (j *job) openSources(ctx context.Context) error {
	j.opened = true
	for i, in := range j.p.Sources {
		if err := in.Source.Open(ctx, j.at.sources[i].position); err != nil {
			return fmt.Errorf("open source %s: %w", in.Name, err)
		}
	}
	return nil
}

// move makes the sources stand at a place.
func (j *job) move(ctx context.Context, to place) error {
	there := j.opened && slices.EqualFunc(j.at.sources, to.sources, func(a, b sourcePlace) bool { return a.count == b.count })
	j.at = to
	if there {
		return nil
	}
	if err := j.closeSources(); err != nil {
		return err
	}
	return j.openSources(ctx)
}

func (j *job) closeSources() error {
	var errs []error
	for _, in := range j.p.Sources {
		if err := in.Source.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close source %s: %w", in.Name, err))
		}
	}
	return errors.Join(errs...)
}

// close closes sources and outputs.
func (j *job) close() error {
	errs := []error{j.closeSources()}
	for i, out := range j.outs {
		c, ok := out.(io.Closer) // not true of one that could not be opened
		if !ok {
			continue
		}
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close output %s: %w", j.p.Outputs[i].Name, err))
		}
	}
	j.outs = nil
	return errors.Join(errs...)
}

// work runs the phases: what an earlier run did is repeated under its layout, for each
// branch; then the layout changes if it must; then the rest is read, from where the
// branch stands that is least far.
func (j *job) work(ctx context.Context) error {
	if err := j.settle(ctx); err != nil {
		return err
	}
	if err := j.repeat(ctx); err != nil {
		return err
	}
	if err := j.relay(ctx); err != nil {
		return err
	}
	low := j.lowest()
	low.layout = j.p.layout()
	if err := j.move(ctx, low); err != nil {
		return err
	}
	return j.run(ctx)
}

// relay brings every branch under the layout of the pipeline.
func (j *job) relay(ctx context.Context) error {
	want, drained := j.p.layout(), false
	for _, b := range j.branches {
		if b.at.layout == want {
			continue
		}
		j.log.Info("lanes change", "output", j.name(b), "from", b.at.layout.lanes, "to", want.lanes, "route", want.route)
		if !drained {
			if err := j.drain(ctx); err != nil {
				return fmt.Errorf("drain before the lanes change: %w", err)
			}
			drained = true
		}
		b.at = b.at.relaid(want)
	}
	return nil
}

// settle repeats the notice of the restored checkpoint, which may have been lost.
func (j *job) settle(ctx context.Context) error {
	if j.restored == 0 {
		return nil
	}
	return j.complete(ctx, j.restored)
}

func (j *job) drain(ctx context.Context) error {
	var errs []error
	for i, out := range j.outs {
		if err := out.Drain(ctx); err != nil {
			errs = append(errs, fmt.Errorf("output %s: %w", j.p.Outputs[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// complete tells the outputs, in order, that a checkpoint is complete. Of outputs with
// positions of their own none hears of it before the one in front of it: at the next
// start that one tells the others.
func (j *job) complete(ctx context.Context, id uint64) error {
	var errs []error
	for i := range j.outs {
		if err := j.completeOne(ctx, i, id); err != nil {
			errs = append(errs, err)
			if len(j.branches) > 1 {
				break
			}
		}
	}
	return errors.Join(errs...)
}

func (j *job) completeOne(ctx context.Context, i int, id uint64) error {
	if err := j.outs[i].Complete(ctx, id); err != nil {
		return fmt.Errorf("output %s: complete checkpoint %d: %w", j.p.Outputs[i].Name, id, err)
	}
	return nil
}
