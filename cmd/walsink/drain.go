package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink"
)

// A drainFlags is the command line of drain.
type drainFlags struct {
	place
	log   logFlags
	flush flushFlags
}

func (a *app) drainCommand() *cobra.Command {
	var f drainFlags
	cmd := &cobra.Command{
		Use:   "drain --to DST",
		Short: "Flush what is complete in a state directory, then end",
		Long: "Drain brings every complete checkpoint of a state directory into the store, without reading a source.\n" +
			"If the store goes down meanwhile it waits, until a signal; a store that is down at the start is an error.\n\n" + codeHelp(),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.drain(cmd.Context(), &f) },
	}
	f.register(cmd.Flags(), "to write to")
	f.log.register(cmd.Flags())
	f.flush.register(cmd.Flags())
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) drain(ctx context.Context, f *drainFlags) (err error) {
	if f.to == "" {
		return usagef("--to DST is missing: where the records go")
	}
	if err := firstErr(f.log.check(), f.flush.check()); err != nil {
		return err
	}
	t, err := f.resolve()
	if err != nil {
		return err
	}
	if err := haveState(f.state); err != nil {
		return err
	}
	stop := newStopper(ctx, drainEnd, a.note, a.cut).listen()
	defer stop.close()
	o, err := t.open(stop.ctx, noSample)
	if err != nil {
		return err
	}
	out, err := walsink.Open(stop.ctx, o.sink, outputOptions(&f.place, f.log, f.flush, newLogger(a.err)))
	if err != nil {
		return f.locate(opening(err))
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := out.Drain(stop.ctx); err != nil {
		if stop.stopped() {
			return fmt.Errorf("%w: %w", errStopped, err)
		}
		return f.locate(err)
	}
	return a.printDrained(out.Status())
}

func (a *app) printDrained(st walsink.Status) error {
	if a.json {
		return a.printJSON(st)
	}
	var records, batches uint64
	for _, l := range st.Lanes {
		records += l.Records
		batches += l.Batches
	}
	if batches == 0 {
		a.note("nothing to drain: everything complete is in the store")
		return nil
	}
	a.note(fmt.Sprintf("drained %s from %s, up to checkpoint %d",
		count(records, "record"), count(uint64(len(st.Lanes)), "lane"), st.Completed))
	return nil
}

// drainEnd is how long a flush in progress may take after a signal.
const drainEnd = 5 * time.Second

// noSample is the sampler of a command that reads no source.
func noSample(context.Context, int) ([][]byte, error) { return nil, nil }
