package committer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/sinks"
)

// perform tries a step until the mark says that it is in, or that the mark has
// moved. An error stops the lane.
func (l *lane) perform(st *step) (err error) {
	start := time.Now()
	l.phases = Phases{}
	if f := l.opts.Observer.Flushing; f != nil {
		ctx, done := f(l.c.ctx, l.id.Lane, st.info())
		l.ctx = ctx
		defer func() { l.ctx = l.c.ctx; done(err) }()
	}
	for attempt := 1; ; attempt++ {
		l.setState(StateFlushing)
		crash.Point(crash.FlushMarkRead)
		res, err := l.attempt(st)
		if err == nil {
			st.rejected = res.Rejected
			return l.flushed(st, res, start)
		}
		again, err := l.failed(st, err, attempt, start)
		if !again {
			return err
		}
	}
}

// attempt calls the sink once.
func (l *lane) attempt(st *step) (sinks.Result, error) {
	ctx, cancel := l.context(l.opts.StepTimeout)
	defer cancel()
	begin, read := time.Now(), st.read
	res, err := l.handle.Flush(ctx, &st.Step)
	l.phases.Read += st.read - read
	l.phases.Store += time.Since(begin) - (st.read - read)
	return res, err
}

// flushed deals with a step that the sink says is in.
func (l *lane) flushed(st *step, res sinks.Result, start time.Time) error {
	next := st.Next
	next.Fence = l.mark.Fence
	if n := len(res.Rejected); n > 0 {
		m, err := l.settle()
		switch {
		case err != nil:
			return l.wrap("flush", st.Batches[0].Checkpoint, err)
		case m.Tip() != next.Tip():
			return l.moved(m)
		case m.Dead != next.Dead+uint64(n) || m.Records+uint64(n) != next.Records:
			return l.wrap("flush", st.Batches[0].Checkpoint, fmt.Errorf("sink %s rejected %d records, but its mark counts %d dead of %d, not %d of %d",
				l.info.Name, n, m.Dead, m.Dead+m.Records, next.Dead+uint64(n), next.Dead+next.Records))
		}
		next = m
	}
	return l.in(st, next, false, start)
}

// in deals with a step that is in the store: next is its mark.
func (l *lane) in(st *step, next sinks.Mark, settled bool, start time.Time) error {
	if st.Next.Partial != nil && st.Prev.Partial == nil {
		crash.Point(crash.FlushChunkFirst)
	}
	dead := int64(next.Dead - st.Prev.Dead)
	noted := time.Now()
	if err := l.adopt(next); err != nil {
		return err
	}
	l.phases.Commit = time.Since(noted)
	info := st.info()
	info.Records, info.Dead, info.Settled, info.Phases = int64(next.Records-st.Prev.Records), dead, settled, l.phases
	if st.Next.Partial == nil {
		l.since = time.Time{}
	}
	l.count(info)
	l.tell(st, info, time.Since(start))
	return nil
}

// tell reports a step that is in.
func (l *lane) tell(st *step, info StepInfo, took time.Duration) {
	if l.log.Enabled(l.ctx, slog.LevelDebug) {
		l.log.Debug("flushed", "checkpoint", info.Checkpoint, "batch", info.Last, "batches", info.Batches, "records", info.Records,
			"dead", info.Dead, "bytes", info.Bytes, "settled", info.Settled, "took", took)
	}
	if f := l.opts.Observer.Flushed; f != nil {
		f(l.id.Lane, info, took)
	}
	f := l.opts.Observer.Dead
	if f == nil || info.Dead == 0 {
		return
	}
	for _, d := range st.Dead {
		f(l.id.Lane, d.Checkpoint, d.Reject)
	}
	for _, r := range st.rejected {
		checkpoint := info.Checkpoint
		if 0 <= r.Batch && r.Batch < len(st.Batches) {
			checkpoint = st.Batches[r.Batch].Checkpoint
		}
		f(l.id.Lane, checkpoint, r)
	}
	for range info.Dead - info.Lost - int64(len(st.Dead)+len(st.rejected)) {
		f(l.id.Lane, info.Checkpoint, sinks.Reject{})
	}
}

