package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/sinks"
)

// A wave is the records of one batch that are flushed together.
type wave struct {
	lane  *clusterLane
	batch sinks.Audit
	index int // in Step.Batches
	from  uint64
	to    uint64 // record at which it ends
	ends  bool   // with the batch
	good  []item
	dead  []sinks.DeadLetter
	calls []*slotCall
}

// An item is a record and its number.
type item struct {
	number uint64
	rec    string
}

// group builds the calls.
func (w *wave) group() (bad []sinks.Reject) {
	l, seq, chain := w.lane, w.batch.Seq, w.batch.Chain().String()
	open := make(map[uint16]*slotCall)
	var v view
	for _, it := range w.good {
		slot, err := l.slotOf(&v, it.rec)
		if err != nil {
			bad = append(bad, sinks.Reject{Batch: w.index, Number: it.number, Reason: err.Error()})
			continue
		}
		call := open[slot]
		if call == nil || call.units > 0 && call.units+len(v.ends)+len(it.rec)/unitBytes > l.pace.units {
			var need coord
			first := call == nil
			if !first {
				need = call.at
			}
			call = l.newCall(slot, seq, chain, need)
			call.first = first
			open[slot] = call
			w.calls = append(w.calls, call)
		}
		call.add(&v, seq, it.number, len(it.rec))
	}
	return bad
}

// slotOf parses a record and returns the slot it lives in.
func (l *clusterLane) slotOf(v *view, rec string) (uint16, error) {
	if err := v.parse(rec); err != nil {
		return 0, err
	}
	if err := l.sink.ownKeys(v); err != nil {
		return 0, err
	}
	return oneSlot(v)
}

// slotList names the slots of the wave.
func (w *wave) slotList() string {
	var out []byte
	seen := make(map[uint16]bool, len(w.calls))
	for _, c := range w.calls {
		if seen[c.slot] {
			continue
		}
		if seen[c.slot] = true; len(out) > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendUint(out, uint64(c.slot), 10)
	}
	return string(out)
}

// flush brings the wave in: name the slots, touch them, move on. at is the tip it
// builds on; records and dead are the lane's counts there.
func (w *wave) flush(ctx context.Context, c *client, at tip, records, dead uint64) error {
	l, b := w.lane, w.batch
	batch, err := json.Marshal(b.Batch)
	if err != nil {
		return &sinks.Error{Kind: sinks.Permanent, Op: "flush", Lane: l.id, Checkpoint: b.Checkpoint, Err: err}
	}
	chain := b.Chain().String()
	if err := l.home(ctx, "flush", c, b.Checkpoint, at, "open", b.Seq, chain, string(batch), w.slotList()); err != nil {
		return err
	}
	at.part = chain
	crash.Point(crash.FlushChunkFirst)
	for _, call := range w.calls {
		if call.first {
			call.need(l.table[call.slot].at)
		}
	}
	calls := l.slotCalls(ctx, "flush", c, w.calls)
	if err := worst(b.Checkpoint, calls); err != nil {
		return err
	}
	crash.Point(crash.FlushChunkLast)
	poison := w.poison()
	done := w.to
	if len(poison) > 0 {
		done = poison[0].Number
	}
	if len(poison) == 0 || done > w.from {
		if err := w.close(ctx, c, at, done, records, dead, poison); err != nil {
			return err
		}
	}
	if len(poison) > 0 {
		return &sinks.Error{Kind: sinks.Poison, Op: "flush", Lane: l.id, Checkpoint: b.Checkpoint, Bad: poison}
	}
	return nil
}

// poison returns the records at which slots have stopped, ascending.
func (w *wave) poison() []sinks.Reject {
	var bad []sinks.Reject
	stopped := make(map[uint16]bool)
	for _, call := range w.calls {
		if call.err == nil || stopped[call.slot] || call.reply.status != "stop" {
			continue
		}
		stopped[call.slot] = true
		text := call.reply.text(3)
		r := sinks.Reject{Batch: w.index, Number: uint64(call.reply.number(1)), Code: code(text), Reason: reason(text)}
		if n := call.reply.number(2); n > 0 {
			r.Field = fmt.Sprintf("command %d", n+1)
		}
		bad = append(bad, r)
	}
	slices.SortFunc(bad, func(a, b sinks.Reject) int { return int(a.Number) - int(b.Number) })
	return bad
}

