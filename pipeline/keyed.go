package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A KeyedFunc handles a record together with the state of its key, which is nil
// for a new key. It returns the new state, nil to forget the key. It must keep
// none of its arguments; it may change state and return it.
type KeyedFunc func(key, rec, state []byte, emit Emit) (next []byte, err error)

// KeyedState keeps the states of the keys of one stage. [MemoryState] keeps them
// in memory, package state on disk. It is safe for concurrent use.
type KeyedState interface {
	// Restore returns the state of a lane, as it was when the lanes of the earlier run
	// returned parts from Snapshot; empty if there are none.
	Restore(ctx context.Context, lane Owner, parts [][]byte) (LaneState, error)
	// Retire says that snapshots of checkpoints below oldest are not needed any more.
	Retire(oldest uint64) error
}

// LaneState is the state of the keys of one lane. It is used by one goroutine at a
// time.
type LaneState interface {
	// Get returns the state of a key, nil if it has none. It is valid until the next
	// call, and may be changed.
	Get(key []byte) ([]byte, error)
	// Put sets the state of a key; nil removes it. It copies what it keeps.
	Put(key, value []byte) error
	// Snapshot returns what Restore needs, durably.
	Snapshot(ctx context.Context, checkpoint uint64) ([]byte, error)
}

// Keyed returns a stage whose state is kept by key, as the pipeline's Route sees
// it. All records of a key come to the same lane, also after the number of lanes
// has changed.
func Keyed(name string, state KeyedState, f KeyedFunc) Stage {
	return Stage{Name: name, State: true, New: func(lane Owner) (Transform, error) {
		if lane.route.key == nil {
			return nil, errors.New("keyed state needs a Route by key")
		}
		return &keyed{lane: lane, state: state, f: f}, nil
	}}
}

type keyed struct {
	lane  Owner
	state KeyedState
	kv    LaneState
	f     KeyedFunc
}

func (k *keyed) Process(rec []byte, emit Emit) error {
	key := k.lane.Key(rec)
	old, err := k.kv.Get(key)
	if err != nil {
		return fmt.Errorf("state of key %q: %w", key, err)
	}
	next, err := k.f(key, rec, old, emit)
	if err != nil {
		return err
	}
	if next == nil && old == nil {
		return nil
	}
	return k.kv.Put(key, next)
}

func (k *keyed) Snapshot(ctx context.Context, checkpoint uint64) ([]byte, error) {
	return k.kv.Snapshot(ctx, checkpoint)
}

func (k *keyed) Restore(ctx context.Context, _ uint64, parts [][]byte) (err error) {
	k.kv, err = k.state.Restore(ctx, k.lane, parts)
	return err
}

func (k *keyed) Retire(oldest uint64) error { return k.state.Retire(oldest) }

// MemoryState keeps keyed state in maps. A snapshot is a copy of all of it, stored
// with the checkpoint: right for states of some megabytes.
type MemoryState struct{}

// Restore takes the keys of the lane out of the parts.
func (MemoryState) Restore(_ context.Context, lane Owner, parts [][]byte) (LaneState, error) {
	m := memoryLane{}
	for _, part := range parts {
		if err := m.load(part, lane); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Retire does nothing.
func (MemoryState) Retire(uint64) error { return nil }

type memoryLane map[string][]byte

func (m memoryLane) Get(key []byte) ([]byte, error) { return m[string(key)], nil }

func (m memoryLane) Put(key, value []byte) error {
	if value == nil {
		delete(m, string(key))
		return nil
	}
	if old, ok := m[string(key)]; ok && len(old) == len(value) {
		copy(old, value)
		return nil
	}
	m[string(key)] = slices.Clone(value)
	return nil
}

const memoryVersion = 1

// Snapshot writes version u8 = 1 and then, for each key in order, the lengths as
// uvarints and the bytes of key and state.
func (m memoryLane) Snapshot(context.Context, uint64) ([]byte, error) {
	b := []byte{memoryVersion}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		b = appendString(b, key)
		b = binary.AppendUvarint(b, uint64(len(m[key])))
		b = append(b, m[key]...)
	}
	return b, nil
}

// ErrSnapshot says that a snapshot of keyed state cannot be read.
var ErrSnapshot = errors.New("not a snapshot of keyed state")

func (m memoryLane) load(part []byte, lane Owner) error {
	if len(part) == 0 || part[0] != memoryVersion {
		return fmt.Errorf("%w: unknown version", ErrSnapshot)
	}
	r := placeReader{b: part[1:]}
	for len(r.b) > 0 {
		key, value := r.str(), r.str()
		if r.bad {
			return fmt.Errorf("%w: damaged", ErrSnapshot)
		}
		if lane.Owns([]byte(key)) {
			m[key] = []byte(value)
		}
	}
	if r.bad {
		return fmt.Errorf("%w: damaged", ErrSnapshot)
	}
	return nil
}