// failed decides what to do after an error of Flush. With again, the same step
// is to be tried once more.
func (l *lane) failed(st *step, ferr error, attempt int, start time.Time) (again bool, err error) {
	kind := sinks.KindOf(ferr)
	l.failing(kind, ferr)
	if plant.Active(plant.SkipFailure) && kind == sinks.Transient {
		st.plantEmpty()
		return true, nil
	}
	m, err := l.settle()
	if plant.Active(plant.RetryCommit) && kind == sinks.Ambiguous && err == nil && st.readErr == nil {
		st.plantAgain(m)
		return true, nil
	}
	if err == nil && st.pinned(m) {
		st.Prev, l.mark = m, m
	}
	switch {
	case err != nil:
		return false, l.wrap("flush", st.Batches[0].Checkpoint, err)
	case m.Tip() == st.Next.Tip():
		return false, l.in(st, m, true, start)
	case m.Tip() != st.Prev.Tip():
		return false, l.partly(st, m, start)
	case st.readErr != nil:
		return false, l.wrap("read", st.Batches[0].Checkpoint, st.readErr)
	}
	switch kind {
	case sinks.Permanent:
		return false, fmt.Errorf("lane stopped: %w", ferr)
	case sinks.Poison:
		return false, l.poisoned(st, ferr)
	}
	return l.again(st, kind, ferr, attempt)
}

// pinned reports whether m is where the step begins, with its first batch pinned:
// the step has not taken place, and builds on m from here on.
func (st *step) pinned(m sinks.Mark) bool {
	p := m.Partial
	return st.Prev.Partial == nil && m.Chain == st.Prev.Chain && p != nil && p.Done == 0 && p.Batch.Chain() == st.Batches[0].Chain()
}

// partly goes on from a mark that is neither before nor after the step. If it is inside,
// what is in counts.
func (l *lane) partly(st *step, m sinks.Mark, start time.Time) error {
	in, ended := st.upTo(m)
	if in == nil {
		return l.moved(m)
	}
	noted := time.Now()
	if err := l.adopt(m); err != nil {
		return err
	}
	l.phases.Commit = time.Since(noted)
	info := in.info()
	info.Batches, info.Dead, info.Settled, info.Phases = ended, int64(m.Dead-st.Prev.Dead), true, l.phases
	if m.Partial == nil {
		l.since = time.Time{}
	}
	l.count(info)
	l.tell(in, info, time.Since(start))
	return nil
}

// moved goes on from a mark that is neither before nor after the step: the
// opening rules again, as far as a running lane can.
func (l *lane) moved(m sinks.Mark) error {
	if err := l.lost(viewOf(l.c.log, l.key), m); err != nil {
		return err
	}
	l.since = time.Time{}
	l.log.Warn("the mark moved, going on from there", "checkpoint", m.Checkpoint, "batch", m.Seq)
	return l.adopt(m)
}

// again waits for another attempt, unless the attempts are used up.
func (l *lane) again(st *step, kind sinks.Kind, ferr error, attempt int) (bool, error) {
	if limit := l.opts.MaxAttempts; limit > 0 && attempt >= limit {
		if plant.Active(plant.RetryDrops) {
			st.plantEmpty()
			return true, nil
		}
		return false, fmt.Errorf("lane stopped after %d attempts at %s, which stays in the log: %w", attempt, names(st), ferr)
	}
	if err := l.pause(StateRetrying, kind, ferr, attempt); err != nil {
		return false, err
	}
	return true, nil
}

// names lists the batches of a step for people.
func names(st *step) string {
	first, last := st.Batches[0], st.Batches[len(st.Batches)-1]
	if len(st.Batches) == 1 {
		return fmt.Sprintf("batch %d (checkpoint %d)", first.Seq, first.Checkpoint)
	}
	return fmt.Sprintf("batches %d to %d (checkpoints %d to %d)", first.Seq, last.Seq, first.Checkpoint, last.Checkpoint)
}

