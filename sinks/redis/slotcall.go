package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
)

// A slotCall is one script call in one slot.
type slotCall struct {
	slot  uint16
	keys  []any
	argv  []any
	nonce string
	units int
	first bool  // the first of its slot
	at    coord // where the slot is afterwards
	cmd   *goredis.Cmd
	reply reply
	err   error // classified; nil if it went well
}

// newCall makes a call that needs the slot to have reached need. Without items it
// only fences.
func (l *clusterLane) newCall(slot uint16, seq uint64, chain string, need coord) *slotCall {
	c := &slotCall{slot: slot, nonce: newNonce(), at: need}
	c.keys = []any{l.slotMark(slot)}
	c.argv = []any{c.nonce, l.fence, l.owner, l.session, seq, chain, need.seq, need.done}
	return c
}

// need says how far the slot must be.
func (c *slotCall) need(at coord) { c.argv[6], c.argv[7] = at.seq, at.done }

// add adds the record that v holds.
func (c *slotCall) add(v *view, seq, number uint64, size int) {
	c.argv = append(c.argv, number, len(v.ends))
	for spec, args := range v.commands() {
		c.argv = append(c.argv, len(args))
		for _, a := range args {
			c.argv = append(c.argv, a)
		}
		for key := range spec.keys(args) {
			c.keys = append(c.keys, key)
		}
	}
	c.units += len(v.ends) + size/unitBytes
	c.at = coord{seq, number + 1}
}

// slotCalls sends the calls, those of one slot in order, and waits for all
// answers. It loads the script where it is missing.
func (l *clusterLane) slotCalls(ctx context.Context, op string, c *client, calls []*slotCall) []*slotCall {
	left := calls
	for load := 0; len(left) > 0; load++ {
		before := c.sent.Load()
		pipe := c.Pipeline()
		for _, call := range left {
			args := append([]any{"evalsha", l.sink.scripts.slot.sha, len(call.keys)}, call.keys...)
			call.cmd = goredis.NewCmd(ctx, append(args, call.argv...)...)
			pipe.Process(ctx, call.cmd) //nolint:errcheck // Exec says
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		var again []*slotCall
		for _, call := range left {
			if load < maxLoads && isNoScript(call.cmd.Err()) || isBehind(call, again) {
				again = append(again, call)
				continue
			}
			l.settleCall(ctx, op, call, c.sent.Load() > before)
		}
		if left = again; len(left) == 0 {
			break
		}
		if call, err := l.load(ctx, c, left); err != nil {
			call.err = l.fail(ctx, op, 0, err, true)
			return calls
		}
	}
	return calls
}

// load gives the script to every node that one of the calls goes to.
func (l *clusterLane) load(ctx context.Context, c *client, calls []*slotCall) (*slotCall, error) {
	loaded := make(map[*goredis.Client]bool)
	for _, call := range calls {
		node, err := c.master(ctx, l.slotMark(call.slot))
		if err == nil && !loaded[node] {
			loaded[node] = true
			err = node.ScriptLoad(ctx, l.sink.scripts.slot.source).Err()
		}
		if err != nil {
			return call, err
		}
	}
	return nil, nil
}

// isBehind reports whether a call was refused because one before it in its slot
// has to be sent again.
func isBehind(call *slotCall, again []*slotCall) bool {
	return slices.ContainsFunc(again, func(a *slotCall) bool { return a.slot == call.slot })
}

// settleCall takes the answer.
func (l *clusterLane) settleCall(ctx context.Context, op string, call *slotCall, sent bool) {
	err := call.cmd.Err()
	if err == nil {
		call.reply, err = parseReply(call.cmd.Val(), call.nonce)
	}
	if err != nil {
		call.err = l.fail(ctx, op, 0, fmt.Errorf("slot %d: %w", call.slot, err), sent)
		return
	}
	e := &sinks.Error{Op: op, Lane: l.id}
	switch call.reply.status {
	case "ok":
		l.pace.learn(call.units, time.Duration(call.reply.number(0))*time.Microsecond)
		return
	case "stop":
		text := call.reply.text(3)
		e.Kind, e.Err = commandKind(text), fmt.Errorf("slot %d record %d: %w", call.slot, call.reply.number(1), serverError("", text))
	case "slot fenced":
		l.exceed, l.dirty = max(l.exceed, uintOf(call.reply.text(0))), true
		e.Kind, e.Err = sinks.Transient, fmt.Errorf("slot %d has fence %s, ours is %d", call.slot, call.reply.text(0), l.fence)
	case "lost":
		l.dirty = true
		e.Kind, e.Err = sinks.Moved, fmt.Errorf("slot %d has lost its last writes", call.slot)
	case "differs":
		e.Kind, e.Err = sinks.Permanent, fmt.Errorf("slot %d holds another batch %s than the one that is flushed: %w",
			call.slot, call.reply.text(0), errReplay)
	default:
		call.err = l.refused(op, 0, call.reply)
		return
	}
	call.err = e
}

// worst returns the error that decides, if any call has one: of a slot, only the
// first one counts, and poison only where there is nothing else.
func worst(checkpoint uint64, calls []*slotCall) error {
	order := []sinks.Kind{sinks.Cancelled, sinks.Fenced, sinks.Permanent, sinks.Ambiguous, sinks.Moved, sinks.Transient}
	rank := func(err error) int { return slices.Index(order, sinks.KindOf(err)) }
	var worst error
	failed := make(map[uint16]bool)
	for _, call := range calls {
		if call.err == nil || failed[call.slot] {
			continue
		}
		failed[call.slot] = true
		if r := rank(call.err); r >= 0 && (worst == nil || r < rank(worst)) {
			worst = call.err
		}
	}
	if e, ok := errors.AsType[*sinks.Error](worst); ok {
		e.Checkpoint = checkpoint
	}
	return worst
}
