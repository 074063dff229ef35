package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

func (a *app) auditCommand() *cobra.Command {
	var f jobFlags
	var noDestination bool
	cmd := &cobra.Command{
		Use:   "audit --to DST",
		Short: "Compare log, ledger and destination, checkpoint by checkpoint",
		Long: "Audit compares counts and digests of each checkpoint: what the log still holds with the audit rows of the\n" +
			"ledger, the rows with each other and with the mark, and the destination with the rows, as far as the store\n" +
			"can tell:\n" +
			"  file      parts are read again: bytes and records of each checkpoint\n" +
			"  postgres  the number of rows of the table, over all lanes that write to it\n" +
			"  redis     nothing: a key does not tell which records wrote it\n" +
			"It prints what it compared, what it could not, and each difference, the first one first; a difference makes\n" +
			"the exit code 11. Rows that others add or remove, and parts that a consumer took, are differences: with\n" +
			"--no-destination they are not looked at. It changes nothing. Without a state directory it leaves the log\n" +
			"out; while a run has it open, audit says so and ends.\n\n" + codeHelp(),
		Example: "  walsink audit --to 'file:out?format=ndjson' --state state",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := f.load()
			if err != nil {
				return err
			}
			return a.audit(cmd.Context(), j, noDestination)
		},
	}
	f.register(cmd, "to audit", slices.Concat(placeKeys, logKeys)...)
	cmd.Flags().BoolVar(&noDestination, "no-destination", false, "compare log and ledger only")
	a.jsonFlag(cmd)
	return cmd
}

// errDifference says that an audit has found one.
var errDifference = errors.New("log, ledger and destination differ")

// A difference is one thing of which two say different things. What a side does not say
// is empty.
type difference struct {
	Lane        string `json:"lane,omitempty"`
	Batch       uint64 `json:"batch,omitempty"`
	Checkpoint  uint64 `json:"checkpoint,omitempty"`
	What        string `json:"what"`
	Log         string `json:"log,omitempty"`
	Ledger      string `json:"ledger,omitempty"`
	Destination string `json:"destination,omitempty"`
}

func (d difference) String() string {
	text := ""
	if d.Lane != "" {
		text = "lane " + d.Lane
	}
	if d.Batch > 0 {
		text += fmt.Sprintf(" batch %d", d.Batch)
	}
	if d.Checkpoint > 0 {
		text += fmt.Sprintf(" checkpoint %d", d.Checkpoint)
	}
	if text != "" {
		text += ": "
	}
	text += d.What
	for _, s := range []struct{ side, says string }{{"log", d.Log}, {"ledger", d.Ledger}, {"destination", d.Destination}} {
		if s.says != "" {
			text += "; " + s.side + ": " + s.says
		}
	}
	return text
}

// An auditReport is what an audit has found.
type auditReport struct {
	ID          string       `json:"id"`
	State       string       `json:"state"`
	Log         bool         `json:"log"`
	Lanes       []auditLane  `json:"lanes"`
	Compared    []string     `json:"compared"`
	Unchecked   []string     `json:"unchecked"`
	Differences []difference `json:"differences"`
}

// An auditLane is how much of a lane was compared.
type auditLane struct {
	Lane       string `json:"lane"`
	Checkpoint uint64 `json:"checkpoint"` // of the mark
	Records    uint64 `json:"records"`
	Dead       uint64 `json:"dead"`
	Rows       int    `json:"audit_rows"`
	Batches    int    `json:"log_batches"` // in the log and in the ledger
	Pending    int    `json:"pending_batches"`
}

func (a *app) audit(ctx context.Context, j *job, noDestination bool) error {
	if err := j.needTo("the store to audit"); err != nil {
		return err
	}
	differ := make([]error, len(j.outputs))
	err := eachOutput(a, j, func(o *output) (*auditReport, error) {
		r, err := a.auditOutput(ctx, o, noDestination)
		if err == nil && len(r.Differences) > 0 {
			differ[slices.Index(j.outputs, o)] = fmt.Errorf("%w: %s; the first: %s", errDifference,
				count(uint64(len(r.Differences)), "difference"), r.Differences[0])
		}
		return r, err
	}, func(o *output, r *auditReport) error {
		a.heading(j, o)
		return a.printAuditReport(r)
	})
	return errors.Join(err, errors.Join(differ...))
}

