package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink"
)

func (a *app) drainCommand() *cobra.Command {
	var f jobFlags
	cmd := &cobra.Command{
		Use:   "drain --to DST",
		Short: "Flush what is complete in a state directory, then end",
		Long: "Drain brings every complete checkpoint of a state directory into the store, without reading a source.\n" +
			"If the store goes down meanwhile it waits, until a signal; a store that is down at the start is an error.\n\n" + codeHelp(),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := f.load()
			if err != nil {
				return err
			}
			return a.drain(cmd.Context(), j)
		},
	}
	f.register(cmd, "to write to", slices.Concat(placeKeys, logKeys, flushKeys)...)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) drain(ctx context.Context, j *job) error {
	if err := j.needTo("where the records go"); err != nil {
		return err
	}
	for _, o := range j.outputs {
		if err := haveState(o.state); err != nil {
			return err
		}
	}
	stop := newStopper(ctx, drainEnd, a.note, a.cut).listen()
	defer stop.close()
	return eachOutput(a, j, func(o *output) (walsink.Status, error) {
		st, err := a.drainOne(stop.ctx, j, o)
		if err != nil && stop.stopped() {
			err = fmt.Errorf("%w: %w", errStopped, err)
		}
		return st, err
	}, func(o *output, st walsink.Status) error {
		if len(j.outputs) > 1 {
			a.note("output " + o.name + ": " + drained(st))
		} else {
			a.note(drained(st))
		}
		return nil
	})
}

func (a *app) drainOne(ctx context.Context, j *job, o *output) (st walsink.Status, err error) {
	sink, err := o.target.open(ctx, j.sampler(newLogger(a.err)))
	if err != nil {
		return st, err
	}
	out, err := walsink.Open(ctx, sink.sink, outputOptions(o, j.logger(o, newLogger(a.err))))
	if err != nil {
		return st, o.advise(j, o.locate(opening(err)))
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := out.Drain(ctx); err != nil {
		return st, o.advise(j, o.locate(err))
	}
	return out.Status(), nil
}

// drained says what a drain has done.
func drained(st walsink.Status) string {
	var records, batches uint64
	for _, l := range st.Lanes {
		records += l.Records
		batches += l.Batches
	}
	if batches == 0 {
		return "nothing to drain: everything complete is in the store"
	}
	return fmt.Sprintf("drained %s from %s, up to checkpoint %d",
		count(records, "record"), count(uint64(len(st.Lanes)), "lane"), st.Completed)
}

// drainEnd is how long a flush in progress may take after a signal.
const drainEnd = 5 * time.Second
