package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options say when a Coordinator triggers and how long it waits. The zero value
// triggers on demand only, waits for ever, and tolerates every abort.
type Options struct {
	// Tasks is the number of tasks that must ack a checkpoint.
	Tasks int
	// Interval is the time from one trigger to the next; 0 means none. While no
	// record was counted since the last trigger, the interval demands nothing.
	Interval time.Duration
	// Records is the number of records after which a checkpoint is demanded; 0
	// means none.
	Records uint64
	// Timeout is the time after which a pending checkpoint is aborted; 0 means never.
	Timeout time.Duration
	// MinPause is the least time between the end of a checkpoint and the next
	// trigger; after an abort it is at least RetryPause. The final checkpoint does not
	// wait for it unless it is a second attempt.
	MinPause time.Duration
	// MaxConcurrent is the most checkpoints in flight at once; 0 means 1.
	MaxConcurrent int
	// MaxFailures is the number of aborts in a row that ends the run; 0 means that
	// none does. Subsumed checkpoints do not count.
	MaxFailures int
}

// RetryPause is the least time between an abort and the next trigger.
const RetryPause = 100 * time.Millisecond

// A Verb is what an Action asks for.
type Verb uint8

const (
	// Trigger: send barriers for the checkpoint.
	Trigger Verb = iota + 1
	// Store: every task has acked; store the checkpoint and call Stored.
	Store
	// Complete: the checkpoint is durable; announce it.
	Complete
	// Abort: forget the barriers of the checkpoint; what it held back goes on.
	Abort
	// Fail: too many aborts in a row; end the run with Err.
	Fail
	// Finish: the final checkpoint is complete; end the run.
	Finish
)

// String returns the verb in lower case.
func (v Verb) String() string {
	names := [...]string{"none", "trigger", "store", "complete", "abort", "fail", "finish"}
	return names[v]
}

// An Action is something that the caller of a Coordinator is to do.
type Action struct {
	Verb Verb
	// ID is the checkpoint; 0 for Finish.
	ID uint64
	// Final says of Trigger that it is the last checkpoint.
	Final bool
	// Err is the reason of Abort and Fail.
	Err error
}

// Reasons of an abort.
var (
	// ErrTimeout says that tasks did not ack in time.
	ErrTimeout = errors.New("timed out")
	// ErrSubsumed says that a later checkpoint completed first.
	ErrSubsumed = errors.New("subsumed by a later checkpoint")
)

// A Coordinator decides when checkpoints are triggered, aborted and complete.
// Make one with NewCoordinator. The methods return what is to be done, in order;
// now must not go back.
type Coordinator struct {
	opts     Options
	pending  []*Pending // ascending by ID; storing ones included
	last     uint64     // highest id that was given
	complete uint64     // highest id that is complete
	records  uint64     // since the last trigger
	demanded bool
	ending   bool // the next trigger is the final one
	final    uint64
	failures int
	trigger  time.Time // of the last trigger, or the start
	ended    time.Time // of the last checkpoint
}

// NewCoordinator returns a Coordinator whose first checkpoint is last+1.
func NewCoordinator(opts Options, last uint64, now time.Time) *Coordinator {
	opts.MaxConcurrent = max(opts.MaxConcurrent, 1)
	return &Coordinator{opts: opts, last: last, complete: last, trigger: now}
}

// Request demands a checkpoint as soon as the options allow one.
func (c *Coordinator) Request(now time.Time) []Action {
	c.demanded = true
	return c.Tick(now)
}

// Count says that n more records were read.
func (c *Coordinator) Count(now time.Time, n uint64) []Action {
	c.records += n
	return c.Tick(now)
}

// End demands the final checkpoint: no record follows. After its completion comes
// Finish. If it is aborted and that is tolerated, another final one follows.
func (c *Coordinator) End(now time.Time) []Action {
	c.ending = true
	return c.Tick(now)
}

// Tick says that time has passed.
func (c *Coordinator) Tick(now time.Time) []Action {
	actions := c.expire(now)
	if len(actions) > 0 && actions[len(actions)-1].Verb == Fail {
		return actions
	}
	if at, ok := c.next(); ok && !at.After(now) {
		actions = append(actions, c.start(now))
	}
	return actions
}

// Deadline returns the time at which Tick will have something to do, if no other
// call comes before; false if never.
func (c *Coordinator) Deadline() (time.Time, bool) {
	at, ok := c.next()
	if c.opts.Timeout > 0 {
		for _, p := range c.pending {
			if p.left == 0 {
				continue
			}
			if end := p.Since.Add(c.opts.Timeout); !ok || end.Before(at) {
				at, ok = end, true
			}
		}
	}
	return at, ok
}

