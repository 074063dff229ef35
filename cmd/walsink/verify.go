package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// verifyFlags are the flags of verify alone.
type verifyFlags struct {
	export   string
	setAside setAsideFlags
}

func (a *app) verifyCommand() *cobra.Command {
	var f jobFlags
	var v verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the log of a state directory, print a batch of it, or set a damaged one aside",
		Long: "Verify reads the whole log of a state directory and compares counts, lengths and digests. Each damage is\n" +
			"named by generation, batch and block.\n\n" +
			"With --export LANE:BATCH it prints the records of one batch in the form that the sink takes, one a line:\n" +
			"JSON as it is, other text as a JSON string, anything else as {\"base64\":\"...\"}.\n\n" + setAsideHelp + "\n" + codeHelp(),
		Example: "  walsink verify --state state\n" +
			"  walsink verify --state state --export walsink/000:7 > batch.ndjson\n" +
			"  walsink verify --state state --set-aside walsink/000:7 --replay",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := f.load()
			if err != nil {
				return err
			}
			return a.verify(cmd.Context(), j, v)
		},
	}
	f.register(cmd, "whose state directory to look at", slices.Concat(placeKeys, logKeys)...)
	cmd.Flags().StringVar(&v.export, "export", "", "print this `LANE:BATCH`, as sink/lane:7")
	v.setAside.register(cmd.Flags())
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) verify(ctx context.Context, j *job, v verifyFlags) error {
	switch {
	case v.export != "" && v.setAside.batch != "":
		return usagef("--export and --set-aside are two commands: give one")
	case v.setAside.batch == "" && v.setAside.any():
		return usagef("--replay, --accept-loss, --salvage and --dry-run go with --set-aside")
	case v.export != "":
		return a.export(j, v.export)
	case v.setAside.batch != "":
		return a.setAside(j, v.setAside)
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
	return a.printDamage(ctx, l, o)
}

// export prints one batch.
func (a *app) export(j *job, export string) (err error) {
	lane, seq, err := parseBatch("export", export)
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
	if _, err := findBatch(l, "export", lane, seq); err != nil {
		return err
	}
	w := bufio.NewWriterSize(a.out, 1<<16)
	for block, err := range l.Blocks(lane, seq) {
		if err == nil {
			err = writeRecords(w, block)
		}
		if err != nil {
			return errors.Join(w.Flush(), fmt.Errorf("export %s:%d: %w", lane, seq, err))
		}
	}
	return w.Flush()
}

// parseBatch reads LANE:BATCH.
func parseBatch(flag, text string) (lane string, seq uint64, err error) {
	i := strings.LastIndexByte(text, ':')
	if i > 0 {
		seq, err = strconv.ParseUint(text[i+1:], 10, 64)
	}
	if i <= 0 || err != nil {
		return "", 0, usagef("--%s %q: want LANE:BATCH, as walsink status prints them", flag, text)
	}
	return text[:i], seq, nil
}

// findBatch is the batch as the log knows it.
func findBatch(l *wal.Log, flag, lane string, seq uint64) (record.Batch, error) {
	for _, b := range l.Batches(lane) {
		if b.Seq == seq {
			return b, nil
		}
	}
	return record.Batch{}, usagef("--%s %s:%d: the log does not hold this batch; lanes are named as walsink status does, sink/lane", flag, lane, seq)
}

// writeRecords writes the records of a block as lines of JSON.
func writeRecords(w *bufio.Writer, block record.Block) error {
	for _, rec := range block.All() {
		line, err := jsonLine(rec)
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// jsonLine is a record as a line of JSON: as it is, as a string or, if it is no text,
// in base 64.
func jsonLine(rec []byte) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if raw, ok := rawJSON(rec); ok {
		return append(bytes.Clone(raw), '\n'), nil
	}
	err := enc.Encode(shownRecord(rec))
	return b.Bytes(), err
}

// rawJSON is a record that is JSON in one line, without its line end.
func rawJSON(rec []byte) (json.RawMessage, bool) {
	body := bytes.TrimSuffix(rec, []byte{'\n'})
	return body, json.Valid(body) && !bytes.ContainsAny(body, "\n\r")
}

func (a *app) printDamage(ctx context.Context, l *wal.Log, o *output) error {
	n := 0
	stuck := map[string]uint64{}
	for damage := range l.Verify(ctx) {
		if err := ctx.Err(); err != nil {
			return err
		}
		n++
		if err := a.printFinding(damage); err != nil {
			return err
		}
		if d, ok := errors.AsType[*wal.Damage](damage); ok {
			noteStuck(l, d, stuck)
		}
	}
	if n > 0 {
		return o.adviseDamage(fmt.Errorf("%w: state %s: %s", wal.ErrDamaged, o.state, count(uint64(n), "finding")), stuck)
	}
	if a.json {
		return nil
	}
	batches, records := held(l)
	_, err := fmt.Fprintf(a.out, "state %s: %s in %s, no damage\n", o.state, count(records, "record"), countOf(batches, "batch", "batches"))
	return err
}

// noteStuck keeps, for each lane, the first damaged batch that waits for its flush: that is
// what the lane stops at, and to replay it takes what is behind it out too.
func noteStuck(l *wal.Log, d *wal.Damage, stuck map[string]uint64) {
	if d.Lane == "" || d.Seq == 0 {
		return
	}
	if _, committed, _ := l.Head(d.Lane); d.Seq <= committed {
		return
	}
	if first, ok := stuck[d.Lane]; !ok || d.Seq < first {
		stuck[d.Lane] = d.Seq
	}
}

// adviseDamage adds the commands that let the lanes go on.
func (o *output) adviseDamage(err error, stuck map[string]uint64) error {
	if len(stuck) == 0 {
		return err
	}
	var b strings.Builder
	b.WriteString("to let the rest go on; nothing is lost if the source can be read again, and without --replay each names the way out for a source that cannot:")
	for _, lane := range slices.Sorted(maps.Keys(stuck)) {
		b.WriteString("\n  " + o.setAsideCommand(lane, stuck[lane]) + " --replay")
	}
	return &advised{err, b.String()}
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
