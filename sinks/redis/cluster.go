package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
)

// A clusterLane is a handle on a lane of a cluster.
type clusterLane struct {
	*base
	table map[uint16]slotEntry // what the home mark knows; nil before it was read
}

func (l *clusterLane) acquire(ctx context.Context) (sinks.Mark, error) {
	mark, fields, err := l.own(ctx, "acquire", 0, true)
	if err != nil {
		return mark, err
	}
	return l.settle(ctx, "acquire", mark, fields)
}

// Mark reads the mark. If a call was left without an answer or was told of a slot
// that is behind, it fences the slots that were named again, and looks at all
// slots that the lane has touched.
func (l *clusterLane) Mark(ctx context.Context) (sinks.Mark, error) {
	settle := l.dirty
	mark, fields, err := l.own(ctx, "mark", l.fence, settle)
	if err != nil || !settle {
		return mark, err
	}
	return l.settle(ctx, "mark", mark, fields)
}

// settle makes sure that no call from before can write in a slot, and that no
// slot is behind what the home mark says.
func (l *clusterLane) settle(ctx context.Context, op string, mark sinks.Mark, fields map[string]string) (sinks.Mark, error) {
	l.dirty = true
	c, err := l.conn()
	if err != nil {
		return sinks.Mark{}, err
	}
	defer c.guard(ctx)()
	named, err := parseSlots(fields["i"])
	if err != nil {
		return sinks.Mark{}, l.corrupt(op, err)
	}
	if err := l.fenceSlots(ctx, op, c, named); err != nil {
		return sinks.Mark{}, err
	}
	lost, err := l.verify(ctx, op, c)
	if err != nil {
		return sinks.Mark{}, err
	}
	if len(lost) > 0 {
		if err := l.heal(ctx, op, c, mark, fields, lost); err != nil {
			return sinks.Mark{}, err
		}
		if mark, _, err = l.own(ctx, op, l.fence, false); err != nil {
			return sinks.Mark{}, err
		}
	}
	l.dirty = false
	return mark, nil
}

func (l *clusterLane) corrupt(op string, err error) error {
	return &sinks.Error{Kind: sinks.Permanent, Op: op, Lane: l.id,
		Err: fmt.Errorf("ledger of lane %s: %w: restore the ledger keys, or delete them and open accepting loss or duplicates", l.id, err)}
}

// fenceSlots takes over the slots.
func (l *clusterLane) fenceSlots(ctx context.Context, op string, c *client, list []uint16) error {
	calls := make([]*slotCall, len(list))
	for i, slot := range list {
		calls[i] = l.newCall(slot, 0, "", coord{})
	}
	return worst(0, l.slotCalls(ctx, op, c, calls))
}

// verify reads the slot table and the mark of each slot in it, and returns how far
// the slots are that are behind.
func (l *clusterLane) verify(ctx context.Context, op string, c *client) (map[uint16]coord, error) {
	fields, err := c.HGetAll(ctx, l.keys.slots).Result()
	if err != nil {
		return nil, l.fail(ctx, op, 0, err, true)
	}
	if l.table, err = parseTable(fields); err != nil {
		return nil, l.corrupt(op, err)
	}
	pipe := c.Pipeline()
	cmds := make(map[uint16]*goredis.SliceCmd, len(l.table))
	for slot := range l.table {
		cmds[slot] = pipe.HMGet(ctx, l.slotMark(slot), "q", "d")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	lost := make(map[uint16]coord)
	for slot, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return nil, l.fail(ctx, op, 0, err, true)
		}
		at := coord{uintOf(cmd.Val()[0]), uintOf(cmd.Val()[1])}
		if at.before(l.table[slot].at) {
			lost[slot] = at
		}
	}
	return lost, nil
}

func uintOf(v any) uint64 {
	s, _ := v.(string)
	n, _ := strconv.ParseUint(s, 10, 64) // a field that is missing is zero
	return n
}

// home runs a step of the home mark that builds on the tip.
func (l *clusterLane) home(ctx context.Context, op string, c *client, checkpoint uint64, at tip, step string, args ...any) error {
	all := []any{l.fence, l.owner, l.session, at.chain, at.part, at.done, step, time.Now().UTC().Format(time.RFC3339Nano)}
	keys := []string{l.keys.mark, l.keys.audit, l.keys.dead, l.keys.slots}
	sent := c.sent.Load()
	r, err := l.sink.scripts.home.run(ctx, c, keys, nil, append(all, args...)...)
	if err != nil {
		return l.fail(ctx, op, checkpoint, err, c.sent.Load() > sent)
	}
	if r.status != "ok" {
		return l.refused(op, checkpoint, r)
	}
	return nil
}

// heal sets the home mark back to a batch that every slot has, so that the engine
// sends what came after it again. Slots that have it already pass it over.
func (l *clusterLane) heal(ctx context.Context, op string, c *client, mark sinks.Mark, fields map[string]string, lost map[uint16]coord) error {
	back := mark.Seq // all batches up to it are wanted
	var pairs []any
	for slot, at := range lost {
		e := l.table[slot]
		last := max(at.seq, e.first)
		back = min(back, last-min(last, 1))
		e.at = at
		l.table[slot] = e
		pairs = append(pairs, int(slot), e.String())
	}
	h, err := l.rewind(ctx, mark, back)
	if err != nil {
		return &sinks.Error{Kind: sinks.Permanent, Op: op, Lane: l.id, Err: fmt.Errorf("%d slots have lost their last writes: %w", len(lost), err)}
	}
	args := []any{h.mark.Chain.String(), h.head, h.mark.Records, h.mark.Dead, mark.Seq - back, h.chains + fields["g"]}
	return l.home(ctx, op, c, 0, tipOf(mark), "heal", append(args, pairs...)...)
}

// A rewound mark is an earlier one, and the chains of the batches after it: they
// must come again as they were.
type rewound struct {
	mark   sinks.Mark
	head   string
	chains string
}

func (l *clusterLane) rewind(ctx context.Context, mark sinks.Mark, back uint64) (rewound, error) {
	to := sinks.Mark{Chain: l.id.Genesis(), Records: mark.Records, Dead: mark.Dead}
	r := rewound{chains: " "}
	found := back == 0
	if p := mark.Partial; p != nil {
		to.Dead -= uint64(len(p.Dead))
		to.Records -= p.Done - uint64(len(p.Dead))
		r.chains += fmt.Sprintf("%d:%s ", p.Batch.Seq, p.Batch.Chain())
	}
	for row, err := range l.sink.Audit(ctx, l.id, max(back, 1)-1) {
		if err != nil {
			return r, err
		}
		switch {
		case row.Seq == back:
			found, to.Chain = true, row.Chain()
			head, err := headJSON(row.Head())
			if err != nil {
				return r, err
			}
			r.head = string(head)
		case row.Seq > mark.Seq:
		default:
			to.Dead -= row.Dead
			to.Records -= row.Records - row.Dead
			r.chains += fmt.Sprintf("%d:%s ", row.Seq, row.Chain())
		}
	}
	if !found {
		return r, fmt.Errorf("the audit row of batch %d is no longer retained: restore the shard, or delete the ledger keys of the lane and open accepting loss or duplicates", back)
	}
	r.mark = to
	return r, nil
}
