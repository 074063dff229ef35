package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/sinks"
)

// A Sink writes lanes into one table, or runs one statement. It implements
// [sinks.Sink], [sinks.Ledger], [sinks.Taker] and [sinks.Prober]. All methods are safe for
// concurrent use.
type Sink struct {
	pool     *pgxpool.Pool
	opts     Options
	ledger   ledger
	table    table
	info     sinks.Info
	form     form
	batchDDL string // mode Statement: makes the relation
	scratch  scratchPool
	closed   atomic.Bool
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Ledger        = (*Sink)(nil)
	_ sinks.DeadLetterBox = (*Sink)(nil)
	_ sinks.Reconciler    = (*Sink)(nil)
	_ sinks.Prober        = (*Sink)(nil)
	_ sinks.Taker         = (*Sink)(nil)
)

// Open checks the ledger, finds the table and reads its columns. The pool stays
// the caller's: Close does not close it, and it must have room for one
// connection per lane that flushes at the same time. Errors are of type
// [*sinks.Error]; ErrTableMissing is one of their causes.
func Open(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Sink, error) {
	s := &Sink{pool: pool}
	var err error
	if s.opts, err = opts.withDefaults(); err != nil {
		return nil, s.fail(ctx, "open", sinks.LaneID{}, preparing, fmt.Errorf("%w: %w", errRefused, err))
	}
	s.ledger = newLedger(s.opts.Ledger)
	if err := s.with(ctx, s.discover); err != nil {
		return nil, s.fail(ctx, "open", sinks.LaneID{}, preparing, err)
	}
	h := sha256.Sum256([]byte(strings.Join(s.table.names(), "\x00")))
	s.form = form{mode: s.opts.Mode, columns: hex.EncodeToString(h[:8]), letters: lettersOf(s.table.columns)}
	s.info = s.describe()
	return s, nil
}

// discover is the part of Open that talks to the server.
func (s *Sink) discover(ctx context.Context, pg *pgconn.PgConn) error {
	if err := s.ensureLedger(ctx, pg); err != nil {
		return err
	}
	if s.opts.Mode == Statement {
		return s.openBatch(ctx, pg)
	}
	if err := s.openTable(ctx, pg); err != nil {
		return err
	}
	for _, k := range s.opts.Key {
		if _, ok := s.table.index[k]; !ok {
			return fmt.Errorf("%w: key column %q is not among the columns that records have", errRefused, k)
		}
	}
	return nil
}

func (s *Sink) describe() sinks.Info {
	c := s.pool.Config().ConnConfig
	target := fmt.Sprintf("postgres://%s/%s %s", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), c.Database, s.table.plain)
	return sinks.Info{
		Name:      "postgres",
		Target:    target,
		Guarantee: sinks.ExactlyOnce,
		Format:    s.form.String(),
		StepBytes: s.opts.StepBytes,
		Chunked:   s.opts.Chunked,
	}
}

// Info implements [sinks.Sink].
func (s *Sink) Info() sinks.Info { return s.info }

// Columns returns the names of the columns that records have, in order.
func (s *Sink) Columns() []string { return s.table.names() }

// Close implements [sinks.Sink]. It leaves the pool open.
func (s *Sink) Close() error {
	s.closed.Store(true)
	return nil
}

// Acquire implements [sinks.Sink]. A flush of a former owner that is still under
// way is waited for, and after Options.Takeover its backend is terminated; this
// is what frees the lane from an owner that is frozen inside its transaction.
func (s *Sink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	const op = "acquire"
	if err := id.Validate(); err != nil {
		return nil, sinks.Mark{}, s.fail(ctx, op, id, preparing, fmt.Errorf("%w: %w", errRefused, err))
	}
	e, err := s.settled(ctx, id, s.ledger.acquire(id))
	if err != nil {
		return nil, sinks.Mark{}, s.fail(ctx, op, id, preparing, err)
	}
	if err := s.sameTable(e); err != nil {
		return nil, sinks.Mark{}, s.fail(ctx, op, id, preparing, err)
	}
	return &lane{sink: s, id: id, fence: e.mark.Fence}, e.mark, nil
}

