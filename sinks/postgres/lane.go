package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walsink/walsink/sinks"
)

// A lane is a handle on a lane: its name and the fence it writes under. It holds
// no connection; each call takes one from the pool.
type lane struct {
	sink  *Sink
	id    sinks.LaneID
	fence uint64
}

// Flush implements [sinks.Lane].
func (l *lane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	f := &flight{lane: l, sink: l.sink, step: step}
	err := l.sink.with(ctx, func(ctx context.Context, pg *pgconn.PgConn) error {
		f.pg = pg
		return f.run(ctx)
	})
	if err == nil {
		return sinks.Result{}, nil
	}
	if f.streamErr != nil && !isOurs(f.streamErr) { // the log's error is not the store's and goes back as it is
		return sinks.Result{}, f.streamErr
	}
	e := l.sink.fail(ctx, "flush", l.id, f.at, err)
	e.Lane = l.id
	if len(step.Batches) > 0 {
		e.Checkpoint = step.Batches[0].Checkpoint
	}
	return sinks.Result{}, e
}

func isOurs(err error) bool {
	_, ok := errors.AsType[*sinks.Error](err)
	return ok
}

// Mark implements [sinks.Lane].
//
// A COMMIT that is in doubt was sent by a transaction that holds the lock on the
// lane's entry, so that waiting for this lock settles it: either the entry has
// moved, or, once the backend is gone, it never will. A transaction whose COMMIT
// was not sent cannot commit, because its connection is closed.
func (l *lane) Mark(ctx context.Context) (sinks.Mark, error) {
	e, err := l.sink.settled(ctx, l.id, l.sink.ledger.lock(l.id))
	if err == nil && e.mark.Fence != l.fence {
		err = &sinks.Error{Kind: sinks.Fenced, Op: "mark", Lane: l.id, Err: fmt.Errorf("fence is %d, ours is %d", e.mark.Fence, l.fence)}
	}
	if err != nil {
		return sinks.Mark{}, l.sink.fail(ctx, "mark", l.id, preparing, err)
	}
	return e.mark, nil
}

// Close implements [sinks.Lane].
func (l *lane) Close() error { return nil }
