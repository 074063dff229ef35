package pipeline

import (
	"bytes"
	"cmp"
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
	outs    []Output
	promise Promise

	at       place  // where the sources stand between two phases
	last     uint64 // highest checkpoint that is complete or will never be
	used     uint64 // highest checkpoint id that any output knows
	restored uint64 // checkpoint that storage had, if it decides
	states   states // as of at
	barriers []Barrier
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
	snap, err := j.load(ctx)
	if err != nil {
		return j, err
	}
	if err := j.openOutputs(ctx, snap); err != nil {
		return j, err
	}
	j.promise = p.promise(j.outs)
	if err := p.require(j.promise); err != nil {
		return j, err
	}
	j.log.Info("guarantee", "guarantee", j.promise.String())
	position, err := j.resume(snap)
	if err != nil {
		return j, err
	}
	if j.at, err = p.place(position); err != nil {
		return j, err
	}
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

func (j *job) openOutputs(ctx context.Context, snap checkpoint.Snapshot) error {
	var restored Restored
	if j.p.Storage != nil && (j.p.stateful() || len(j.p.Outputs) > 1) {
		restored.Checkpoint = snap.ID
		restored.Position, _ = snap.Part(positionPart)
	}
	for _, s := range j.p.Outputs {
		out, err := s.Open(ctx, restored)
		if err != nil {
			return fmt.Errorf("open output %s: %w", s.Name, err)
		}
		j.outs = append(j.outs, out)
	}
	return nil
}

// resume finds the position to start at, the checkpoints to repeat, and the
// highest checkpoint id that was used.
func (j *job) resume(snap checkpoint.Snapshot) ([]byte, error) {
	position, _ := snap.Part(positionPart)
	decided := j.p.stateful() || len(j.outs) > 1
	if decided {
		j.restored = snap.ID
	}
	j.last = snap.ID
	for i, out := range j.outs {
		r, ok := out.(Resumer)
		if !ok {
			continue
		}
		if !decided {
			position, decided = r.Position(), true
			j.last = 0
		}
		if err := j.join(j.p.Outputs[i].Name, r, snap.ID, position); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(j.barriers, func(a, b Barrier) int { return cmp.Compare(a.Checkpoint, b.Checkpoint) })
	if len(j.barriers) == 0 {
		j.last = max(j.last, j.used)
	}
	return position, nil
}

// join checks that an output can go on from the position, and takes its
// barriers over.
func (j *job) join(name string, r Resumer, restored uint64, position []byte) error {
	barriers := r.Barriers()
	if !bytes.Equal(r.Position(), position) {
		barriers = slices.DeleteFunc(slices.Clone(barriers), func(b Barrier) bool { return b.Checkpoint <= restored })
		covered := len(barriers) > 0 && barriers[len(barriers)-1].Checkpoint >= r.Last()
		if !covered {
			return fmt.Errorf("%w: output %s is at checkpoint %d, the stored checkpoint is %d; restore the checkpoint directory that belongs to it, or start over under another sink id",
				committer.ErrStateBehind, name, r.Last(), restored)
		}
	}
	for _, b := range barriers {
		i := slices.IndexFunc(j.barriers, func(o Barrier) bool { return o.Checkpoint == b.Checkpoint })
		if i < 0 {
			j.barriers = append(j.barriers, b)
		} else if !bytes.Equal(j.barriers[i].Position, b.Position) {
			return fmt.Errorf("%w: output %s has checkpoint %d at another position than the other outputs",
				committer.ErrStateBehind, name, b.Checkpoint)
		}
	}
	j.used = max(j.used, r.Last())
	return nil
}

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

func (j *job) openSources(ctx context.Context) error {
	for i, in := range j.p.Sources {
		if err := in.Source.Open(ctx, j.at.sources[i].position); err != nil {
			return fmt.Errorf("open source %s: %w", in.Name, err)
		}
	}
	return nil
}

// close closes sources and outputs.
func (j *job) close() error {
	var errs []error
	for _, in := range j.p.Sources {
		if err := in.Source.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close source %s: %w", in.Name, err))
		}
	}
	for i, out := range j.outs {
		c, ok := out.(io.Closer)
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

// work runs the phases: what an earlier run did is repeated under its layout,
// then the layout changes if it must, then the rest is read.
func (j *job) work(ctx context.Context) error {
	if err := j.settle(ctx); err != nil {
		return err
	}
	if err := j.repeat(ctx); err != nil {
		return err
	}
	if want := j.p.layout(); j.at.layout != want {
		j.log.Info("lanes change", "from", j.at.layout.lanes, "to", want.lanes, "route", want.route)
		if err := j.drain(ctx); err != nil {
			return fmt.Errorf("drain before the lanes change: %w", err)
		}
		j.at = j.at.relaid(want)
	}
	return j.run(ctx)
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

func (j *job) complete(ctx context.Context, id uint64) error {
	var errs []error
	for i, out := range j.outs {
		if err := out.Complete(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("output %s: complete checkpoint %d: %w", j.p.Outputs[i].Name, id, err))
		}
	}
	return errors.Join(errs...)
}
