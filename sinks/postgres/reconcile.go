package postgres

import (
	"context"
	"fmt"

	"github.com/walsink/walsink/sinks"
)

// Reconcile compares the number of rows of the table with what the ledger says of all
// lanes that have it for target, those of other sink ids included, in one snapshot. It
// implements [sinks.Reconciler].
func (s *Sink) Reconcile(ctx context.Context, _ []sinks.LaneRows) (r sinks.Reconciliation, err error) {
	if s.opts.Mode == Statement {
		r.Unchecked = append(r.Unchecked, "rows: a statement of its own writes them")
		return r, nil
	}
	results, err := s.query(ctx, sql(fmt.Sprintf(`select (select count(*) from %s), (select coalesce(sum(records), 0)::bigint from %s where target = %d)`,
		s.table.name, s.ledger.lane, s.table.oid)))
	if code(err) == "42501" {
		r.Unchecked = append(r.Unchecked, "rows of "+s.table.plain+": this role may not read the table")
		return r, nil
	}
	if err != nil {
		return r, s.fail(ctx, "reconcile", sinks.LaneID{}, preparing, err)
	}
	row := scanner{row: results[0].Rows[0]}
	rows, records := row.uint(), row.uint()
	if row.err != nil {
		return r, s.fail(ctx, "reconcile", sinks.LaneID{}, preparing, row.err)
	}
	r.Compared = append(r.Compared, "the number of rows of "+s.table.plain)
	r.Unchecked = append(r.Unchecked, "rows of each checkpoint: a row does not tell which one it came in")
	d := sinks.Difference{What: "rows of " + s.table.plain, Ledger: fmt.Sprint(records), Found: fmt.Sprint(rows)}
	switch {
	case s.opts.Mode == Upsert && rows <= records:
		r.Unchecked = append(r.Unchecked, "fewer rows than records: they replace and delete each other in this mode")
	case rows != records:
		r.Differences = append(r.Differences, d)
	}
	return r, nil
}
