package pipeline

import (
	"context"
	"fmt"
)

// Emit hands a record to the next stage. It copies or uses up rec before it
// returns. Its error is to be returned as it is.
type Emit func(rec []byte) error

// A Func is a transform without state: from one record to none, one or several.
// It must not keep rec. It is called from several goroutines. Its result may
// depend on nothing but rec: a replay is compared with what is in the store.
type Func func(rec []byte, emit Emit) error

// A Transform handles the records of one lane, one at a time.
type Transform interface {
	// Process handles one record. It must not keep rec.
	Process(rec []byte, emit Emit) error
}

// A Stateful is a Transform whose state is part of the checkpoint.
type Stateful interface {
	Transform
	// Snapshot returns the state as it is after the last Process, or a handle to
	// where it durably is. The next Process comes after Snapshot has returned.
	Snapshot(ctx context.Context, checkpoint uint64) ([]byte, error)
	// Restore brings back what the lanes of the earlier run returned from Snapshot,
	// in their order; a lane takes what belongs to it. It is called once before
	// Process, with no parts at a start from nothing.
	Restore(ctx context.Context, checkpoint uint64, parts [][]byte) error
}

// A Finisher is an optional ability of a Transform: emitting something at the
// end of the input, before the final checkpoint.
type Finisher interface {
	Finish(emit Emit) error
}

// A Retirer is an optional ability of a Stateful: being told that no checkpoint
// below oldest will be restored any more. One lane is told, at any time.
type Retirer interface {
	Retire(oldest uint64) error
}

// A Stage is one step of the way from sources to outputs. Exactly one of Func and
// New is set.
type Stage struct {
	// Name is for messages, and it names the state in a checkpoint.
	Name string
	// Func is a transform without state.
	Func Func
	// New makes the transform of one lane out of so many. The route says which keys
	// the lane gets.
	New func(lane Owner) (Transform, error)
	// State says that what New makes is Stateful.
	State bool
}

// An Owner says which keys a lane owns.
type Owner struct {
	// Lane is the number of the lane, Lanes how many there are.
	Lane, Lanes int
	route       Route
}

// Owns reports whether records with this key come to the lane.
func (o Owner) Owns(key []byte) bool { return o.Lanes == 1 || owner(key, o.Lanes) == o.Lane }

// Key returns the key of a record as the route sees it; nil with a route that has
// no key. It may alias the record.
func (o Owner) Key(rec []byte) []byte {
	if o.route.key == nil {
		return nil
	}
	return o.route.key(rec)
}

// funcTransform makes a Transform of a Func.
type funcTransform struct{ f Func }

func (t funcTransform) Process(rec []byte, emit Emit) error { return t.f(rec, emit) }

// A chain is the transforms of one lane and what they lead to.
type chain struct {
	stages     []Stage
	transforms []Transform
	emits      []Emit // emits[i] is what transform i emits to
	head       Emit
}

// newChain makes the transforms of a lane. Records that come out at the end go to
// out.
func newChain(stages []Stage, lane Owner, out Emit) (*chain, error) {
	c := &chain{stages: stages, transforms: make([]Transform, len(stages)), emits: make([]Emit, len(stages))}
	next := out
	for i := len(stages) - 1; i >= 0; i-- {
		s := stages[i]
		t := Transform(funcTransform{s.Func})
		if s.New != nil {
			var err error
			if t, err = s.New(lane); err != nil {
				return nil, fmt.Errorf("transform %s lane %s: %w", s.Name, laneName(lane.Lane), err)
			}
		}
		if _, ok := t.(Stateful); ok != s.State {
			return nil, fmt.Errorf("transform %s: Stage.State is %v, and the transform says otherwise", s.Name, s.State)
		}
		c.transforms[i], c.emits[i] = t, next
		next = c.step(i)
	}
	c.head = next
	return c, nil
}

// step is the Emit that leads into transform i.
func (c *chain) step(i int) Emit {
	t, emit := c.transforms[i], c.emits[i]
	return func(rec []byte) error {
		if err := t.Process(rec, emit); err != nil {
			return stageError(c.stages[i].Name, err)
		}
		return nil
	}
}

// A failure is an error that already names the stage it comes from.
type failure struct {
	where string
	err   error
}

func (f *failure) Error() string { return f.where + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func stageError(name string, err error) error {
	if f, ok := err.(*failure); ok { //nolint:errorlint // only as it was returned by the next stage
		return f
	}
	return &failure{where: "transform " + name, err: err}
}

// finish lets every transform emit what it holds, in order.
func (c *chain) finish() error {
	for i, t := range c.transforms {
		if f, ok := t.(Finisher); ok {
			if err := f.Finish(c.emits[i]); err != nil {
				return stageError(c.stages[i].Name, err)
			}
		}
	}
	return nil
}

// states are the snapshots of the stateful stages, by stage name and lane.
type states map[string][][]byte

// snapshot returns the state of each stage, nil for those without.
func (c *chain) snapshot(ctx context.Context, checkpoint uint64) ([][]byte, error) {
	parts := make([][]byte, len(c.transforms))
	for i, t := range c.transforms {
		s, ok := t.(Stateful)
		if !ok {
			continue
		}
		b, err := s.Snapshot(ctx, checkpoint)
		if err != nil {
			return nil, fmt.Errorf("snapshot of transform %s: %w", c.stages[i].Name, err)
		}
		parts[i] = b
	}
	return parts, nil
}

func (c *chain) restore(ctx context.Context, checkpoint uint64, old states) error {
	for i, t := range c.transforms {
		s, ok := t.(Stateful)
		if !ok {
			continue
		}
		if err := s.Restore(ctx, checkpoint, old[c.stages[i].Name]); err != nil {
			return fmt.Errorf("restore transform %s from checkpoint %d: %w", c.stages[i].Name, checkpoint, err)
		}
	}
	return nil
}

// finishes reports whether any transform has something to do at the end.
func (c *chain) finishes() bool {
	for _, t := range c.transforms {
		if _, ok := t.(Finisher); ok {
			return true
		}
	}
	return false
}

func (c *chain) retire(oldest uint64) error {
	for i, t := range c.transforms {
		if r, ok := t.(Retirer); ok {
			if err := r.Retire(oldest); err != nil {
				return fmt.Errorf("retire state of transform %s: %w", c.stages[i].Name, err)
			}
		}
	}
	return nil
}
