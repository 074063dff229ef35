package committer

import (
	"errors"
	"fmt"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A State is what the worker of a lane does.
type State uint8

const (
	// StateIdle: everything complete is in the store.
	StateIdle State = iota + 1
	// StateWaiting: there is something to flush, and it waits for more.
	StateWaiting
	// StateFlushing: a step is at the store.
	StateFlushing
	// StateRetrying: the store did not take a step, which will be tried again.
	StateRetrying
	// StateVerifying: it is not known whether a step is in; the mark is asked for.
	StateVerifying
	// StateStopped: the lane has stopped because of an error.
	StateStopped
	// StateClosed: the Committer was closed.
	StateClosed
)

// String returns the state in lower case.
func (s State) String() string {
	names := [...]string{"unknown", "idle", "waiting", "flushing", "retrying", "verifying", "stopped", "closed"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText writes the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A LaneStatus is a lane at one moment.
type LaneStatus struct {
	Lane  string     `json:"lane"`
	State State      `json:"state"`
	Mark  sinks.Mark `json:"mark"`
	// Head is the last batch of the log that is complete.
	Head record.Head `json:"head"`
	// PendingBatches, PendingBytes and PendingRecords are complete and not in the
	// store. Those of a batch that is partly in count whole.
	PendingBatches int    `json:"pending_batches"`
	PendingBytes   uint64 `json:"pending_bytes"`
	PendingRecords uint64 `json:"pending_records"`
	// OldestAge is how long ago the oldest pending batch was sealed, by the clock.
	OldestAge time.Duration `json:"oldest_age"`
	// LastError is the last error of the lane, and LastErrorAt its time. It stays
	// after the lane has recovered.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// NextRetry is when a retrying or verifying lane will try again.
	NextRetry time.Time `json:"next_retry,omitzero"`
	Counters
}

// Counters count since Open.
type Counters struct {
	// Steps, Batches, Records and Dead are in the store by this lane. Settled are
	// those steps of which not the answer but the mark told so.
	Steps   uint64 `json:"steps"`
	Settled uint64 `json:"settled"`
	Batches uint64 `json:"batches"`
	Records uint64 `json:"records"`
	Dead    uint64 `json:"dead"`
	// Bytes are those of Records, as StepInfo has them.
	Bytes uint64 `json:"bytes"`
	// Skipped are records that the log did not know to be in the store, and that
	// were found there when the lane was opened, or came again and were compared.
	Skipped uint64 `json:"skipped"`
	// Errors counts errors of the sink by kind. Cancelled are those that did not
	// return within StepTimeout or MarkTimeout; those cut short by Close do not count.
	Errors map[string]uint64 `json:"errors,omitempty"`
}

// Status returns the lanes, in order of name.
func (c *Committer) Status() []LaneStatus {
	var out []LaneStatus
	for _, l := range c.list() {
		out = append(out, l.snapshot())
	}
	return out
}

// snapshot reads the log for what is pending, so that it is right also while the
// worker is busy.
func (l *lane) snapshot() LaneStatus {
	l.mu.Lock()
	st := l.status
	st.Errors = nil
	for k, n := range l.status.Errors {
		if st.Errors == nil {
			st.Errors = make(map[string]uint64)
		}
		st.Errors[k] = n
	}
	l.mu.Unlock()
	now := time.Now()
	st.Head, _, _ = l.c.log.Head(l.key)
	for _, b := range l.c.log.Batches(l.key) {
		if b.Seq <= st.Mark.Seq {
			continue
		}
		if st.PendingBatches++; st.PendingBatches == 1 {
			st.OldestAge = max(0, now.Sub(time.UnixMilli(b.SealedAt)))
		}
		st.PendingBytes += b.Bytes
		st.PendingRecords += b.Records
	}
	return st
}

// update changes the status under its lock and wakes those who wait for it.
func (l *lane) update(f func(*LaneStatus)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.status)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lane) setState(s State) {
	l.update(func(st *LaneStatus) { st.State, st.Mark, st.NextRetry = s, l.mark, time.Time{} })
}

func (l *lane) retrying(s State, wait time.Duration) {
	l.update(func(st *LaneStatus) { st.State, st.NextRetry = s, time.Now().Add(wait) })
}

// failing notes an error that does not stop the lane, at least not yet. What Close
// has cut short is no error of the store.
func (l *lane) failing(kind sinks.Kind, err error) {
	if kind == sinks.Cancelled && l.c.ctx.Err() != nil {
		return
	}
	l.update(func(st *LaneStatus) {
		st.LastError, st.LastErrorAt = err.Error(), time.Now()
		if st.Errors == nil {
			st.Errors = make(map[string]uint64)
		}
		st.Errors[kind.String()]++
	})
}

func (l *lane) count(s StepInfo) {
	l.update(func(st *LaneStatus) {
		st.Mark = l.mark
		st.Steps++
		if s.Settled {
			st.Settled++
		}
		st.Batches += uint64(s.Batches)
		st.Records += uint64(s.Records)
		st.Dead += uint64(s.Dead)
		st.Bytes += uint64(s.Bytes)
	})
}

// ended notes why the worker ends.
func (l *lane) ended(err error) {
	if errors.Is(err, errStopping) {
		l.update(func(st *LaneStatus) { st.State, st.Mark = StateClosed, l.mark })
		return
	}
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	l.update(func(st *LaneStatus) {
		st.State, st.Mark, st.LastError, st.LastErrorAt = StateStopped, l.mark, err.Error(), time.Now()
	})
	checkpoint, batch := l.at()
	l.log.Error("lane stopped", "checkpoint", checkpoint, "batch", batch, "error", err)
	l.c.fail()
	if f := l.opts.Observer.Stopped; f != nil {
		f(l.id.Lane, err)
	}
}