// close moves the home mark on to record done of the batch.
func (w *wave) close(ctx context.Context, c *client, at tip, done, records, dead uint64, poison []sinks.Reject) error {
	l, b := w.lane, w.batch
	for _, it := range w.good {
		if it.number < done {
			records++
		}
	}
	var letters []any
	for _, d := range w.dead {
		if d.Number < done {
			dead++
			letters = append(letters, d.Number, d.Field, d.Code, d.Reason, d.Record)
		}
	}
	head, row, why := "", "", ""
	if w.ends && done == w.to {
		h, err := headJSON(b.Head())
		if err != nil {
			return err
		}
		if b.FlushedAt.IsZero() {
			b.FlushedAt = time.Now().UTC().Truncate(time.Millisecond)
		}
		b.Dead = 0 // the script counts
		r, err := json.Marshal(b)
		if err != nil {
			return err
		}
		head, row = string(h), string(r)
	}
	if len(poison) > 0 {
		why = poison[0].Reason
	}
	args := append([]any{done, records, dead, len(letters) / 5}, letters...)
	args = append(args, b.Checkpoint, b.Seq, l.sink.opts.AuditRows, head, row, why)
	for slot, e := range w.entries() {
		args = append(args, int(slot), e.String())
		l.table[slot] = e
	}
	return l.home(ctx, "flush", c, b.Checkpoint, at, "close", args...)
}

// entries returns what the home mark is to know of the slots of the wave.
func (w *wave) entries() map[uint16]slotEntry {
	entries := make(map[uint16]slotEntry)
	for _, call := range w.calls {
		e, ok := entries[call.slot]
		if !ok {
			if e, ok = w.lane.table[call.slot]; !ok {
				e = slotEntry{first: w.batch.Seq}
			}
		}
		if call.err == nil && e.at.before(call.at) {
			e.at = call.at
		}
		entries[call.slot] = e
	}
	return entries
}

// Flush performs the step, batch by batch. Each is one atomic change of the home
// mark, see the package comment for what that means in a cluster.
func (l *clusterLane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	fail := func(kind sinks.Kind, err error) (sinks.Result, error) {
		e := &sinks.Error{Kind: kind, Op: "flush", Lane: l.id, Err: err}
		if len(step.Batches) > 0 {
			e.Checkpoint = step.Batches[0].Checkpoint
		}
		return sinks.Result{}, e
	}
	if err := ctx.Err(); err != nil {
		return fail(sinks.Cancelled, err)
	}
	if overrides(step) {
		return sinks.Result{}, l.override(ctx, step)
	}
	waves, err := l.waves(step)
	if err != nil {
		return sinks.Result{}, err
	}
	var bad []sinks.Reject
	for _, w := range waves {
		bad = append(bad, w.group()...)
	}
	if len(bad) > 0 {
		return sinks.Result{}, &sinks.Error{Kind: sinks.Poison, Op: "flush", Lane: l.id, Checkpoint: step.Batches[bad[0].Batch].Checkpoint, Bad: bad}
	}
	c, err := l.conn()
	if err != nil {
		return fail(sinks.Permanent, err)
	}
	defer c.guard(ctx)()
	crash.Point(crash.FlushBegun)
	at := tipOf(step.Prev)
	records, dead := step.Next.Records-uint64(step.Records), step.Next.Dead-uint64(len(step.Dead))
	for _, w := range waves {
		if err := w.flush(ctx, c, at, records, dead); err != nil {
			return sinks.Result{}, err
		}
		at = tip{chain: w.batch.Chain().String()}
		records, dead = records+uint64(len(w.good)), dead+uint64(len(w.dead))
	}
	return sinks.Result{}, nil
}

// waves reads the step. The error of Runs is passed on as it is.
func (l *clusterLane) waves(step *sinks.Step) ([]*wave, error) {
	waves := make([]*wave, len(step.Batches))
	for i, b := range step.Batches {
		waves[i] = &wave{lane: l, batch: b, index: i, to: b.Records, ends: true}
	}
	if p := step.Prev.Partial; p != nil && len(waves) > 0 {
		waves[0].from = p.Done
	}
	if p := step.Next.Partial; p != nil && len(waves) > 0 {
		w := waves[len(waves)-1]
		w.to, w.ends = p.Done, false
	}
	for run, err := range step.Runs {
		if err != nil {
			return nil, err
		}
		if run.Batch < 0 || run.Batch >= len(waves) {
			return nil, &sinks.Error{Kind: sinks.Permanent, Op: "flush", Lane: l.id, Err: fmt.Errorf("step: run of batch %d", run.Batch)}
		}
		w := waves[run.Batch]
		text := string(run.Block.Payload())
		for i := range run.Block.Len() {
			n := len(run.Block.Record(i))
			w.good = append(w.good, item{run.First + uint64(i), text[:n]})
			text = text[n:]
		}
	}
	for _, d := range step.Dead {
		waves[d.Batch].dead = append(waves[d.Batch].dead, d)
	}
	return waves, nil
}
