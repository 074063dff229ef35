package committer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// maxBatches bounds the batches of one step: each is an audit row.
const maxBatches = 1000

// A lane is a worker. Fields above mu belong to it alone once it runs.
type lane struct {
	c    *Committer
	id   sinks.LaneID
	key  string // the lane's name in the log
	info sinks.Info
	opts Options
	log  *slog.Logger

	handle sinks.Lane
	fence  uint64 // under which the lane was taken over; it does not change
	mark   sinks.Mark
	src    *source
	todo   []record.Batch  // what the log was found to hold beyond the mark; may be the beginning of it
	cuts   []part          // what is left of the batch that is being cut
	notes  map[uint64]note // by Seq, of batches not yet in, as they were noted
	opened uint64          // end of the log when the lane was opened; up to it nothing waits
	since  time.Time       // when the worker first saw what is pending now
	ctx    context.Context // of the calls of the sink for the step under way
	phases Phases          // of the step under way

	wake chan struct{} // holds one token
	done chan struct{} // closed when the worker has ended

	closeErr error // of the handle; set before done is closed

	mu      sync.Mutex
	status  LaneStatus
	err     error         // why the worker stopped
	changed chan struct{} // closed and replaced when status or err changes
}

// errStopping ends a worker because the Committer closes.
var errStopping = errors.New("closing")

func (l *lane) run() {
	defer close(l.done)
	err := l.work()
	l.src.cursor.close()
	if cerr := l.handle.Close(); cerr != nil {
		l.closeErr = fmt.Errorf("close lane %s: %w", l.id, cerr)
	}
	l.ended(err)
}

// work flushes what is complete, oldest first, until something stops the lane.
func (l *lane) work() error {
	for {
		if l.c.stopping() {
			return errStopping
		}
		st, wait, err := l.next()
		switch {
		case err != nil:
			return err
		case st != nil:
			if err := l.perform(st); err != nil {
				return err
			}
		default:
			if err := l.idle(wait); err != nil {
				return err
			}
		}
	}
}

// idle waits for news, or for the given time if it is not 0.
func (l *lane) idle(wait time.Duration) error {
	state := StateIdle
	var timer <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		state, timer = StateWaiting, t.C
	}
	l.setState(state)
	select {
	case <-l.wake:
	case <-timer:
	case <-l.c.stop:
		return errStopping
	}
	return nil
}

// pending returns complete batches that continue the mark, at least one if there is
// one. The log is read anew when those found before are in, and not for each step,
// since it may hold very many.
func (l *lane) pending() ([]record.Batch, error) {
	head, _, _ := l.c.log.Head(l.key)
	if head.Chain == l.mark.Chain {
		return nil, nil
	}
	for len(l.todo) > 0 && l.todo[0].Seq <= l.mark.Seq {
		l.todo = l.todo[1:]
	}
	if len(l.todo) > 0 && l.todo[0].Prev == l.mark.Chain {
		return l.todo, nil
	}
	v := viewOf(l.c.log, l.key)
	i, ok := v.connect(l.mark)
	if !ok {
		return nil, cmp.Or(l.lost(v, l.mark), ErrStateBehind)
	}
	l.todo = v.batches[i:]
	return l.todo, nil
}

// lost says why a running lane cannot go on from m, if it cannot: a refusal of
// the opening table, of which only a start could take the way out.
func (l *lane) lost(v view, m sinks.Mark) error {
	err := decide(v, m, Options{Stateful: true}).err
	if err == nil {
		return nil
	}
	return fmt.Errorf("flush lane %s: the store moved under the running lane: %w; open the lane again", l.id, err)
}

// next returns the step that comes next, or how long to wait for it, 0 for ever.
func (l *lane) next() (*step, time.Duration, error) {
	batches, err := l.pending()
	if err != nil {
		return nil, 0, err
	}
	if len(batches) == 0 {
		l.since, l.todo = time.Time{}, nil
		return nil, 0, nil
	}
	if wait := l.hold(batches); wait > 0 {
		l.todo = nil // there may be more when the wait ends
		return nil, wait, nil
	}
	if err := samePartial(l.mark, batches[0]); err != nil {
		return nil, 0, fmt.Errorf("flush lane %s: %w", l.id, err)
	}
	parts, err := l.parts(batches)
	if err != nil {
		return nil, 0, l.wrap("read", batches[0].Checkpoint, err)
	}
	st, err := l.src.step(l.id, l.mark, parts)
	if err != nil {
		return nil, 0, l.wrap("read", batches[0].Checkpoint, err)
	}
	st.Tolerate = l.tolerate(parts)
	return st, 0, nil
}

// hold says how much longer the batches wait for company.
func (l *lane) hold(batches []record.Batch) time.Duration {
	if l.since.IsZero() {
		l.since = time.Now()
	}
	var bytes int64
	for _, b := range batches {
		bytes += int64(b.Bytes)
	}
	if l.opts.FlushAge <= 0 || l.mark.Seq < l.opened || l.mark.Partial != nil || l.c.draining.Load() > 0 ||
		l.opts.FlushBytes > 0 && bytes >= l.opts.FlushBytes {
		return 0
	}
	return l.opts.FlushAge - time.Since(l.since)
}

