package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/wal"
)

// openState opens the log of a state directory that must be there. It takes the
// same lock as a run: while a process works on the directory, the error names it.
func (a *app) openState(o *output) (*wal.Log, error) {
	if o.state == "" {
		return nil, usagef("--state DIR is missing; or give --to DST for the default directory of that store")
	}
	if err := haveState(o.state); err != nil {
		return nil, err
	}
	opts := o.log.options()
	opts.Logger = newLogger(a.err)
	l, err := wal.Open(o.state, opts)
	if err != nil {
		return nil, &stateError{err}
	}
	return l, nil
}

// haveState refuses a directory without state: a command that only looks makes none.
func haveState(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return usagef("--state %s: nothing was ever run with this directory, or the path is wrong", dir)
	}
	if err != nil {
		return &stateError{fmt.Errorf("state directory: %w", err)}
	}
	return ownState(dir)
}

// ownState refuses a directory that holds something else.
func ownState(dir string) error {
	if err := wal.CheckDir(dir); errors.Is(err, wal.ErrForeign) {
		return usagef("--state: %w", err)
	}
	return nil // anything else Open says better
}

// A stateError is about the state directory.
type stateError struct{ err error }

func (e *stateError) Error() string { return e.err.Error() }
func (e *stateError) Unwrap() error { return e.err }

// A stateReport is what walsink status prints.
type stateReport struct {
	State      string       `json:"state"`
	Checkpoint uint64       `json:"completed_checkpoint"`
	Lanes      []laneReport `json:"lanes"`
	Log        wal.Stat     `json:"log"`
	Damage     []string     `json:"damage,omitempty"` // what opening found; verify reads all
	Live       *liveReport  `json:"live,omitempty"`   // of a running process
}

// A laneReport is one lane of the log, as the log alone knows it.
type laneReport struct {
	Lane      string        `json:"lane"`
	Head      record.Head   `json:"head"`
	Committed uint64        `json:"committed_seq"`
	Batches   int           `json:"pending_batches"`
	Records   uint64        `json:"pending_records"`
	Bytes     uint64        `json:"pending_bytes"`
	Oldest    time.Duration `json:"oldest_age"`
	Live      *liveLane     `json:"live,omitempty"`
}

func (a *app) statusCommand() *cobra.Command {
	var f jobFlags
	var address string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the lanes of a state directory and what is not in the store yet",
		Long: "Status reads the log of a state directory. It does not ask the store: what a crash kept from being noted\n" +
			"counts as pending until the next start. While a process works on the directory, status asks it, if it was\n" +
			"started with --http, and else names it.\n\n" + codeHelp(),
		Example: "  walsink status --state state\n" +
			"  walsink status --http 8080 --json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if address != "" {
				return a.remoteStatus(cmd.Context(), address)
			}
			j, err := f.load()
			if err != nil {
				return err
			}
			take := func(o *output) (stateReport, error) { return a.status(cmd.Context(), o) }
			return eachOutput(a, j, take, func(o *output, r stateReport) error {
				a.heading(j, o)
				return a.printStatus(r)
			})
		},
	}
	f.register(cmd, "whose state directory to look at", slices.Concat(placeKeys, logKeys)...)
	cmd.Flags().StringVar(&address, "http", "", "ask the run that was started with this `address`, and open nothing")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) status(ctx context.Context, o *output) (r stateReport, err error) {
	l, err := a.openState(o)
	if errors.Is(err, wal.ErrLocked) {
		return liveStatus(ctx, o.state, err)
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	r = stateReport{State: o.state, Log: l.Stat()}
	r.Checkpoint, _ = l.Completed()
	for _, damage := range r.Log.Damage {
		r.Damage = append(r.Damage, damage.Error())
	}
	for _, name := range l.Lanes() {
		r.Lanes = append(r.Lanes, reportLane(l, name, time.Now()))
	}
	return r, nil
}

func reportLane(l *wal.Log, name string, now time.Time) laneReport {
	r := laneReport{Lane: name}
	r.Head, r.Committed, _ = l.Head(name)
	for _, b := range l.Batches(name) {
		if b.Seq <= r.Committed {
			continue
		}
		if r.Batches++; r.Batches == 1 {
			r.Oldest = max(0, now.Sub(time.UnixMilli(b.SealedAt)))
		}
		r.Records += b.Records
		r.Bytes += b.Bytes
	}
	return r
}

func (a *app) printStatus(r stateReport) error {
	fmt.Fprintf(a.out, "state %s, checkpoint %d complete\n", r.State, r.Checkpoint)
	if r.Live != nil {
		r.Live.describe(a.out)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "LANE\tCHECKPOINT\tBATCH\tCOMMITTED\tPENDING\tRECORDS\tBYTES\tOLDEST\t")
	for _, l := range r.Lanes {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%v\t\n", l.Lane, l.Head.Checkpoint, l.Head.Seq, l.Committed,
			l.Batches, group(l.Records), formatSize(int64(l.Bytes)), l.Oldest.Round(time.Second))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, l := range r.Lanes {
		if l.Live != nil {
			l.Live.describe(a.out, l.Lane)
		}
	}
	for _, damage := range r.Damage {
		fmt.Fprintln(a.out, damage)
	}
	return nil
}
