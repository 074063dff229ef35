package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/wal"
)

// A damageReport is one finding of walsink verify.
type damageReport struct {
	Generation uint64 `json:"generation,omitempty"`
	Lane       string `json:"lane,omitempty"`
	Batch      uint64 `json:"batch,omitempty"`
	Checkpoint uint64 `json:"checkpoint,omitempty"`
	Block      *int   `json:"block,omitempty"`
	Reason     string `json:"reason"`
}

func (a *app) verifyCommand() *cobra.Command {
	var f jobFlags
	var export string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the log of a state directory, or print a batch of it",
		Long: "Verify reads the whole log of a state directory and compares counts, lengths and digests. Each damage is\n" +
			"named by generation, batch and block. With --export LANE:BATCH it prints the records of one batch, as the\n" +
			"sink would have got them.\n\n" + codeHelp(),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := f.load()
			if err != nil {
				return err
			}
			return a.verify(cmd.Context(), j, export)
		},
	}
	f.register(cmd, "whose state directory to look at", slices.Concat(placeKeys, logKeys)...)
	cmd.Flags().StringVar(&export, "export", "", "print this `LANE:BATCH`, as sink/lane:7")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) verify(ctx context.Context, j *job, export string) error {
	if export != "" {
		return a.export(j, export)
	}
	var errs []error
	for _, o := range j.outputs {
		errs = append(errs, a.verifyOne(ctx, o))
	}
	return errors.Join(errs...)
}

func (a *app) verifyOne(ctx context.Context, o *output) (err error) {
	l, err := a.openState(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return a.printDamage(ctx, l, o.state)
}

// export prints one batch.
func (a *app) export(j *job, export string) (err error) {
	lane, seq, err := parseExport(export)
	if err != nil {
		return err
	}
	o, err := j.one()
	if err != nil {
		return err
	}
	l, err := a.openState(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return a.exportBatch(l, lane, seq)
}

// parseExport reads LANE:BATCH.
func parseExport(text string) (lane string, seq uint64, err error) {
	i := strings.LastIndexByte(text, ':')
	if i > 0 {
		seq, err = strconv.ParseUint(text[i+1:], 10, 64)
	}
	if i <= 0 || err != nil {
		return "", 0, usagef("--export %q: want LANE:BATCH, as walsink status prints them", text)
	}
	return text[:i], seq, nil
}

// exportBatch prints the records of a batch, each with a line end.
func (a *app) exportBatch(l *wal.Log, lane string, seq uint64) error {
	if !slices.ContainsFunc(l.Batches(lane), func(b record.Batch) bool { return b.Seq == seq }) {
		return usagef("--export %s:%d: the log does not hold this batch; lanes are named as walsink status does, sink/lane", lane, seq)
	}
	w := bufio.NewWriterSize(a.out, 1<<16)
	for block, err := range l.Blocks(lane, seq) {
		if err == nil {
			err = writeLines(w, block)
		}
		if err != nil {
			return errors.Join(w.Flush(), fmt.Errorf("export %s:%d: %w", lane, seq, err))
		}
	}
	return w.Flush()
}

// writeLines writes the records of a block, each with a line end.
func writeLines(w *bufio.Writer, block record.Block) error {
	for _, rec := range block.All() {
		if _, err := w.Write(rec); err != nil {
			return err
		}
		if len(rec) > 0 && rec[len(rec)-1] == '\n' {
			continue
		}
		if err := w.WriteByte('\n'); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printDamage(ctx context.Context, l *wal.Log, dir string) error {
	n := 0
	for damage := range l.Verify(ctx) {
		if err := ctx.Err(); err != nil {
			return err
		}
		n++
		if err := a.printFinding(damage); err != nil {
			return err
		}
	}
	if n > 0 {
		return fmt.Errorf("%w: state %s: %s", wal.ErrDamaged, dir, count(uint64(n), "finding"))
	}
	if a.json {
		return nil
	}
	batches, records := held(l)
	_, err := fmt.Fprintf(a.out, "state %s: %s in %s, no damage\n", dir, count(records, "record"), countOf(batches, "batch", "batches"))
	return err
}

func (a *app) printFinding(damage error) error {
	if !a.json {
		_, err := fmt.Fprintln(a.out, damage)
		return err
	}
	r := damageReport{Reason: damage.Error()}
	if d, ok := errors.AsType[*wal.Damage](damage); ok {
		r = damageReport{Generation: d.Generation, Lane: d.Lane, Batch: d.Seq, Checkpoint: d.Checkpoint, Reason: d.Err.Error()}
		if d.Block >= 0 {
			r.Block = &d.Block
		}
	}
	return a.printJSONLine(r)
}

// held counts what the log holds of completed checkpoints.
func held(l *wal.Log) (batches, records uint64) {
	for _, name := range l.Lanes() {
		for _, b := range l.Batches(name) {
			batches++
			records += b.Records
		}
	}
	return batches, records
}
