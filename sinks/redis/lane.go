package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/sinks"
)

// A lane is a handle on a lane of a single server.
type lane struct {
	*base
	cut cutter
}

func (l *lane) acquire(ctx context.Context) (sinks.Mark, error) {
	mark, _, err := l.own(ctx, "acquire", 0, true)
	return mark, err
}

// Mark reads the mark. If a call was left without an answer, the session is
// raised with it, so that what may still be under way is refused.
func (l *lane) Mark(ctx context.Context) (sinks.Mark, error) {
	mark, _, err := l.own(ctx, "mark", l.fence, l.dirty || l.sink.opts.waits())
	return mark, err
}

// Flush performs the step. It is atomic per chunk: after an error the mark says
// which records are in, and these are the first ones of the step.
func (l *lane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	checkpoint := uint64(0)
	if len(step.Batches) > 0 {
		checkpoint = step.Batches[0].Checkpoint
	}
	f := flush{lane: l, cut: &l.cut, checkpoint: checkpoint}
	if err := ctx.Err(); err != nil {
		return sinks.Result{}, f.fail(sinks.Cancelled, err)
	}
	if overrides(step) {
		return sinks.Result{}, l.override(ctx, step)
	}
	l.cut.begin(l, step)
	defer l.cut.release()
	crash.Point(crash.FlushBegun)
	if err := f.step(ctx, step); err != nil {
		return sinks.Result{}, err
	}
	return f.result, nil
}

// A flush is one call of Flush.
type flush struct {
	lane       *lane
	cut        *cutter
	checkpoint uint64
	result     sinks.Result
}

func (f *flush) fail(kind sinks.Kind, err error) *sinks.Error {
	return &sinks.Error{Kind: kind, Op: "flush", Lane: f.lane.id, Checkpoint: f.checkpoint, Err: err}
}

// step cuts the step into chunks and sends them all. Nothing is sent before Runs
// has come to its end, since the log compares what it read only there.
func (f *flush) step(ctx context.Context, step *sinks.Step) error {
	dead := step.Dead
	for run, err := range step.Runs {
		if err != nil {
			return err
		}
		if dead, err = f.letters(dead, run.Batch, run.First); err != nil {
			return f.invalid(ctx, err)
		}
		if err = f.run(ctx, run); err != nil {
			return err
		}
	}
	if len(f.cut.bad) > 0 {
		e := f.fail(sinks.Poison, nil)
		e.Bad = f.cut.bad
		return e
	}
	if err := f.finish(dead); err != nil {
		return f.invalid(ctx, err)
	}
	return f.send(ctx)
}

func (f *flush) run(ctx context.Context, run sinks.Run) error {
	if len(f.cut.bad) == 0 && (run.Batch != f.cut.batch || run.First != f.cut.tip.done) {
		return f.invalid(ctx, fmt.Errorf("run of batch %d begins at record %d, want batch %d record %d",
			run.Batch, run.First, f.cut.batch, f.cut.tip.done))
	}
	if err := f.cut.take(run); err != nil {
		return f.invalid(ctx, err)
	}
	return nil
}

// invalid is about a step whose records do not fit its marks. If its Prev is not
// what the store has, that comes first.
func (f *flush) invalid(ctx context.Context, err error) error {
	m, merr := f.lane.Mark(ctx)
	switch {
	case merr != nil:
		return merr
	case m.Tip() != f.cut.step.Prev.Tip():
		return f.fail(sinks.Moved, errors.New("the tip in the store is another one"))
	}
	return f.fail(sinks.Permanent, fmt.Errorf("step: %w", err))
}

// letters adds the dead letters that come before a record, and ends the batches
// that are over there. It returns the dead letters that are left.
func (f *flush) letters(dead []sinks.DeadLetter, batch int, number uint64) ([]sinks.DeadLetter, error) {
	if len(f.cut.bad) > 0 {
		return dead, nil
	}
	for len(dead) > 0 && (dead[0].Batch < batch || dead[0].Batch == batch && dead[0].Number < number) {
		d := dead[0]
		if err := f.endUntil(d.Batch); err != nil {
			return dead, err
		}
		if d.Number != f.cut.tip.done {
			return dead, fmt.Errorf("dead letter of record %d, want record %d", d.Number, f.cut.tip.done)
		}
		if err := f.cut.letter(d); err != nil {
			return dead, err
		}
		dead = dead[1:]
	}
	return dead, f.endUntil(batch)
}

func (f *flush) endUntil(batch int) error {
	for f.cut.batch < batch {
		if err := f.cut.end(); err != nil {
			return err
		}
	}
	return nil
}

