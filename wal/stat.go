package wal

import (
	"slices"
	"strings"
	"time"
)

// A Stat is the state of a log at one moment.
type Stat struct {
	Bytes       int64  `json:"bytes"` // held in all generations
	MaxBytes    int64  `json:"max_bytes"`
	Generations int    `json:"generations"`
	Completed   uint64 `json:"completed"` // highest completed checkpoint
	// Oldest is when the oldest batch that waits for its flush was sealed; zero if
	// none does.
	Oldest time.Time  `json:"oldest,omitzero"`
	Lanes  []LaneStat `json:"lanes"`
	// Waiting is how many appenders wait for room.
	Waiting int `json:"waiting"`
	// Failed is why nothing is acknowledged any more, or nil.
	Failed error `json:"-"`
	// Damage is what Open found, each a *Damage.
	Damage []error `json:"-"`
}

// A LaneStat is the state of a lane.
type LaneStat struct {
	Name         string `json:"name"`
	Head         uint64 `json:"head"`          // Seq of the last completed batch
	Committed    uint64 `json:"committed"`     // highest Seq known to be in the store
	Sealed       int    `json:"sealed"`        // batches that no completed checkpoint covers
	Pending      int    `json:"pending"`       // completed batches, not committed
	PendingBytes int64  `json:"pending_bytes"` // record bytes in those
	Retained     int    `json:"retained"`      // committed batches, still held
	Records      uint64 `json:"records"`       // sealed since Open
	Bytes        uint64 `json:"bytes"`         // those of the records
	Broken       error  `json:"-"`             // damage; no records are taken
}

// Stat returns the state of the log.
func (l *Log) Stat() Stat {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stat{
		Bytes: l.held(), MaxBytes: l.opts.MaxBytes, Generations: len(l.gens), Completed: l.complete.checkpoint,
		Waiting: l.hungry, Failed: l.failure(), Damage: slices.Clone(l.damage),
	}
	for _, ln := range l.lanes {
		st := LaneStat{Name: ln.name, Head: ln.head.Seq, Committed: ln.committed, Records: ln.taken.records, Bytes: ln.taken.bytes, Broken: ln.broken}
		for _, b := range ln.batches {
			switch {
			case b.Seq <= ln.committed:
				st.Retained++
			case b.Checkpoint > l.complete.checkpoint:
				st.Sealed++
			default:
				st.Pending++
				st.PendingBytes += int64(b.Bytes)
				if at := time.UnixMilli(b.SealedAt); s.Oldest.IsZero() || at.Before(s.Oldest) {
					s.Oldest = at
				}
			}
		}
		s.Lanes = append(s.Lanes, st)
	}
	slices.SortFunc(s.Lanes, func(a, b LaneStat) int { return strings.Compare(a.Name, b.Name) })
	return s
}
