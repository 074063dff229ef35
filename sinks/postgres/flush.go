package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/sinks"
)

// A flight is one flush: one transaction in three round trips.
//
//	begin, move the mark, audit rows (, staging table,
//	types of the table)                                  ->
//	                                                     <-  moved: one row
//	COPY, the blocks as they are                         ->
//	                                                     <-  n rows
//	(apply,) prune, commit                               ->
//	                                                     <-  COMMIT
//
// The mark is moved first: its row lock holds every other flush, Acquire and
// Mark of the lane back until this transaction has ended, and a step that is
// not wanted is refused before anything is sent.
//
// Records that are tuples go out as they are, unless the table has changed since
// Open, or a record was made for other types, or is a line: then all of them go
// out as text, and the server has the last word.
type flight struct {
	lane      *lane
	sink      *Sink
	pg        *pgconn.PgConn
	step      *sinks.Step
	at        phase
	tuple     bool // records go out as tuples
	stream    *source
	streamErr error
}

// run performs the step. Whatever it returns, the caller closes the connection
// after an error, which ends the transaction.
func (f *flight) run(ctx context.Context) error {
	f.tuple = f.sink.tuples() && f.sameForm()
	err := f.attempt(ctx)
	if errors.Is(err, errLine) {
		if _, err := exchange(ctx, f.pg, nil, sql("rollback")); err != nil {
			return err
		}
		f.tuple, f.streamErr = false, nil
		return f.attempt(ctx)
	}
	return err
}

func (f *flight) attempt(ctx context.Context) error {
	f.at = preparing
	if err := f.begin(ctx); err != nil {
		return err
	}
	crash.Point(crash.FlushBegun)
	f.at = writing
	if err := f.write(ctx); err != nil {
		return f.poison(ctx, err)
	}
	if err := f.commit(ctx); err != nil {
		return f.poison(ctx, err)
	}
	return nil
}

// sameForm reports whether all records were made for the types that the columns
// had at Open.
func (f *flight) sameForm() bool {
	for i := range f.step.Batches {
		if f.letters(i) != f.sink.form.letters {
			return false
		}
	}
	return true
}

// letters returns the types that the tuples of a batch were made for.
func (f *flight) letters(batch int) string {
	format := f.step.Batches[batch].Format
	if batch, ok := parseForm(format); ok && format != f.sink.info.Format {
		return batch.letters
	}
	return f.sink.form.letters
}

func (f *flight) liner() liner {
	l := liner{upsert: f.sink.opts.Mode == Upsert, limit: f.sink.opts.MaxRecord}
	for i := range f.step.Batches {
		l.letters = append(l.letters, f.letters(i))
	}
	return l
}

// begin opens the transaction and moves the mark.
func (f *flight) begin(ctx context.Context) error {
	const moved = 1 // index of the compare-and-set
	stmts := []stmt{sql("begin isolation level read committed read write")}
	apart := plant.Active(plant.LedgerApart)
	if !apart {
		marks, err := f.marks()
		if err != nil {
			return err
		}
		stmts = append(stmts, marks...)
	}
	types := len(stmts) // index of the description of the table
	if ddl := f.sink.stageDDL(); ddl != "" && f.step.Records > 0 {
		stmts = append(stmts, sql(ddl))
	}
	check := f.tuple && f.sink.opts.Mode == Insert && f.step.Records > 0
	if check {
		stmts = append(stmts, describe(f.sink.table.typesSQL()))
	}
	if f.tuple && f.pg.ParameterStatus("client_encoding") != "UTF8" {
		stmts = append(stmts, sql("set local client_encoding to 'UTF8'"))
	}
	results, err := exchange(ctx, f.pg, nil, stmts...)
	if !apart && len(results) > moved && results[moved].CommandTag.RowsAffected() == 0 {
		return f.refused(ctx)
	}
	if err != nil {
		return err
	}
	if check {
		f.tuple = f.sink.table.hasTypes(results[types].FieldDescriptions)
	}
	return f.deadLetters(ctx)
}

// marks returns the statements that change the ledger, the compare-and-set
// first.
func (f *flight) marks() ([]stmt, error) {
	compare := "and fence = $3 and tip = $4"
	switch {
	case plant.Active(plant.NoFence):
		compare = "and $3::bigint is not null and $4::bytea is not null"
	case plant.Active(plant.ReplayUpsert):
		compare = "and fence = $3 and $4::bytea is not null"
	}
	l := f.lane
	move, err := f.sink.ledger.move(l.id, l.fence, f.step.Prev.Tip(), f.step.Next, &f.sink.table, compare)
	if err != nil {
		return nil, err
	}
	stmts := []stmt{move}
	if ended := f.ended(); len(ended) > 0 {
		audit, err := f.sink.ledger.insertAudit(l.id, ended)
		if err != nil {
			return nil, err
		}
		stmts = append(stmts, audit)
	}
	return stmts, nil
}

// ended returns the batches that end in the step.
func (f *flight) ended() []sinks.Audit {
	if f.step.Next.Partial != nil && len(f.step.Batches) > 0 {
		return f.step.Batches[:len(f.step.Batches)-1]
	}
	return f.step.Batches
}