// parts chooses what goes into the next step: the next part of a batch that has
// to be cut, or as many whole batches as fit.
func (l *lane) parts(batches []record.Batch) ([]part, error) {
	first := batches[0]
	if n, err := l.noted(first); err != nil || n.GivenUp {
		return []part{rest(first, l.mark)}, err
	}
	if l.mark.Partial != nil || l.info.Chunked && l.info.StepBytes > 0 && int64(first.Bytes) > l.info.StepBytes {
		return l.cut(first)
	}
	limit := l.opts.StepBytes
	if l.info.StepBytes > 0 {
		limit = min(limit, l.info.StepBytes)
	}
	var parts []part
	var bytes int64
	for _, b := range batches {
		bytes += int64(b.Bytes)
		if len(parts) > 0 && (bytes > limit || !l.takes(b)) || len(parts) == maxBatches {
			break
		}
		if err := l.format(b); err != nil {
			return nil, err
		}
		n, err := l.noted(b)
		if err != nil {
			return nil, err
		}
		if n.GivenUp {
			break
		}
		parts = append(parts, whole(b, n.Dead))
	}
	return parts, nil
}

// cut returns the next part of a batch that is written in several steps.
func (l *lane) cut(b record.Batch) ([]part, error) {
	if err := l.format(b); err != nil {
		return nil, err
	}
	var from uint64
	if l.mark.Partial != nil {
		from = l.mark.Partial.Done
	}
	for len(l.cuts) > 0 && (l.cuts[0].batch.Seq != b.Seq || l.cuts[0].from < from) {
		l.cuts = l.cuts[1:]
	}
	if len(l.cuts) == 0 || l.cuts[0].from != from {
		var limit int64
		if l.info.Chunked {
			limit = l.info.StepBytes
		}
		cuts, err := l.src.cut(b, from, limit)
		if err != nil {
			return nil, err
		}
		l.cuts = cuts
	}
	p := l.cuts[0]
	n, err := l.noted(b)
	p.split = n.Dead
	return []part{p}, err
}

// tolerate is how many more dead records each of the batches may have.
func (l *lane) tolerate(parts []part) int {
	if !l.opts.DeadLetters {
		return 0
	}
	n := l.opts.DeadLimit
	for _, p := range parts {
		n = min(n, max(0, l.opts.DeadLimit-len(p.split)))
	}
	return n
}

// takes reports whether the sink flushes a batch in its wire form.
func (l *lane) takes(b record.Batch) bool {
	if b.Format == l.info.Format {
		return true
	}
	t, ok := l.c.sink.(sinks.Taker)
	return ok && t.Takes(b.Format)
}

// format refuses a batch in a wire form that the sink does not take.
func (l *lane) format(b record.Batch) error {
	if l.takes(b) {
		return nil
	}
	return fmt.Errorf("%w: it is %q, sink %s takes %q; drain with the options it was written under, then change them",
		ErrFormat, b.Format, l.info.Name, l.info.Format)
}

// noted is the note of a batch, with the dead records that the mark knows of.
func (l *lane) noted(b record.Batch) (note, error) {
	n, ok := l.notes[b.Seq]
	var err error
	if !ok {
		var data []byte
		if data, err = l.c.log.Note(l.key, b.Seq); err == nil {
			n, err = decodeNote(data, b)
		}
	}
	if p := l.mark.Partial; p != nil && p.Batch.Seq == b.Seq {
		n.Dead = n.Dead.adopt(p)
	}
	return n, err
}

// adopt takes m for the mark, and tells the log.
func (l *lane) adopt(m sinks.Mark) error {
	crash.Point(crash.FlushAnswered)
	l.mark = m
	if m.Partial == nil {
		l.src.cursor.close() // what was cut is in, and the log is to drop it
	}
	maps.DeleteFunc(l.notes, func(seq uint64, _ note) bool { return seq <= m.Seq })
	if err := l.c.commit(l.key, m.Seq); err != nil {
		return fmt.Errorf("commit lane %s batch %d: %w", l.id, m.Seq, err)
	}
	crash.Point(crash.FlushNoted)
	if m.Seq > 0 && m.Seq <= l.opened {
		crash.Point(crash.OpenFlushed)
	}
	return nil
}

// at is where the lane is: the first batch that is not in, or the last that is.
func (l *lane) at() (checkpoint, batch uint64) {
	for _, b := range l.todo {
		if b.Seq > l.mark.Seq {
			return b.Checkpoint, b.Seq
		}
	}
	return l.mark.Checkpoint, l.mark.Seq
}

func (l *lane) wrap(op string, checkpoint uint64, err error) error {
	return fmt.Errorf("%s lane %s checkpoint %d: %w", op, l.id, checkpoint, err)
}

// context returns the context of one call of the sink.
func (l *lane) context(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.ctx, d)
}