// poisoned puts the rejected records aside, durably, or stops the lane.
func (l *lane) poisoned(st *step, ferr error) error {
	if !l.opts.DeadLetters {
		return fmt.Errorf("lane stopped at a record that the store will never take: %w", ferr)
	}
	bad, named := []sinks.Reject(nil), false
	if e, ok := errors.AsType[*sinks.Error](ferr); ok {
		bad = e.Bad
	}
	for i, p := range st.parts {
		s, err := p.rejected(i, bad)
		if err != nil {
			return l.wrap("flush", p.batch.Checkpoint, fmt.Errorf("%w: %w", err, ferr))
		}
		if len(s) == len(p.split) {
			continue
		}
		named = true
		if len(s) > l.opts.DeadLimit {
			return fmt.Errorf("lane stopped: %d records of batch %d (checkpoint %d) are bad, the limit is %d: %w",
				len(s), p.batch.Seq, p.batch.Checkpoint, l.opts.DeadLimit, ferr)
		}
		if err := l.note(p, s); err != nil {
			return err
		}
	}
	if !named {
		return l.wrap("flush", st.Batches[0].Checkpoint, fmt.Errorf("%w: %w", errNothingNew, ferr))
	}
	return nil
}

func (l *lane) note(p part, s split) error {
	data, err := note{Dead: s}.encode()
	if err == nil {
		err = l.c.log.PutNote(l.key, p.batch.Seq, data)
	}
	if err != nil {
		return l.wrap("note dead letters", p.batch.Checkpoint, err)
	}
	l.notes[p.batch.Seq] = note{Dead: s}
	l.log.Warn("records put aside", "checkpoint", p.batch.Checkpoint, "batch", p.batch.Seq, "dead", len(s))
	return nil
}

// settle reads the mark until it answers. An error stops the lane.
func (l *lane) settle() (sinks.Mark, error) {
	start := time.Now()
	for attempt := 1; ; attempt++ {
		l.setState(StateVerifying)
		m, err := l.readMark()
		if err == nil {
			return m, nil
		}
		kind := sinks.KindOf(err)
		switch {
		case kind == sinks.Fenced:
			return m, fmt.Errorf("a newer owner has taken the lane over: %w", err)
		case kind == sinks.Permanent:
			return m, fmt.Errorf("the outcome is unknown, and the mark cannot be read: %w", err)
		case l.c.ctx.Err() != nil:
			return m, errStopping
		}
		if d := time.Since(start); d >= l.opts.UnknownAfter {
			err = fmt.Errorf("the outcome of the flush is unknown since %s: %w", d.Round(time.Second), err)
			checkpoint, batch := l.at()
			l.log.Error("outcome unknown", "checkpoint", checkpoint, "batch", batch, "since", d, "error", err)
		}
		l.failing(kind, err)
		if err := l.pause(StateVerifying, kind, err, attempt); err != nil {
			return m, err
		}
	}
}

// readMark asks for the mark once. When our own context has ended it does so on
// a short one that has not: to know is worth one more call.
func (l *lane) readMark() (sinks.Mark, error) {
	ctx, cancel := l.context(l.opts.MarkTimeout)
	if l.c.ctx.Err() != nil {
		cancel()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(l.ctx), l.opts.CloseTimeout/2)
	}
	defer cancel()
	begin := time.Now()
	defer func() { l.phases.Verify += time.Since(begin) }()
	return l.handle.Mark(ctx)
}

// pause waits before another attempt.
func (l *lane) pause(state State, kind sinks.Kind, err error, attempt int) error {
	wait := backoff(l.opts.RetryMin, l.opts.RetryMax, attempt)
	l.retrying(state, wait)
	r := Retry{Kind: kind, Err: err, Wait: wait, Attempt: attempt}
	r.Checkpoint, r.Batch = l.at()
	if l.log.Enabled(l.ctx, slog.LevelDebug) {
		l.log.Debug("trying again", "checkpoint", r.Checkpoint, "batch", r.Batch, "attempt", attempt, "kind", kind.String(), "error", err, "wait", wait.Round(time.Millisecond))
	}
	if f := l.opts.Observer.Retrying; f != nil {
		f(l.id.Lane, r)
	}
	defer func(begin time.Time) { l.phases.Wait += time.Since(begin) }(time.Now())
	if !l.c.sleep(l.c.ctx, wait) {
		return errStopping
	}
	return nil
}

// backoff is a random time up to base doubled for each attempt after the first,
// and up to limit.
func backoff(base, limit time.Duration, attempt int) time.Duration {
	top := limit
	if shift := attempt - 1; shift < 32 && base<<shift>>shift == base {
		top = min(limit, base<<shift)
	}
	return rand.N(top) + 1
}