// finish adds what comes after the last run.
func (f *flush) finish(dead []sinks.DeadLetter) error {
	step := f.cut.step
	last := len(step.Batches)
	if step.Next.Partial != nil {
		last--
	}
	if _, err := f.letters(dead, last, math.MaxUint64); err != nil {
		return err
	}
	f.cut.close()
	if f.cut.tip != tipOf(step.Next) {
		return fmt.Errorf("its records end at record %d of batch %d, not at its next mark", f.cut.tip.done, f.cut.batch)
	}
	return nil
}

// send sends the chunks and takes the answers apart.
func (f *flush) send(ctx context.Context) error {
	c, err := f.lane.conn()
	if err != nil {
		return f.fail(sinks.Permanent, err)
	}
	defer c.guard(ctx)()
	for from, loads := 0, 0; from < len(f.cut.chunks); {
		done, err := f.exchange(ctx, c, f.cut.chunks[from:])
		if from += done; from == len(f.cut.chunks) && err == nil {
			break
		}
		if !isNoScript(err) || loads == maxLoads {
			return f.failed(ctx, err)
		}
		loads++
		if err := f.lane.sink.scripts.flush.load(ctx, c, f.lane.keys.mark); err != nil {
			return f.failed(ctx, err)
		}
	}
	return nil
}

// failed passes on what is classified already.
func (f *flush) failed(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*sinks.Error](err); ok {
		return e
	}
	return f.lane.fail(ctx, "flush", f.checkpoint, err, true)
}

// exchange sends chunks in one go and returns how many of them are in. The first
// one that is not gives the error: those behind it were refused by the tip.
func (f *flush) exchange(ctx context.Context, c *client, chunks []*chunk) (int, error) {
	if plant.Active(plant.RedisLedgerLate) {
		f.dataFirst(ctx, c, chunks)
	}
	before := c.sent.Load()
	pipe := c.Pipeline()
	for _, ch := range chunks {
		ch.cmd = goredis.NewCmd(ctx, ch.args...)
		pipe.Process(ctx, ch.cmd) //nolint:errcheck // Exec says
	}
	var wait goredis.Cmder
	if f.lane.sink.opts.waits() {
		wait = f.lane.sink.opts.wait(ctx)
		pipe.Process(ctx, wait) //nolint:errcheck // Exec says
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	crash.Point(crash.FlushSent)
	for _, ch := range chunks { // also those behind one that was refused
		f.lane.dirty = f.lane.dirty || unanswered(ch.cmd.Err())
	}
	for i, ch := range chunks {
		if err := ch.cmd.Err(); err != nil {
			if isNoScript(err) {
				return i, err
			}
			return i, f.lane.fail(ctx, "flush", f.checkpoint, err, c.sent.Load() > before)
		}
		r, err := parseReply(ch.cmd.Val(), ch.nonce)
		if err != nil {
			return i, f.lane.fail(ctx, "flush", f.checkpoint, err, true)
		}
		if err := f.answer(ch, r); err != nil {
			return i, err
		}
	}
	if wait != nil {
		if err := f.lane.sink.opts.waited(wait); err != nil {
			return len(chunks), f.lane.fail(ctx, "flush", f.checkpoint, err, true)
		}
	}
	return len(chunks), nil
}

// dataFirst is a planted bug.
func (f *flush) dataFirst(ctx context.Context, c *client, chunks []*chunk) {
	for _, ch := range chunks {
		c.Do(ctx, append([]any{"eval", dataOnly().source}, ch.args[2:]...)...)
	}
	crash.Point(crash.FlushSent)
}

// answer takes the answer for one chunk.
func (f *flush) answer(ch *chunk, r reply) error {
	if r.status != "ok" && r.status != "stop" {
		return f.lane.refused("flush", f.checkpoint, r)
	}
	took := time.Duration(r.number(0)) * time.Microsecond
	f.lane.pace.learn(ch.units, took)
	for _, v := range r.list(1) {
		item, _ := v.([]any)
		f.result.Rejected = append(f.result.Rejected, rejectOf(reply{rest: item}, 0, 1, 2))
	}
	if r.status == "ok" {
		return nil
	}
	text := r.text(5)
	e := f.fail(commandKind(text), nil)
	bad := rejectOf(r, 2, 3, 5)
	if n := r.number(4); n > 0 {
		bad.Field = fmt.Sprintf("command %d", n+1)
	}
	if e.Kind == sinks.Poison {
		e.Bad = []sinks.Reject{bad}
		return e
	}
	e.Err = fmt.Errorf("batch %d record %d: %w", f.cut.step.Batches[bad.Batch].Seq, bad.Number, serverError("", text))
	return e
}

func rejectOf(r reply, batch, number, text int) sinks.Reject {
	s := r.text(text)
	return sinks.Reject{
		Batch: int(r.number(batch)), Number: uint64(r.number(number)), Code: code(s), Reason: reason(s),
	}
}
