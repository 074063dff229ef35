package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/walsink/walsink/sinks"
)

// overrides reports whether a step moves the mark on an operator's word: it has no
// record, and its next mark is not, or not only, what its batches come to.
func overrides(step *sinks.Step) bool {
	n := len(step.Batches)
	return step.Records == 0 && len(step.Dead) == 0 && step.Next.Partial == nil &&
		(n == 0 || step.Lost > 0 || step.Batches[n-1].Chain() != step.Next.Chain)
}

// override performs such a step.
func (b *base) override(ctx context.Context, step *sinks.Step) error {
	c, err := b.conn()
	if err != nil {
		return &sinks.Error{Kind: sinks.Permanent, Op: "flush", Lane: b.id, Err: err}
	}
	defer c.guard(ctx)()
	row, fresh := "", 0
	if n := len(step.Batches); n > 0 {
		a := step.Batches[n-1]
		dead := a.Dead
		a.Dead, a.FlushedAt = 0, time.Now().UTC().Truncate(time.Millisecond)
		data, err := json.Marshal(a)
		if err != nil {
			return fmt.Errorf("batch %d: %w", a.Seq, err)
		}
		row = fmt.Sprintf("%d:%s", dead, data)
		if a.Seq != step.Prev.Seq+1 {
			fresh = 1
		}
	}
	head, err := headJSON(step.Next.Head())
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	at := tipOf(step.Prev)
	sent := c.sent.Load()
	r, err := b.sink.scripts.override.run(ctx, c, []string{b.keys.mark, b.keys.audit}, nil,
		b.fence, b.owner, b.session, at.chain, at.part, at.done, time.Now().UTC().Format(time.RFC3339Nano),
		step.Next.Chain.String(), string(head), step.Next.Records, step.Next.Dead, b.sink.opts.AuditRows, row, fresh)
	if err != nil {
		return b.fail(ctx, "flush", step.Next.Checkpoint, err, c.sent.Load() > sent)
	}
	if r.status != "ok" {
		return b.refused("flush", step.Next.Checkpoint, r)
	}
	return nil
}
