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
)

func (a *app) ledgerCommand() *cobra.Command {
	var p place
	var audit string
	cmd := &cobra.Command{
		Use:   "ledger --to DST",
		Short: "Print the ledger in the store: the mark of each lane, or the batches of one",
		Long: "Ledger reads the marks of a sink id from the store; with --audit LANE the batches of that lane that the\n" +
			"store remembers. It takes nothing over and may be used while a run is at work.\n\n" + codeHelp(),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ledger(cmd.Context(), &p, audit) },
	}
	p.register(cmd.Flags(), "to read the ledger of")
	cmd.Flags().StringVar(&audit, "audit", "", "print the batches of this `lane` instead")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) ledger(ctx context.Context, p *place, audit string) (err error) {
	sink, err := openLedger(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	ledger, ok := sink.(sinks.Ledger)
	if !ok {
		return &storeError{fmt.Errorf("%s: this store cannot list its ledger", sink.Info().Name)}
	}
	if audit != "" {
		lane := sinks.LaneID{Sink: p.id, Lane: strings.TrimPrefix(audit, p.id+"/")}
		if err := lane.Validate(); err != nil {
			return usagef("--audit: %w", err)
		}
		marks, err := ledger.Marks(ctx, p.id)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(marks, func(m sinks.LaneMark) bool { return m.LaneID == lane }) {
			return usagef("--audit %s: the ledger has no such lane; without --audit the lanes are listed", audit)
		}
		return a.printAudit(ledger.Audit(ctx, lane, 0))
	}
	marks, err := ledger.Marks(ctx, p.id)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(marks)
	}
	return a.printMarks(p.id, marks)
}

// openLedger opens the store for looking at it. What the records are like does not
// matter for that.
func openLedger(ctx context.Context, p *place) (sinks.Sink, error) {
	if p.to == "" {
		return nil, usagef("--to DST is missing: the store whose ledger to read")
	}
	t, err := p.resolve()
	if err != nil {
		return nil, err
	}
	o, err := t.open(ctx, nil)
	return o.sink, err
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
