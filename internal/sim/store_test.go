package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// A store is a destination, with what is on its way to it.
type store struct {
	*memory.Store
	flying  []*flight
	saved   []memory.Snapshot
	ghosts  map[sinks.LaneID][][]byte // rows that a planted bug has written beside the ledger
	changed bool
}

// A flight is a step that was sent and may still arrive.
type flight struct {
	lane   sinks.Lane
	step   *sinks.Step
	serial int // of the process that sent it
}

// land lets a step arrive.
func (s *store) land(f *flight) (sinks.Result, error) {
	s.changed = true
	res, err := f.lane.Flush(context.Background(), f.step)
	kind := sinks.KindOf(err)
	if plant.Active(plant.NoFence) && (kind == sinks.Fenced || kind == sinks.Moved) {
		s.haunt(f.step)
		return res, nil
	}
	return res, err
}

// haunt writes the rows of a step and no mark.
func (s *store) haunt(step *sinks.Step) {
	if s.ghosts == nil {
		s.ghosts = map[sinks.LaneID][][]byte{}
	}
	for run := range step.Runs {
		for _, rec := range run.Block.All() {
			s.ghosts[step.ID] = append(s.ghosts[step.ID], slices.Clone(rec))
		}
	}
}

// send puts a step on its way. Processes that are killed together send together, so
// the order is that of the processes.
func (s *store) send(w *world, f *flight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.flying = append(s.flying, f)
	slices.SortStableFunc(s.flying, func(a, b *flight) int {
		return cmp.Or(strings.Compare(a.step.ID.Lane, b.step.ID.Lane), cmp.Compare(a.serial, b.serial))
	})
}

// settle decides what has become of the steps of a lane that are on their way.
func (s *store) settle(id sinks.LaneID, bits uint64) {
	s.flying = slices.DeleteFunc(s.flying, func(f *flight) bool {
		if f.step.ID != id {
			return false
		}
		if bits&1 == 1 {
			_, _ = s.land(f) // nobody hears of it
		}
		bits >>= 1
		return true
	})
}

// rows are what a reader sees of a lane.
func (s *store) rows(id sinks.LaneID) [][]byte { return append(s.Records(id), s.ghosts[id]...) }

// A sink is a client of a store in one process.
type sink struct {
	*memory.Sink
	proc  *proc
	store *store
	index int
}

func (s *sink) actor(id sinks.LaneID) string { return id.String() }

// answer turns a verdict into the error that a client would see, nil if it sees
// none. A call to a store is never answered after the death of the process.
func answer(op string, id sinks.LaneID, v verdict, err error) error {
	kind := sinks.Ambiguous
	switch {
	case errors.Is(err, errDead):
		return err
	case err != nil:
		return &sinks.Error{Kind: sinks.Cancelled, Op: op, Lane: id, Err: err}
	case v.fault == "":
		return nil
	case v.fault == "transient":
		kind = sinks.Transient
	case v.fault == "cancelled":
		kind = sinks.Cancelled
	}
	return &sinks.Error{Kind: kind, Op: op, Lane: id, Err: fmt.Errorf("%s: %w", v.fault, errInjected)}
}

func (s *sink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	v, err := s.proc.wait(ctx, "acquire", s.actor(id))
	err = answer("acquire", id, v, err)
	if err != nil && v.fault != "acquire unanswered" {
		return nil, sinks.Mark{}, err
	}
	s.store.settle(id, v.n)
	l, m, aerr := s.Sink.Acquire(context.Background(), id)
	if err = errors.Join(err, aerr); err != nil {
		return nil, m, err
	}
	return &laneHandle{Lane: l, sink: s, id: id}, m, nil
}

func (s *sink) Marks(ctx context.Context, id string) ([]sinks.LaneMark, error) {
	v, err := s.proc.wait(ctx, "marks", id)
	if err := answer("marks", sinks.LaneID{}, v, err); err != nil {
		return nil, err
	}
	return s.Sink.Marks(ctx, id)
}

func (s *sink) Audit(ctx context.Context, id sinks.LaneID, after uint64) iter.Seq2[sinks.Audit, error] {
	return s.Sink.Audit(ctx, id, after)
}

// A laneHandle is an acquired lane.
type laneHandle struct {
	sinks.Lane
	sink *sink
	id   sinks.LaneID
}

func (l *laneHandle) Mark(ctx context.Context) (sinks.Mark, error) {
	v, err := l.sink.proc.wait(ctx, "mark", l.sink.actor(l.id))
	if err := answer("mark", l.id, v, err); err != nil {
		return sinks.Mark{}, err
	}
	l.sink.store.settle(l.id, v.n)
	return l.Lane.Mark(context.Background())
}

func (l *laneHandle) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	copied, err := l.copy(step)
	if err != nil {
		return sinks.Result{}, err
	}
	p, s := l.sink.proc, l.sink.store
	f := &flight{l.Lane, copied, p.serial}
	v, err := p.wait(ctx, "flush", l.sink.actor(l.id))
	failure := answer("flush", l.id, v, err)
	switch {
	case err != nil && v.n%3 == 0 || v.fault == "late":
		if plant.Active(plant.LedgerApart) && errors.Is(err, errDead) {
			s.haunt(copied)
			s.changed = true
			break
		}
		s.send(p.w, f)
	case v.fault == "lost after" || v.fault == "cancelled" && v.n&1 == 1:
		_, _ = s.land(f) // the answer is lost, whatever it is
	case v.fault == "" && err == nil:
		l.admissible(step)
		s.settle(l.id, v.n)
		return s.land(f)
	}
	return sinks.Result{}, failure
}

// admissible checks that all that is made visible belongs to a checkpoint that is
// complete, and would survive a power cut.
func (l *laneHandle) admissible(step *sinks.Step) {
	p := l.sink.proc
	for _, b := range step.Batches {
		if b.Checkpoint > p.disk.complete {
			p.w.fail("lane %s: batch %d of checkpoint %d becomes visible, complete is %d", l.id, b.Seq, b.Checkpoint, p.disk.complete)
		}
		for _, log := range p.disk.open {
			if log.dir == logDir(l.sink.index) && !log.durable(l.id.String(), b.Seq) {
				p.w.fail("lane %s: batch %d of checkpoint %d becomes visible, and is not durable", l.id, b.Seq, b.Checkpoint)
			}
		}
	}
}

// copy reads the step, whose records are valid for the call only.
func (l *laneHandle) copy(step *sinks.Step) (*sinks.Step, error) {
	c := *step
	c.Batches, c.Dead = slices.Clone(step.Batches), slices.Clone(step.Dead)
	for i, d := range c.Dead {
		c.Dead[i].Record = slices.Clone(d.Record)
	}
	type run struct {
		sinks.Run
		data []byte
	}
	var runs []run
	for r, err := range step.Runs {
		if err != nil {
			return nil, err
		}
		var b record.Builder
		for _, rec := range r.Block.All() {
			if err := b.Append(rec); err != nil {
				return nil, err
			}
		}
		runs = append(runs, run{r, slices.Clone(b.Finish(record.NewHasher()))})
	}
	c.Runs = func(yield func(sinks.Run, error) bool) {
		for _, r := range runs {
			block, err := record.Decode(r.data, record.Block{})
			r.Block = block
			if !yield(r.Run, err) {
				return
			}
		}
	}
	return &c, nil
}
