package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
)

// A branch is outputs that have one position: all of them if there is state, which has
// but one; else one output, so that each goes on where it stands. Records before that
// place are not given to it.
type branch struct {
	outs     []int // index in job.outs
	at       place
	next     place     // of the checkpoint that is being stored
	barriers []Barrier // to be repeated, ascending
}

// name names the branch in messages.
func (j *job) name(b *branch) string { return j.p.Outputs[b.outs[0]].Name }

// branchOf returns the branch of an output.
func (j *job) branchOf(out int) *branch {
	for _, b := range j.branches {
		if slices.Contains(b.outs, out) {
			return b
		}
	}
	return nil
}

// branch makes the branches of the open outputs. position is that of the newest
// checkpoint in storage, which counts where an output does not know better.
func (j *job) branch(restored uint64, position []byte) error {
	stored := &branch{}
	for i, out := range j.outs {
		r, ok := out.(Resumer)
		if ok {
			j.used = max(j.used, r.Last())
		}
		if ok && !j.p.stateful() {
			b := &branch{outs: []int{i}, barriers: r.Barriers()}
			var err error
			if b.at, err = j.p.place(r.Position()); err != nil {
				return err
			}
			j.branches = append(j.branches, b)
			continue
		}
		stored.outs = append(stored.outs, i)
		if ok {
			if err := stored.join(j.p.Outputs[i].Name, r, restored, position); err != nil {
				return err
			}
		}
	}
	if len(stored.outs) > 0 {
		j.used = max(j.used, restored)
		var err error
		if stored.at, err = j.p.place(position); err != nil {
			return err
		}
		j.branches = append([]*branch{stored}, j.branches...)
	}
	for _, b := range j.branches {
		slices.SortFunc(b.barriers, func(x, y Barrier) int { return cmp.Compare(x.Checkpoint, y.Checkpoint) })
	}
	j.level()
	return nil
}

// join checks that an output can go on from the position of the branch, and takes its
// barriers over.
func (b *branch) join(name string, r Resumer, restored uint64, position []byte) error {
	barriers := r.Barriers()
	if !bytes.Equal(r.Position(), position) {
		covered := len(barriers) > 0 && barriers[0].Checkpoint > restored && barriers[len(barriers)-1].Checkpoint >= r.Last()
		if !covered {
			return fmt.Errorf("%w: output %s is at checkpoint %d, the stored checkpoint is %d; restore the checkpoint directory that belongs to it, or start over under another sink id",
				committer.ErrStateBehind, name, r.Last(), restored)
		}
	}
	for _, n := range barriers {
		i := slices.IndexFunc(b.barriers, func(o Barrier) bool { return o.Checkpoint == n.Checkpoint })
		if i < 0 {
			b.barriers = append(b.barriers, n)
		} else if !bytes.Equal(b.barriers[i].Position, n.Position) {
			return fmt.Errorf("%w: output %s has checkpoint %d at another position than the other outputs",
				committer.ErrStateBehind, name, n.Checkpoint)
		}
	}
	return nil
}

// level lifts every branch to the one that is furthest in a source that cannot be read
// again: what it misses there is nowhere.
func (j *job) level() {
	for i, in := range j.p.Sources {
		r, ok := in.Source.(Replayer)
		if !ok {
			continue
		}
		if again, _ := r.Replayable(); again {
			continue
		}
		furthest := j.branches[0].at.sources[i]
		for _, b := range j.branches {
			if b.at.sources[i].count > furthest.count {
				furthest = b.at.sources[i]
			}
		}
		for _, b := range j.branches {
			b.at.sources[i] = furthest
		}
	}
}

// lowest is where the sources have to begin: of each, where the branch stands that is
// least far.
func (j *job) lowest() place {
	low := j.branches[0].at.clone()
	for _, b := range j.branches[1:] {
		low.widest = max(low.widest, b.at.widest)
		for i, s := range b.at.sources {
			if s.count < low.sources[i].count || s.count == low.sources[i].count && low.sources[i].position == nil {
				low.sources[i] = s
			}
		}
	}
	return low
}

