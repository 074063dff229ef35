package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
)

// A base is what handles of single servers and of clusters have in common: the
// right to a lane, and a client to use it with.
type base struct {
	sink  *Sink
	id    sinks.LaneID
	keys  keys
	owner string // tells this handle from another one with the same fence

	fence   uint64
	exceed  uint64  // a fence found in a slot, to be exceeded; 0 if none
	session string  // raised to refuse what an earlier call may have left in flight
	client  *client // of this handle alone; nil until needed
	dirty   bool    // a call got no answer
	pace    pace
}

func (s *Sink) newBase(id sinks.LaneID) *base {
	return &base{sink: s, id: id, keys: s.opts.keys(id), owner: rand.Text(), pace: newPace(s.opts)}
}

// conn returns the client of the handle.
func (b *base) conn() (*client, error) {
	if b.client != nil {
		return b.client, nil
	}
	c, err := dial(b.sink.from, 2, b.sink.opts.longest())
	b.client = c
	return c, err
}

// drop throws the client away with all its connections, so that no later call
// can meet an answer of this one.
func (b *base) drop() {
	if b.client != nil {
		b.client.sever()
		b.client.Close() // it was cut
		b.client = nil
	}
}

// Close releases the handle's connections.
func (b *base) Close() error {
	b.drop()
	return nil
}

// enlist puts the lane on the list that Marks reads, before it has a mark.
func (b *base) enlist(ctx context.Context) error {
	return b.sink.control.SAdd(ctx, b.keys.lanes, b.id.Lane).Err()
}

// fail makes the error of a call that got no proper answer, and throws the
// connection away.
func (b *base) fail(ctx context.Context, op string, checkpoint uint64, err error, sent bool) error {
	kind := classify(ctx, err, sent)
	if kind == sinks.Ambiguous || kind == sinks.Cancelled {
		b.dirty = true
	}
	b.drop()
	return &sinks.Error{Kind: kind, Op: op, Lane: b.id, Checkpoint: checkpoint, Err: redact(err)}
}

// redact keeps a server's text from showing what may come from a record, and
// leaves other errors alone.
func redact(err error) error {
	if server, ok := errors.AsType[goredis.Error](err); ok {
		return serverError("", server.Error())
	}
	return err
}

// own runs the script that takes the lane over, with fence 0, or reads its mark.
func (b *base) own(ctx context.Context, op string, fence uint64, settle bool) (sinks.Mark, map[string]string, error) {
	c, err := b.conn()
	if err != nil {
		return sinks.Mark{}, nil, err
	}
	defer c.guard(ctx)()
	b.dirty = b.dirty || settle
	sent := c.sent.Load()
	var wait []goredis.Cmder
	if b.sink.opts.waits() {
		wait = append(wait, b.sink.opts.wait(ctx))
	}
	r, err := b.sink.scripts.own.run(ctx, c, []string{b.keys.mark}, wait,
		b.owner, fence, settle, b.id.Genesis().String(), time.Now().UTC().Format(time.RFC3339Nano), b.exceed)
	if err == nil && r.status == "ok" && len(wait) > 0 {
		err = b.sink.opts.waited(wait[0])
	}
	if err != nil {
		return sinks.Mark{}, nil, b.fail(ctx, op, 0, err, c.sent.Load() > sent)
	}
	return b.owned(op, r)
}

// owned takes the answer of own apart.
func (b *base) owned(op string, r reply) (sinks.Mark, map[string]string, error) {
	if r.status != "ok" {
		return sinks.Mark{}, nil, b.refused(op, 0, r)
	}
	mark, fields, err := decodeMark(b.id, r.list(0))
	if err != nil {
		return sinks.Mark{}, nil, &sinks.Error{Kind: sinks.Permanent, Op: op, Lane: b.id, Err: err}
	}
	b.fence, b.exceed = mark.Fence, 0
	b.session, b.dirty = fields["s"], false
	return mark, fields, nil
}

// errTorn says that the writes of half a script are in the store. A script is
// atomic, but a server that crashes while it appends one to its file, is started
// again with aof-load-truncated, the default, and crashes once more, brings that half
// back.
var errTorn = errors.New("the server's append-only file has brought half of a flush back, so that some records are in twice; " +
	"restore the store, or accept that and set field a of the mark to its field w")

// refused makes the error of a script that wrote nothing.
func (b *base) refused(op string, checkpoint uint64, r reply) error {
	e := &sinks.Error{Op: op, Lane: b.id, Checkpoint: checkpoint}
	switch r.status {
	case "fenced":
		e.Kind, e.Err = sinks.Fenced, fmt.Errorf("the store has fence %s, ours is %d", r.text(0), b.fence)
	case "moved":
		e.Kind, e.Err = sinks.Moved, errors.New("the tip in the store is another one")
	case "missing":
		e.Kind, e.Err = sinks.Moved, fmt.Errorf("the mark is gone: key %s was removed, evicted or has expired", b.keys.mark)
	case "behind":
		e.Kind, e.Err = sinks.Moved, fmt.Errorf("the store has fence %s, ours is %d: it lost its last writes", r.text(0), b.fence)
	case "stale":
		b.dirty = true
		e.Kind, e.Err = sinks.Transient, errors.New("the session was raised by a call that was given up")
	case "torn":
		e.Kind, e.Err = sinks.Permanent, fmt.Errorf("%w: key %s, a is not %s", errTorn, r.text(0), r.text(1))
	case "ledger":
		e.Kind, e.Err = serverKind(r.text(1)), serverError("ledger key "+r.text(0), r.text(1))
	case "refused":
		e.Kind, e.Err = serverKind(r.text(0)), serverError("", r.text(0))
		b.drop() // the address may lead to another server now
	case "format":
		e.Kind, e.Err = sinks.Permanent, errLayout(r.text(0))
	default:
		e.Kind, e.Err = sinks.Permanent, fmt.Errorf("%w: status %.20q", errAnswer, r.status)
	}
	return e
}