// refused says why the compare-and-set found no row. The transaction is over
// before it looks, so that it sees what is there now.
func (f *flight) refused(ctx context.Context) error {
	results, err := exchange(ctx, f.pg, nil, sql("rollback"), f.sink.ledger.read(f.lane.id))
	if err != nil {
		return err
	}
	if len(results[1].Rows) == 0 {
		return errEntryGone(f.sink.ledger.lane)
	}
	e, err := scanEntry(results[1].Rows[0])
	if err != nil {
		return err
	}
	if e.mark.Fence != f.lane.fence {
		return &sinks.Error{Kind: sinks.Fenced, Op: "flush", Err: fmt.Errorf("fence is %d, ours is %d: another owner has the lane", e.mark.Fence, f.lane.fence)}
	}
	return &sinks.Error{Kind: sinks.Moved, Op: "flush", Err: fmt.Errorf("the mark is at batch %d of checkpoint %d, the step builds on batch %d of checkpoint %d",
		e.mark.Seq, e.mark.Checkpoint, f.step.Prev.Seq, f.step.Prev.Checkpoint)}
}

// deadLetters writes the records that were found bad before.
func (f *flight) deadLetters(ctx context.Context) error {
	for letters := f.step.Dead; len(letters) > 0; {
		insert, rest, err := f.sink.ledger.insertDead(f.step, letters)
		if err != nil {
			return err
		}
		if _, err := exchange(ctx, f.pg, nil, insert); err != nil {
			return err
		}
		letters = rest
	}
	return nil
}

// write copies the records of the step.
func (f *flight) write(ctx context.Context) error {
	if f.step.Records == 0 {
		return nil
	}
	return f.copy(ctx, f.sink.copySQL(f.tuple), f.tuple)
}

// copy streams the records into the relation that sql names.
func (f *flight) copy(ctx context.Context, sql string, tuple bool) error {
	f.stream = newSource(f.step.Runs, f.liner(), tuple)
	_, err := f.pg.CopyFrom(ctx, f.stream, sql)
	f.streamErr = f.stream.close()
	if f.streamErr != nil {
		return f.streamErr
	}
	return err
}

// commit applies what was staged, and ends the transaction.
func (f *flight) commit(ctx context.Context) error {
	var stmts []stmt
	if f.step.Records > 0 {
		for _, text := range f.sink.applySQL(f.sink.stage(), "") {
			stmts = append(stmts, sql(text))
		}
	}
	prune := f.prune()
	stmts = append(append(stmts, prune...), sql("commit"))
	if len(prune) > 0 {
		crash.Point(crash.PruneBefore)
	}
	crash.Point(crash.FlushMarkWritten)
	f.at = committing
	results, err := exchange(ctx, f.pg, func() { crash.Point(crash.FlushSent) }, stmts...)
	if err != nil {
		return err
	}
	if len(prune) > 0 {
		crash.Point(crash.PruneAfter)
	}
	if tag := results[len(results)-1].CommandTag.String(); tag != "COMMIT" {
		f.at = writing
		return errRolledBack
	}
	if plant.Active(plant.LedgerApart) {
		return f.markApart(ctx)
	}
	return nil
}

// markApart is a planted bug: the mark in a transaction of its own.
func (f *flight) markApart(ctx context.Context) error {
	crash.Point(crash.FlushChunkLast)
	marks, err := f.marks()
	if err != nil {
		return err
	}
	_, err = exchange(ctx, f.pg, nil, append(slices.Insert(marks, 0, sql("begin")), sql("commit"))...)
	return err
}

// pruneEvery is how many batches go by between two prunings.
const pruneEvery = 64

// prune removes the audit rows that are out of retention, now and then.
func (f *flight) prune() []stmt {
	keep, seq := uint64(f.sink.opts.AuditRows), f.step.Next.Seq
	if seq <= keep || seq/pruneEvery == f.step.Prev.Seq/pruneEvery {
		return nil
	}
	return []stmt{f.sink.ledger.prune(f.lane.id, seq-keep)}
}

// poison turns a server error about particular records into one that names
// them. Other errors are returned as they are.
func (f *flight) poison(ctx context.Context, err error) error {
	if classify(ctx, f.at, err) != sinks.Poison {
		return err
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		bad, logErr := f.malformed()
		return errors.Join(logErr, &sinks.Error{Kind: sinks.Poison, Op: "flush", Bad: bad})
	}
	if changed := f.sink.columnChanged(ctx, f.pg, e); changed != nil {
		return changed
	}
	bad, findErr := f.find(ctx, e)
	switch {
	case findErr != nil:
		return findErr
	case len(bad) == 0 && f.sink.opts.Mode == Statement:
		return fmt.Errorf("%w: the statement: %w", errRefused, scrub(err))
	case len(bad) == 0: // what was in the way is gone
		return &sinks.Error{Kind: sinks.Transient, Op: "flush", Err: scrub(err)}
	}
	return &sinks.Error{Kind: sinks.Poison, Op: "flush", Bad: bad}
}