// from returns, by output and source, the number of the first record that the output
// gets; nil if all get everything that is read.
func (j *job) from() [][]uint64 {
	from, needed := make([][]uint64, len(j.outs)), false
	for i := range j.outs {
		for s, source := range j.branchOf(i).at.sources {
			from[i] = append(from[i], source.count)
			needed = needed || source.count > j.at.sources[s].count
		}
	}
	if !needed {
		return nil
	}
	return from
}

// joins are the places of a source at which outputs come in that are further than the
// source.
func (j *job) joins(source int) []join {
	var joins []join
	for _, b := range j.branches {
		if s := b.at.sources[source]; s.count > j.at.sources[source].count {
			joins = append(joins, join{j.name(b), s.count, s.position})
		}
	}
	slices.SortFunc(joins, func(a, b join) int { return cmp.Compare(a.count, b.count) })
	return joins
}

// openOutputs opens all outputs, those that are new last, when it is known where the
// others stand.
func (j *job) openOutputs(ctx context.Context, restored Restored) error {
	j.outs = make([]Output, len(j.p.Outputs))
	restored.RefuseNew = len(j.outs) > 1
	var fresh []int
	for i := range j.p.Outputs {
		err := j.openOutput(ctx, i, restored)
		if restored.RefuseNew && errors.Is(err, walsink.ErrNew) {
			fresh = append(fresh, i)
			continue
		}
		if err != nil {
			return err
		}
		r, ok := j.outs[i].(Resumer)
		switch {
		case ok && !j.p.stateful():
			restored.Completed = max(restored.Completed, r.Last())
		case ok: // a refusal comes before the next output completes the checkpoint
			if err := new(branch).join(j.p.Outputs[i].Name, r, restored.Checkpoint, restored.Position); err != nil {
				return err
			}
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	begin, err := j.begin(restored)
	if err != nil {
		return err
	}
	restored.RefuseNew = false
	for _, i := range fresh {
		told := restored
		switch s := j.p.Outputs[i]; {
		case begin == nil || s.Start == StartBeginning:
		case s.Start == StartNow:
			told.Begin, told.Checkpoint, told.Position = begin, 0, nil
		default: // another process may have begun it since
			told.RefuseNew = true
		}
		err := j.openOutput(ctx, i, told)
		if errors.Is(err, walsink.ErrNew) {
			return fmt.Errorf("%w: output %s: another output is at checkpoint %d; say whether it begins at the beginning or now",
				ErrNewOutput, j.p.Outputs[i].Name, begin.Checkpoint)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *job) openOutput(ctx context.Context, i int, told Restored) error {
	out, err := j.p.Outputs[i].Open(ctx, told)
	if err != nil {
		return fmt.Errorf("open output %s: %w", j.p.Outputs[i].Name, err)
	}
	j.outs[i] = out
	return nil
}

// begin is where an output begins that starts now: behind everything that any other
// output has. It is nil if none has anything.
func (j *job) begin(restored Restored) (*Barrier, error) {
	if j.p.stateful() {
		if restored.Checkpoint == 0 {
			return nil, nil
		}
		return &Barrier{Checkpoint: restored.Checkpoint, Position: restored.Position}, nil
	}
	var at place
	var last uint64
	for _, out := range j.outs {
		r, ok := out.(Resumer)
		if !ok || r.Last() == 0 {
			continue
		}
		position := r.Position()
		if n := r.Barriers(); len(n) > 0 {
			position = n[len(n)-1].Position
		}
		theirs, err := j.p.place(position)
		if err != nil {
			return nil, err
		}
		if last == 0 {
			at = theirs
		}
		at, last = at.passed(theirs), max(last, r.Last())
	}
	if last == 0 {
		return nil, nil
	}
	at = at.relaid(j.p.layout())
	at.widest = at.layout.width(len(at.sources))
	return &Barrier{Checkpoint: last, Position: at.encode()}, nil
}

// laneNames are the lanes of the pipeline's own layout.
func (p *Pipeline) laneNames() []string {
	var names []string
	for i := range p.layout().width(len(p.Sources)) {
		names = append(names, laneName(i))
	}
	return names
}