// sameTable refuses a table that was dropped and made again under the same name
// while the ledger stayed: it lacks what the ledger says is in.
func (s *Sink) sameTable(e entry) error {
	if s.opts.Mode == Statement || e.target == 0 || e.target == s.table.oid || !e.same {
		return nil
	}
	return fmt.Errorf("%w: %s is not the table that the %d records of lane %s went to (oid %d, now %d); put that one back, or %s; if this one holds them: update %s set target = %d",
		errTableGone(), s.table.plain, e.mark.Records, e.lane, e.target, s.table.oid, resetAdvice(s.ledger.lane, "the lane"), s.ledger.lane, s.table.oid)
}

// settled runs a statement that needs the lock on a lane's entry and returns the
// entry. If the lock is not to be had within Takeover, it terminates the backend
// that holds it and tries once more.
func (s *Sink) settled(ctx context.Context, id sinks.LaneID, locking stmt) (entry, error) {
	e, err := s.lockEntry(ctx, locking)
	if code(err) != "55P03" {
		return e, err
	}
	results, evictErr := s.query(ctx, s.ledger.evict(id))
	if code(evictErr) == "42501" {
		return entry{}, &sinks.Error{Kind: sinks.Transient, Op: "lock", Lane: id,
			Err: errors.New("a transaction of another role holds the lane's entry, and this role may not terminate it; end it, or wait")}
	}
	if evictErr != nil {
		return entry{}, evictErr
	}
	if len(results[0].Rows) > 0 {
		e, err = s.lockEntry(ctx, locking)
	}
	return e, err
}

func (s *Sink) lockEntry(ctx context.Context, locking stmt) (entry, error) {
	wait := fmt.Sprintf("set local lock_timeout = %d", max(s.opts.Takeover/time.Millisecond, 1))
	results, err := s.query(ctx, sql("begin isolation level read committed read write"), sql(wait), locking, sql("commit"))
	if err != nil {
		return entry{}, err
	}
	if results[3].CommandTag.String() != "COMMIT" {
		return entry{}, errRolledBack
	}
	if len(results[2].Rows) == 0 {
		return entry{}, errEntryGone(s.ledger.lane)
	}
	return scanEntry(results[2].Rows[0])
}

// errRolledBack says that the server answered COMMIT with ROLLBACK.
var errRolledBack = errors.New("the server rolled the transaction back")

func errEntryGone(lanes string) error {
	return fmt.Errorf("%w: the lane's entry in %s is gone: somebody removed it; put it back from a backup, or open accepting loss or duplicates", errRefused, lanes)
}

// query runs statements on a connection of its own.
func (s *Sink) query(ctx context.Context, stmts ...stmt) (results []*pgconn.Result, err error) {
	err = s.with(ctx, func(ctx context.Context, pg *pgconn.PgConn) error {
		results, err = exchange(ctx, pg, nil, stmts...)
		return err
	})
	return results, err
}

// with lends f a connection. One that comes back with an error is closed, since
// a statement may still be running on it.
func (s *Sink) with(ctx context.Context, f func(context.Context, *pgconn.PgConn) error) error {
	if s.closed.Load() {
		return fmt.Errorf("%w: sink is closed", errRefused)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	err = f(ctx, pg)
	if err != nil || pg.TxStatus() != 'I' {
		hangUp(ctx, pg)
	}
	return err
}

// rollbackTime bounds how long a connection is tidied up after an error.
const rollbackTime = 5 * time.Second

// hangUp closes a connection whose state is not known.
func hangUp(ctx context.Context, pg *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_ = pg.Close(ctx) // it is of no further use, whatever this says
}

// code returns the SQLSTATE of err, or "".
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// fail makes the error that a method returns: classified, with coordinates, and
// without secrets or the contents of records.
func (s *Sink) fail(ctx context.Context, op string, id sinks.LaneID, at phase, err error) *sinks.Error {
	if e, ok := errors.AsType[*sinks.Error](err); ok {
		return e
	}
	kind := classify(ctx, at, err)
	if kind == sinks.Poison { // an error about records, but nobody knows which
		kind = sinks.Permanent
	}
	cause := scrub(err)
	if kind == sinks.Permanent {
		if text := advice(code(err)); text != "" {
			cause = fmt.Errorf("%w%s", cause, text)
		}
		if code(err) == "42P01" {
			cause = fmt.Errorf("%w: %w", ErrTableMissing, cause)
		}
	}
	if plant.Active(plant.LeakPassword) {
		cause = fmt.Errorf("%s: %w", s.pool.Config().ConnString(), cause)
	}
	return &sinks.Error{Kind: kind, Op: op, Lane: id, Err: cause}
}
