package committer

import (
	"context"
	"errors"
	"fmt"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/sinks"
)

// Open takes a lane over from whoever held it, decides by the opening table how
// it goes on, and starts its worker, which flushes all that is complete at once.
// It waits for a store that does not answer as a flush would: until ctx ends, or
// MaxAttempts. A refusal wraps one of the Err sentinels, has changed nothing but
// the fence, and will be the same the next time.
func (c *Committer) Open(ctx context.Context, name string) (Opening, error) {
	openings, err := c.OpenAll(ctx, []string{name}, nil)
	if err != nil {
		return Opening{}, err
	}
	return openings[0], nil
}

// OpenAll is Open for lanes that belong together: all are taken over and decided
// about, and check, which may be nil, has seen what was decided, in the order of
// names, before anything changes. It may make Resume of Connected: what the log holds
// of that lane is set aside then, and the source goes to the mark. It is given the
// ledger as well, as it was read when all were taken over; nil if the sink is no
// [sinks.Ledger]. After a refusal of one lane, or an error of check, which is returned as
// it is, no lane is open, and nothing has changed but fences.
//
// Of two that open the same lanes at once, in the same order, one gets all and the other
// is fenced: the lanes are compared with the store after the last was taken over. Who
// has the first one takes the others again, until they are its own at one moment; who
// has lost the first, or a lane that is open, gives up. So nobody flushes who does not
// have all. Open lanes are compared only if the sink is a Ledger.
func (c *Committer) OpenAll(ctx context.Context, names []string, check func(found []Opening, ledger []sinks.LaneMark) error) ([]Opening, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	var found []*candidate
	defer func() {
		for _, f := range found {
			c.release(f)
		}
	}()
	for _, name := range names {
		f, err := c.candidate(ctx, name)
		if err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	ledger, err := c.hold(ctx, found, check != nil)
	if err != nil {
		return nil, err
	}
	openings := make([]Opening, len(found))
	for i, f := range found {
		openings[i] = f.Opening
	}
	if check != nil {
		if err := check(openings, ledger); err != nil {
			return nil, err
		}
	}
	for i, f := range found {
		if f.Outcome == Connected && openings[i].Outcome == Resume {
			f.verdict = resume(f.stored)
		}
		if err := c.enact(ctx, f); err != nil {
			return nil, fmt.Errorf("open lane %s: %w", f.id, err)
		}
		openings[i] = f.Opening
	}
	for _, f := range found {
		if err := c.begin(f); err != nil {
			return nil, fmt.Errorf("open lane %s: %w", f.id, err)
		}
	}
	return openings, nil
}

// A candidate is a lane that was taken over and is not open yet.
type candidate struct {
	verdict
	id      sinks.LaneID
	handle  sinks.Lane
	stored  sinks.Mark // as it was read
	skipped uint64     // records that stored has and that the log did not know to be in
	begun   bool
}

// candidate takes a lane over and decides about it.
func (c *Committer) candidate(ctx context.Context, name string) (*candidate, error) {
	f := &candidate{id: sinks.LaneID{Sink: c.id, Lane: name}}
	if err := f.id.Validate(); err != nil {
		return nil, fmt.Errorf("open lane: %w", err)
	}
	if err := c.reserve(name); err != nil {
		return nil, fmt.Errorf("open lane %s: %w", f.id, err)
	}
	if err := c.take(ctx, f); err != nil {
		c.release(f)
		return nil, err
	}
	return f, nil
}

// take acquires the lane of a candidate, perhaps once more, and decides about it.
func (c *Committer) take(ctx context.Context, f *candidate) error {
	c.letGo(f)
	err := c.patiently(ctx, f.id, "lane not acquired", func(ctx context.Context) (err error) {
		f.handle, f.stored, err = c.sink.Acquire(ctx, f.id)
		return err
	})
	if err == nil {
		crash.Point(crash.FenceRaised)
		v := viewOf(c.log, f.id.String())
		f.verdict, f.skipped = decide(v, f.stored, c.opts), v.covered(f.stored)
		err = f.err
	}
	if err != nil {
		return fmt.Errorf("open lane %s: %w", f.id, err)
	}
	return nil
}

// letGo closes the handle of a candidate.
func (c *Committer) letGo(f *candidate) {
	if f.handle == nil {
		return
	}
	if err := f.handle.Close(); err != nil {
		c.opts.Logger.Warn("lane not released", "lane", f.id.Lane, "error", err)
	}
	f.handle = nil
}

func (c *Committer) reserve(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if _, ok := c.lanes[name]; ok {
		return errors.New("it is open already")
	}
	c.lanes[name] = nil
	return nil
}

// release gives a candidate up that has not become a lane.
func (c *Committer) release(f *candidate) {
	if f.begun {
		return
	}
	c.letGo(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lanes, f.id.Lane)
}

// begin starts the worker of a candidate.
func (c *Committer) begin(f *candidate) error {
	l := c.newLane(f.id, f.handle, f.Mark)
	l.status.Skipped = f.skipped
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.opts.Logger.Info("lane open", "lane", f.id.Lane, "checkpoint", f.Mark.Checkpoint, "batch", f.Mark.Seq, "outcome", f.Outcome.String())
	f.begun, c.lanes[f.id.Lane] = true, l
	go l.run()
	return nil
}

// enact makes the changes of a verdict: first the store, then the log.
func (c *Committer) enact(ctx context.Context, f *candidate) error {
	key := f.id.String()
	var step *sinks.Step
	switch {
	case f.write != nil:
		step = overrideStep(f.id, f.stored, *f.write)
	case f.lose != nil:
		step = f.lose.lostStep(f.id, f.stored)
	}
	if step != nil {
		c.opts.Logger.Warn("writing the mark on an operator's word", "lane", f.id.Lane, "checkpoint", step.Next.Checkpoint, "batch", step.Next.Seq,
			"from", f.stored.Seq)
		if _, err := f.handle.Flush(ctx, step); err != nil {
			return fmt.Errorf("write mark: %w", err)
		}
		m, err := f.handle.Mark(ctx)
		if err != nil {
			return fmt.Errorf("read mark: %w", err)
		}
		f.Mark = m
	}
	if f.reset != nil {
		if err := c.log.Reset(key, *f.reset); err != nil {
			return fmt.Errorf("reset log: %w", err)
		}
	}
	return c.commit(key, f.Mark.Seq)
}

// commit tells the log how far the store is, also if that is back at the beginning:
// else the log could drop what is flushed again.
func (c *Committer) commit(key string, seq uint64) error {
	if _, committed, ok := c.log.Head(key); seq == 0 && (!ok || committed == 0) {
		return nil
	}
	return c.log.Commit(key, seq)
}
