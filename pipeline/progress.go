package pipeline

import (
	"sync/atomic"
	"time"
)

// stats are what the parts of a run count.
type stats struct {
	records, bytes, emitted atomic.Uint64
	checkpoints, aborted    atomic.Uint64
	last                    atomic.Uint64
	lastAt                  atomic.Int64  // milliseconds of the Unix epoch
	openBytes               atomic.Uint64 // appended since the last checkpoint was triggered
	pending                 atomic.Int64
	lanes                   atomic.Int64
	lastAbort               atomic.Pointer[string]
}

// A Progress is what a run has done so far.
type Progress struct {
	// Records and Bytes were read, Emitted records went to outputs.
	Records, Bytes, Emitted uint64
	// Lanes is the number of lanes in use; 0 before the start.
	Lanes int
	// Checkpoints completed and Aborted so far; Pending ones are in flight.
	Checkpoints, Aborted uint64
	Pending              int
	// Last is the last completed checkpoint, LastAt when that was; 0 and the zero
	// time if none completed in this run.
	Last   uint64
	LastAt time.Time
	// LastAbort is the reason of the last abort, or empty.
	LastAbort string
}

// Progress returns what the run has done so far. It is safe for concurrent use.
func (p *Pipeline) Progress() Progress {
	g := Progress{
		Records: p.stats.records.Load(), Bytes: p.stats.bytes.Load(), Emitted: p.stats.emitted.Load(),
		Lanes:       int(p.stats.lanes.Load()),
		Checkpoints: p.stats.checkpoints.Load(), Aborted: p.stats.aborted.Load(), Pending: int(p.stats.pending.Load()),
		Last: p.stats.last.Load(),
	}
	if ms := p.stats.lastAt.Load(); ms != 0 {
		g.LastAt = time.UnixMilli(ms)
	}
	if s := p.stats.lastAbort.Load(); s != nil {
		g.LastAbort = *s
	}
	return g
}

func (s *stats) completed(id uint64, now time.Time) {
	s.checkpoints.Add(1)
	s.last.Store(id)
	s.lastAt.Store(now.UnixMilli())
}

func (s *stats) abort(reason error) {
	s.aborted.Add(1)
	text := reason.Error()
	s.lastAbort.Store(&text)
}

func (s *stats) fill(sum *Summary) {
	sum.Records, sum.Bytes, sum.Emitted = s.records.Load(), s.bytes.Load(), s.emitted.Load()
	sum.Checkpoints, sum.Aborted = s.checkpoints.Load(), s.aborted.Load()
}