// Ack says that a task has done its part of a checkpoint. An ack for a
// checkpoint that has ended means nothing; for one that was never triggered, or a
// second one, it is an error.
func (c *Coordinator) Ack(id uint64, task int) ([]Action, error) {
	if id > c.last {
		return nil, fmt.Errorf("ack of checkpoint %d by task %d: %w", id, task, ErrUnknown)
	}
	p := c.find(id)
	if p == nil {
		return nil, nil
	}
	if err := p.Ack(task); err != nil {
		return nil, err
	}
	if p.left > 0 {
		return nil, nil
	}
	return []Action{{Verb: Store, ID: id}}, nil
}

// Decline says that a checkpoint cannot be taken, and why. It is aborted.
func (c *Coordinator) Decline(now time.Time, id uint64, reason error) []Action {
	if c.find(id) == nil {
		return nil
	}
	actions := c.abort(now, id, reason)
	if actions[len(actions)-1].Verb == Fail {
		return actions
	}
	return append(actions, c.Tick(now)...)
}

// Stored says that the checkpoint is durable. Lower ones still pending are
// subsumed by it.
func (c *Coordinator) Stored(now time.Time, id uint64) ([]Action, error) {
	p := c.find(id)
	if p == nil {
		return nil, fmt.Errorf("stored checkpoint %d: %w", id, ErrUnknown)
	}
	if err := p.Done(); err != nil {
		return nil, err
	}
	var actions []Action
	for len(c.pending) > 0 && c.pending[0].ID <= id {
		if low := c.pending[0].ID; low < id {
			actions = append(actions, Action{Verb: Abort, ID: low, Err: ErrSubsumed})
		}
		c.pending = c.pending[1:]
	}
	c.complete, c.ended, c.failures = id, now, 0
	actions = append(actions, Action{Verb: Complete, ID: id})
	if id == c.final {
		return append(actions, Action{Verb: Finish}), nil
	}
	return append(actions, c.Tick(now)...), nil
}

// Last returns the highest completed checkpoint.
func (c *Coordinator) Last() uint64 { return c.complete }

// Pending returns the checkpoints in flight, oldest first. They are not to be
// changed.
func (c *Coordinator) Pending() []*Pending { return slices.Clone(c.pending) }

func (c *Coordinator) find(id uint64) *Pending {
	for _, p := range c.pending {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// next is when the next checkpoint may start; false if nobody wants one or too
// many are in flight.
func (c *Coordinator) next() (time.Time, bool) {
	if c.final != 0 {
		return time.Time{}, false
	}
	if c.ending {
		return c.afterPause(c.trigger, 0), len(c.pending) == 0
	}
	if len(c.pending) >= c.opts.MaxConcurrent {
		return time.Time{}, false
	}
	at := c.trigger
	due := c.demanded || (c.opts.Records > 0 && c.records >= c.opts.Records)
	if !due {
		if c.opts.Interval <= 0 || c.records == 0 {
			return time.Time{}, false
		}
		at = at.Add(c.opts.Interval)
	}
	return c.afterPause(at, c.opts.MinPause), true
}

// afterPause puts a trigger off until the pause after the last checkpoint is over.
func (c *Coordinator) afterPause(at time.Time, pause time.Duration) time.Time {
	if c.ended.IsZero() {
		return at
	}
	if c.failures > 0 {
		pause = max(pause, RetryPause)
	}
	if end := c.ended.Add(pause); end.After(at) {
		return end
	}
	return at
}

func (c *Coordinator) start(now time.Time) Action {
	c.last++
	c.pending = append(c.pending, NewPending(c.last, c.opts.Tasks, now))
	c.trigger, c.records, c.demanded = now, 0, false
	if c.ending {
		c.final = c.last
	}
	return Action{Verb: Trigger, ID: c.last, Final: c.ending}
}

// expire aborts what has waited too long.
func (c *Coordinator) expire(now time.Time) []Action {
	var actions []Action
	if c.opts.Timeout <= 0 {
		return nil
	}
	for _, p := range slices.Clone(c.pending) {
		if p.left == 0 || now.Before(p.Since.Add(c.opts.Timeout)) {
			continue
		}
		err := fmt.Errorf("%w after %v waiting for tasks %v", ErrTimeout, c.opts.Timeout, p.Missing())
		actions = append(actions, c.abort(now, p.ID, err)...)
		if actions[len(actions)-1].Verb == Fail {
			return actions
		}
	}
	return actions
}

func (c *Coordinator) abort(now time.Time, id uint64, reason error) []Action {
	c.pending = slices.DeleteFunc(c.pending, func(p *Pending) bool { return p.ID == id })
	c.ended = now
	c.failures++
	c.demanded = true
	if id == c.final {
		c.final = 0
	}
	actions := []Action{{Verb: Abort, ID: id, Err: reason}}
	if c.opts.MaxFailures > 0 && c.failures >= c.opts.MaxFailures {
		err := fmt.Errorf("checkpoint %d: number %d in a row to be aborted, the limit: %w", id, c.failures, reason)
		actions = append(actions, Action{Verb: Fail, ID: id, Err: err})
	}
	return actions
}
