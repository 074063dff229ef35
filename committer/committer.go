package committer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A Committer flushes completed batches of a log into one sink. All methods are
// safe for concurrent use.
type Committer struct {
	sink sinks.Sink
	info sinks.Info
	id   string
	log  Log
	opts Options

	ctx      context.Context // of all calls of the sink by workers
	cancel   context.CancelFunc
	stop     chan struct{} // closed when Close begins
	failed   chan struct{} // closed when a lane stops because of an error
	draining atomic.Int32  // calls of Drain under way

	mu     sync.Mutex
	lanes  map[string]*lane // nil while Open is at it
	closed bool
	once   sync.Once // closes failed
	finish func() error
}

// New returns a Committer for the sink under the given sink id, without lanes.
// Neither sink nor log are closed by it; both are to outlive it.
func New(sink sinks.Sink, id string, log Log, opts Options) (*Committer, error) {
	if err := (sinks.LaneID{Sink: id, Lane: "x"}).Validate(); err != nil {
		return nil, fmt.Errorf("committer: %w", err)
	}
	info := sink.Info()
	if len(info.Format) > 255 {
		return nil, fmt.Errorf("committer: format of sink %s is %d bytes, the limit is 255", info.Name, len(info.Format))
	}
	c := &Committer{
		sink: sink, info: info, id: id, log: log, opts: opts.withDefaults(),
		stop: make(chan struct{}), failed: make(chan struct{}), lanes: make(map[string]*lane),
	}
	c.opts.Logger = c.opts.Logger.With("output", id)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.finish = sync.OnceValue(c.close)
	return c, nil
}

// patiently makes a call of the store for a lane, with the retries of a flush. What it was
// about is for the log.
func (c *Committer) patiently(ctx context.Context, id sinks.LaneID, what string, do func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		call, cancel := context.WithTimeout(ctx, c.opts.MarkTimeout)
		err := do(call)
		cancel()
		if err == nil {
			return nil
		}
		kind := sinks.KindOf(err)
		if kind == sinks.Permanent || c.opts.MaxAttempts > 0 && attempt >= c.opts.MaxAttempts {
			return err
		}
		wait := backoff(c.opts.RetryMin, c.opts.RetryMax, attempt)
		if f := c.opts.Observer.Retrying; f != nil { // it says so
			f(id.Lane, Retry{Kind: kind, Err: err, Wait: wait, Attempt: attempt})
		} else {
			c.opts.Logger.Warn(what+", trying again", "lane", id.Lane, "attempt", attempt, "kind", kind.String(), "error", err, "wait", wait.Round(time.Millisecond))
		}
		if !c.sleep(ctx, wait) {
			return errors.Join(c.ended(ctx), err)
		}
	}
}

// ended says why a wait was cut short.
func (c *Committer) ended(ctx context.Context) error {
	if c.stopping() {
		return ErrClosed
	}
	return context.Cause(ctx)
}

func (c *Committer) newLane(id sinks.LaneID, handle sinks.Lane, mark sinks.Mark) *lane {
	key := id.String()
	head, _, _ := c.log.Head(key)
	l := &lane{
		c: c, id: id, key: key, info: c.info, opts: c.opts, log: c.opts.Logger.With("lane", id.Lane), ctx: c.ctx,
		handle: handle, fence: mark.Fence, mark: mark, src: newSource(c.log, key), notes: make(map[uint64]note), opened: head.Seq,
		wake: make(chan struct{}, 1), done: make(chan struct{}), changed: make(chan struct{}),
		status: LaneStatus{Lane: id.Lane, State: StateIdle, Mark: mark},
	}
	l.src.timed = c.opts.Observer.Flushed != nil
	return l
}

// Notify says that a checkpoint completed: the workers look into the log.
func (c *Committer) Notify() {
	crash.Point(crash.CompleteReceived)
	for _, l := range c.list() {
		l.notify()
	}
}

func (l *lane) notify() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// list returns the open lanes in order of name.
func (c *Committer) list() []*lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*lane
	for _, l := range c.lanes {
		if l != nil {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *lane) int { return strings.Compare(a.id.Lane, b.id.Lane) })
	return out
}

// Drain flushes without waiting for FlushBytes or FlushAge, and returns nil when
// everything that is complete now is in the store. Else, when a lane has
// stopped and the others are through, or ctx has ended, or Close was called, the
// error says what is not, and why. If ctx has ended before the call, no batch is
// flushed earlier for it.
func (c *Committer) Drain(ctx context.Context) error {
	var errs []error
	if ctx.Err() == nil { // else it would be chance which lanes flush before it returns
		c.draining.Add(1)
		defer c.draining.Add(-1)
		for _, l := range c.list() {
			l.notify()
		}
	}
	for _, l := range c.list() {
		errs = append(errs, l.drain(ctx))
	}
	return errors.Join(errs...)
}

func (l *lane) drain(ctx context.Context) error {
	target, _, _ := l.c.log.Head(l.key)
	for {
		l.mu.Lock()
		st, err, changed := l.status, l.err, l.changed
		l.mu.Unlock()
		switch {
		case st.Mark.Seq >= target.Seq:
			return nil
		case err != nil:
			return l.undrained(st, target, err)
		case st.State == StateClosed:
			return l.undrained(st, target, ErrClosed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := context.Cause(ctx)
			if st.LastError != "" && st.LastErrorAt.After(st.Mark.UpdatedAt) {
				err = fmt.Errorf("%w; last error: %s", err, st.LastError)
			}
			return l.undrained(st, target, err)
		}
	}
}

func (l *lane) undrained(st LaneStatus, target record.Head, err error) error {
	return fmt.Errorf("drain lane %s: batches %d to %d, up to checkpoint %d, are not in the store: %w",
		l.id, st.Mark.Seq+1, target.Seq, target.Checkpoint, err)
}

// Err returns why lanes have stopped, all of them joined, or nil.
func (c *Committer) Err() error {
	var errs []error
	for _, l := range c.list() {
		l.mu.Lock()
		errs = append(errs, l.err)
		l.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Failed is closed when the first lane stops because of an error.
func (c *Committer) Failed() <-chan struct{} { return c.failed }

func (c *Committer) fail() { c.once.Do(func() { close(c.failed) }) }

func (c *Committer) stopping() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// sleep waits, and reports false if ctx ends or the Committer closes meanwhile.
func (c *Committer) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-c.stop:
	}
	return false
}

// Close stops the workers and returns when they have ended. A flush under way has
// CloseTimeout to finish, is then cancelled, and becomes a replay; nothing is
// lost by it. Close returns errors of releasing lanes, and names lanes whose sink
// does not obey the cancellation. It is idempotent.
func (c *Committer) Close() error { return c.finish() }

func (c *Committer) close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.stop)
	lanes := c.list()
	defer time.AfterFunc(c.opts.CloseTimeout, c.cancel).Stop()
	late := make(chan struct{})
	defer time.AfterFunc(2*c.opts.CloseTimeout, func() { close(late) }).Stop()
	defer c.cancel()
	var errs []error
	for _, l := range lanes {
		errs = append(errs, l.wait(late))
	}
	return errors.Join(errs...)
}

// wait returns when the worker has ended, or when it is late.
func (l *lane) wait(late <-chan struct{}) error {
	select {
	case <-l.done:
		return l.closeErr
	case <-late:
	}
	select {
	case <-l.done:
		return l.closeErr
	default:
		return fmt.Errorf("close lane %s: the sink does not return from a cancelled call", l.id)
	}
}
