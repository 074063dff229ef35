package memory

import (
	"maps"
	"slices"
	"sync"

	"github.com/walsink/walsink/sinks"
)

// A Dead is a dead letter as the store keeps it.
type Dead struct {
	// Seq and Checkpoint are of the batch, Number is the record's number in it.
	Seq, Checkpoint, Number uint64
	// Field, Code and Reason say why.
	Field, Code, Reason string
	// Record is the record.
	Record []byte
}

// A Store holds lanes. Its methods are safe for concurrent use. The zero value
// is not ready, use NewStore.
type Store struct {
	mu    sync.Mutex
	lanes map[sinks.LaneID]entry
}

// An entry is all that the store knows of a lane. Its slices only grow and are
// never written in place, so that a copy of the entry is a snapshot.
type entry struct {
	mark    sinks.Mark
	records [][]byte
	dead    []Dead
	audit   []sinks.Audit
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{lanes: make(map[sinks.LaneID]entry)} }

// Records returns the visible records of a lane, in order. Do not change them.
func (s *Store) Records(id sinks.LaneID) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lanes[id].records)
}

// DeadLetters returns the dead letters of a lane, in order. Do not change them.
func (s *Store) DeadLetters(id sinks.LaneID) []Dead {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lanes[id].dead)
}

// A Snapshot is the whole contents of a Store at one moment.
type Snapshot struct{ lanes map[sinks.LaneID]entry }

// Snapshot returns the present contents.
func (s *Store) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := maps.Clone(s.lanes)
	for id, e := range lanes {
		e.records, e.dead, e.audit = slices.Clip(e.records), slices.Clip(e.dead), slices.Clip(e.audit)
		lanes[id] = e
	}
	return Snapshot{lanes}
}

// Restore puts an earlier contents back, as a restored backup does. With keep,
// the fences stay as they are, as when a store lost its last writes but open
// handles go on.
func (s *Store) Restore(from Snapshot, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.lanes
	s.lanes = maps.Clone(from.lanes)
	for id, e := range old {
		if !keep {
			break
		}
		n := s.lanes[id]
		if n.mark.Fence == 0 {
			n.mark.Chain = id.Genesis()
		}
		n.mark.Fence = e.mark.Fence
		s.lanes[id] = n
	}
}

// DropLedger removes the marks and audit rows and keeps the records, which no
// program should do.
func (s *Store) DropLedger() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.lanes {
		s.lanes[id] = entry{records: e.records, dead: e.dead}
	}
}