func (a *app) auditOutput(ctx context.Context, o *output, noDestination bool) (r *auditReport, err error) {
	sink, ledger, err := o.openLedger(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	r = &auditReport{ID: o.id, State: o.state, Lanes: []auditLane{}, Compared: []string{}, Unchecked: []string{}, Differences: []difference{}}
	log, err := a.auditLog(o)
	if err != nil {
		return nil, err
	}
	if r.Log = log != nil; r.Log {
		defer func() { err = errors.Join(err, log.Close()) }()
		r.Compared = append(r.Compared, "the batches of the log, read again, with the audit rows")
	} else {
		r.Unchecked = append(r.Unchecked, "the log: there is none in "+o.state)
	}
	marks, err := ledger.Marks(ctx, o.id)
	if err != nil {
		return nil, err
	}
	r.Compared = append(r.Compared, "the audit rows with each other and with the mark of the lane")
	lanes, err := r.ledgerOf(ctx, ledger, log, marks)
	if err != nil {
		return nil, err
	}
	if noDestination {
		r.Unchecked = append(r.Unchecked, "the destination: --no-destination")
		return r, nil
	}
	return r, r.reconcile(ctx, sink, lanes)
}

// auditLog opens the log of an output; nil if there is none.
func (a *app) auditLog(o *output) (*wal.Log, error) {
	if entries, err := os.ReadDir(o.state); errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	return a.openState(o)
}

// ledgerOf audits every lane that log or ledger know, and returns what the ledger has.
func (r *auditReport) ledgerOf(ctx context.Context, ledger sinks.Ledger, log *wal.Log, marks []sinks.LaneMark) ([]sinks.LaneRows, error) {
	var lanes []sinks.LaneRows
	known := map[string]bool{}
	for _, m := range marks {
		l := sinks.LaneRows{LaneMark: m}
		for row, err := range ledger.Audit(ctx, m.LaneID, 0) {
			if err != nil {
				return nil, err
			}
			if row.Seq <= m.Seq { // a row behind the mark came since it was read
				l.Rows = append(l.Rows, row)
			}
		}
		lanes, known[m.String()] = append(lanes, l), true
		report := auditLane{Lane: m.String(), Checkpoint: m.Checkpoint, Records: m.Records, Dead: m.Dead, Rows: len(l.Rows)}
		r.rows(l)
		if log != nil {
			if err := r.log(ctx, log, l, &report); err != nil {
				return nil, err
			}
		}
		r.Lanes = append(r.Lanes, report)
	}
	if log == nil {
		return lanes, nil
	}
	for _, name := range log.Lanes() {
		if _, committed, _ := log.Head(name); !known[name] && committed > 0 {
			r.differ(difference{Lane: name, What: "the mark", Log: fmt.Sprintf("batches up to %d are in", committed), Ledger: "no such lane"})
		}
	}
	return lanes, nil
}

func (r *auditReport) differ(d difference) { r.Differences = append(r.Differences, d) }

// rows compares the audit rows of a lane with each other and with its mark.
func (r *auditReport) rows(l sinks.LaneRows) {
	name := l.LaneID.String()
	if len(l.Rows) == 0 {
		if l.Seq > 0 {
			r.differ(difference{Lane: name, Batch: l.Seq, Checkpoint: l.Checkpoint, What: "audit row", Ledger: "the mark is at this batch, and there is no row"})
		}
		return
	}
	var records, dead uint64
	seq, chain := l.Rows[0].Seq-1, l.Rows[0].Prev
	if seq == 0 {
		chain = l.Genesis()
	}
	for _, row := range l.Rows {
		at := difference{Lane: name, Batch: row.Seq, Checkpoint: row.Checkpoint}
		switch {
		case row.Seq != seq+1:
			at.What, at.Ledger = "gap", fmt.Sprintf("batch %d follows batch %d", row.Seq, seq)
			r.differ(at)
		case row.Prev != chain:
			at.What, at.Ledger = "chain", "the row does not continue the one before: it was edited, or the mark was moved on an operator's word"
			r.differ(at)
		}
		if row.Dead > row.Records {
			at.What, at.Ledger = "dead letters", fmt.Sprintf("%d of %d records", row.Dead, row.Records)
			r.differ(at)
		}
		seq, chain = row.Seq, row.Chain()
		records, dead = records+row.Records-min(row.Dead, row.Records), dead+row.Dead
	}
	r.ends(l, seq, chain, records, dead)
}

// ends compares the end of the rows, and what they come to, with the mark.
func (r *auditReport) ends(l sinks.LaneRows, seq uint64, chain record.Chain, records, dead uint64) {
	at := difference{Lane: l.LaneID.String(), Batch: l.Seq, Checkpoint: l.Checkpoint}
	switch {
	case seq != l.Seq:
		at.What, at.Ledger = "the mark", fmt.Sprintf("the audit rows end with batch %d", seq)
		r.differ(at)
		return
	case chain != l.Chain:
		at.What, at.Ledger = "chain", "the last audit row does not lead to the mark"
		r.differ(at)
	}
	if l.Rows[0].Seq > 1 {
		r.Unchecked = append(r.Unchecked, fmt.Sprintf("totals of lane %s: audit rows reach back to batch %d only", l.LaneID, l.Rows[0].Seq))
		return
	}
	if p := l.Partial; p != nil {
		records, dead = records+p.Done-uint64(len(p.Dead)), dead+uint64(len(p.Dead))
	}
	if records != l.Records || dead != l.Dead {
		at.What = "totals"
		at.Ledger = fmt.Sprintf("the mark counts %d records and %d dead, the audit rows %d and %d", l.Records, l.Dead, records, dead)
		r.differ(at)
	}
}

// log compares the batches that the log holds of a lane with the ledger.
func (r *auditReport) log(ctx context.Context, log *wal.Log, l sinks.LaneRows, report *auditLane) error {
	name := l.LaneID.String()
	if _, committed, _ := log.Head(name); committed > l.Seq {
		r.differ(difference{Lane: name, What: "the mark", Log: fmt.Sprintf("batches up to %d are in", committed), Ledger: fmt.Sprintf("batches up to %d are in", l.Seq)})
	}
	for _, b := range log.Batches(name) {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := difference{Lane: name, Batch: b.Seq, Checkpoint: b.Checkpoint}
		for _, err := range log.Blocks(name, b.Seq) {
			if err != nil {
				at.What, at.Log = "records of the log", err.Error()
				r.differ(at)
				break
			}
		}
		at.What, at.Log = "", ""
		if b.Seq > l.Seq {
			if report.Pending++; report.Pending == 1 && b.Prev != l.Chain {
				at.What, at.Log, at.Ledger = "chain", "the batch that waits for its flush does not continue the mark", fmt.Sprintf("the mark is at batch %d", l.Seq)
				r.differ(at)
			}
			continue
		}
		i, ok := slices.BinarySearchFunc(l.Rows, b.Seq, func(row sinks.Audit, seq uint64) int { return int(row.Seq) - int(seq) })
		if !ok {
			if len(l.Rows) > 0 && b.Seq > l.Rows[0].Seq {
				at.What, at.Log, at.Ledger = "gap", counts(b), "no audit row"
				r.differ(at)
			}
			continue
		}
		report.Batches++
		if row := l.Rows[i].Batch; row.Chain() != b.Chain() {
			at.What, at.Log, at.Ledger = "batch", counts(b), counts(row)
			r.differ(at)
		}
	}
	return nil
}

// counts are those of a batch, for people.
func counts(b record.Batch) string {
	return fmt.Sprintf("checkpoint %d, %d records, %d bytes, digest %s, chain %.16s", b.Checkpoint, b.Records, b.Bytes, b.Digest, b.Chain())
}

// reconcile compares the destination with the ledger.
func (r *auditReport) reconcile(ctx context.Context, sink sinks.Sink, lanes []sinks.LaneRows) error {
	rec, ok := sink.(sinks.Reconciler)
	if !ok {
		r.Unchecked = append(r.Unchecked, "the destination: store "+sink.Info().Name+" cannot tell")
		return nil
	}
	found, err := rec.Reconcile(ctx, lanes)
	if err != nil {
		return err
	}
	r.Compared = append(r.Compared, found.Compared...)
	r.Unchecked = append(r.Unchecked, found.Unchecked...)
	for _, d := range found.Differences {
		out := difference{Batch: d.Seq, Checkpoint: d.Checkpoint, What: d.What, Ledger: d.Ledger, Destination: d.Found}
		if d.Lane != (sinks.LaneID{}) {
			out.Lane = d.Lane.String()
		}
		r.differ(out)
	}
	return nil
}

func (a *app) printAuditReport(r *auditReport) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "LANE\tCHECKPOINT\tRECORDS\tDEAD\tAUDIT ROWS\tIN LOG TOO\tPENDING\t")
	for _, l := range r.Lanes {
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%d\t%d\t\n", l.Lane, l.Checkpoint, group(l.Records), l.Dead, l.Rows, l.Batches, l.Pending)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, text := range r.Compared {
		fmt.Fprintln(a.out, "compared:", text)
	}
	for _, text := range r.Unchecked {
		fmt.Fprintln(a.out, "not checked:", text)
	}
	for i, d := range r.Differences {
		label := "difference:"
		if i == 0 {
			label = "first difference:"
		}
		fmt.Fprintln(a.out, label, d)
	}
	if len(r.Differences) == 0 {
		fmt.Fprintln(a.out, "no difference")
	}
	return nil
}
