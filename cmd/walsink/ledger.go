package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

func (a *app) ledgerCommand() *cobra.Command {
	var f jobFlags
	var audit, role string
	var script bool
	cmd := &cobra.Command{
		Use:   "ledger --to DST",
		Short: "Print the ledger in the store: the mark of each lane, or the batches of one",
		Long: "Ledger reads the marks of a sink id from the store; with --audit LANE the batches of that lane that the\n" +
			"store remembers. It takes nothing over and may be used while a run is at work.\n\n" +
			"With --script it opens nothing and prints the SQL that makes the ledger of a Postgres DST, for those who\n" +
			"may not make it themselves, and with --role the rights that a run needs of it.\n\n" + codeHelp(),
		Example: "  walsink ledger --to 'file:out'\n" +
			"  walsink ledger --to 'postgres://etl@localhost/db?table=quakes' --script --role etl | psql -U admin db",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := f.load()
			if err != nil {
				return err
			}
			switch {
			case script:
				return a.ledgerScript(j, role)
			case role != "":
				return usagef("--role: goes with --script")
			case audit != "":
				return a.auditLane(cmd.Context(), j, audit)
			}
			return a.ledger(cmd.Context(), j)
		},
	}
	f.register(cmd, "to read the ledger of", placeKeys...)
	cmd.Flags().StringVar(&audit, "audit", "", "print the batches of this `lane` instead")
	cmd.Flags().BoolVar(&script, "script", false, "print the SQL that makes the ledger, and open nothing")
	cmd.Flags().StringVar(&role, "role", "", "the `role` of Postgres that a run has, for --script to grant it its rights")
	a.jsonFlag(cmd)
	return cmd
}

// ledgerScript prints the SQL that makes the ledger.
func (a *app) ledgerScript(j *job, role string) error {
	if err := j.needTo("the store whose ledger to make"); err != nil {
		return err
	}
	o, err := j.one()
	if err != nil {
		return err
	}
	if o.target.scheme != "postgres" {
		return usagef("--script: only the ledger of a Postgres DST is made by SQL; this one is made by the first run")
	}
	opts, _, err := postgresOptions(o.target.endpoint)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.out, postgres.Script(opts.Ledger, role))
	return err
}

// ledger prints the marks of every output.
func (a *app) ledger(ctx context.Context, j *job) error {
	if err := j.needTo("the store whose ledger to read"); err != nil {
		return err
	}
	take := func(o *output) (marks []sinks.LaneMark, err error) {
		sink, ledger, err := o.openLedger(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, sink.Close()) }()
		return ledger.Marks(ctx, o.id)
	}
	return eachOutput(a, j, take, func(o *output, marks []sinks.LaneMark) error {
		a.heading(j, o)
		return a.printMarks(o.id, marks)
	})
}

// auditLane prints the batches of one lane.
func (a *app) auditLane(ctx context.Context, j *job, name string) (err error) {
	if err := j.needTo("the store whose ledger to read"); err != nil {
		return err
	}
	o, err := j.one()
	if err != nil {
		return err
	}
	lane := sinks.LaneID{Sink: o.id, Lane: strings.TrimPrefix(name, o.id+"/")}
	if err := lane.Validate(); err != nil {
		return usagef("--audit: %w", err)
	}
	sink, ledger, err := o.openLedger(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	marks, err := ledger.Marks(ctx, o.id)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(marks, func(m sinks.LaneMark) bool { return m.LaneID == lane }) {
		return usagef("--audit %s: the ledger has no such lane; without --audit the lanes are listed", name)
	}
	return a.printAudit(ledger.Audit(ctx, lane, 0))
}

// openLedger opens the store for looking at it. What the records are like does not
// matter for that. The caller closes the sink.
func (o *output) openLedger(ctx context.Context) (sinks.Sink, sinks.Ledger, error) {
	s, err := o.target.open(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	ledger, ok := s.sink.(sinks.Ledger)
	if !ok {
		err := fmt.Errorf("%s: this store cannot list its ledger", s.sink.Info().Name)
		return nil, nil, &storeError{errors.Join(err, s.sink.Close())}
	}
	return s.sink, ledger, nil
}

func (a *app) printMarks(id string, marks []sinks.LaneMark) error {
	if len(marks) == 0 {
		_, err := fmt.Fprintf(a.out, "the store has no ledger of sink id %s\n", id)
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "LANE\tCHECKPOINT\tBATCH\tRECORDS\tDEAD\tFENCE\tUPDATED\t")
	for _, m := range marks {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t%d\t%s\t\n", m.LaneID, m.Checkpoint, m.Seq, group(m.Records), m.Dead, m.Fence,
			m.UpdatedAt.Format(time.RFC3339))
	}
	return w.Flush()
}

// printAudit prints rows as they come: JSON lines, or a table.
func (a *app) printAudit(rows iter.Seq2[sinks.Audit, error]) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if !a.json {
		fmt.Fprintln(w, "BATCH\tCHECKPOINT\tRECORDS\tBYTES\tDEAD\tDIGEST\tFLUSHED\t")
	}
	for row, err := range rows {
		if err != nil {
			return errors.Join(w.Flush(), err)
		}
		if a.json {
			if err := a.printJSONLine(row); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%d\t%s\t%s\t\n", row.Seq, row.Checkpoint, group(row.Records), row.Bytes, row.Dead, row.Digest,
			row.FlushedAt.Format(time.RFC3339))
	}
	return w.Flush()
}
