package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/pipeline"
)

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run --from SRC --to DST",
		Short: "Move records from sources to a store, each exactly once",
		Long:  runHelp(),
		Example: "  walsink run --from ndjson:events.ndjson --to 'file:out?format=ndjson' --state state\n" +
			"  walsink run --from csv:birds.csv --to 'file:out?bucket={state}&compress=zstd' --lanes 4",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd.Context(), &f) },
	}
	f.register(cmd.Flags())
	a.jsonFlag(cmd)
	return cmd
}

func runHelp() string {
	var b strings.Builder
	b.WriteString("Run reads the sources from where the ledger in the store says, takes checkpoints, and flushes each\n" +
		"complete one in one atomic step together with its ledger mark. Start it again with the same command\n" +
		"line after any crash. It ends at the end of the input, or at a signal; a second signal stops at once.\n\nSRC:\n")
	for _, s := range sourceForms {
		fmt.Fprintf(&b, "  %s\n", s.form)
	}
	b.WriteString("\nDST:\n")
	for _, s := range stores {
		fmt.Fprintf(&b, "  %s\n", s.form)
	}
	return b.String() + "\n" + codeHelp()
}

// openBytes is when a checkpoint is taken before its time, so that the store has
// work while input is read fast.
const openBytes = 64 << 20

// A runner is one run of a job.
type runner struct {
	app    *app
	flags  *runFlags
	log    *slog.Logger
	target target
	pipe   *pipeline.Pipeline
	output atomic.Pointer[statuser]
}

func (a *app) run(ctx context.Context, f *runFlags) error {
	r, err := a.newRunner(ctx, f)
	if err != nil {
		return err
	}
	stop := newStopper(ctx, f.drainTimeout, a.note, a.cut).listen()
	defer stop.close()
	meter, interval := newMeter(a.err, -1, r.log)
	quiet := watch(meter, interval, r.pulse)
	sum, err := r.pipe.Run(stop.ctx)
	quiet()
	if stop.stopped() {
		err = f.stopped(sum, err)
	}
	err = f.locate(err)
	return errors.Join(a.printSummary(sum, err), err)
}

// stopped is the error of a run that a signal ended; nil if nothing is left to do.
func (f *runFlags) stopped(sum pipeline.Summary, err error) error {
	switch {
	case err == nil && (sum.Ended || f.follow):
		return nil
	case err == nil:
		return fmt.Errorf("%w before the end of the input", errStopped)
	case errors.Is(err, pipeline.ErrGrace), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: the drain bound of %v has passed: %w", errStopped, f.drainTimeout, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", errStopped, err)
	}
	return err
}

// note prints a line about the run itself.
func (a *app) note(text string) { fmt.Fprintln(a.err, "walsink: "+text) }

func (a *app) newRunner(ctx context.Context, f *runFlags) (*runner, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	t, err := f.resolve()
	if err != nil {
		return nil, err
	}
	if err := firstErr(ownState(f.state), f.eatsItself(t)); err != nil {
		return nil, err
	}
	log := newLogger(a.err)
	inputs, sample, err := openSources(f, log)
	if err != nil {
		return nil, err
	}
	o, err := t.open(ctx, sample)
	if err != nil {
		return nil, err
	}
	route, err := f.route()
	if err != nil {
		return nil, err
	}
	r := &runner{app: a, flags: f, target: t, log: log}
	r.pipe = &pipeline.Pipeline{
		Sources: inputs, Lanes: f.lanes, Route: route, Require: guarantees[f.require], Grace: f.drainTimeout, Logger: r.log,
		Checkpoints: checkpoint.Options{Interval: f.interval, Records: f.records},
		OpenBytes:   uint64(min(f.log.maxBytes/4, openBytes)),
		Outputs:     []pipeline.Sink{r.landing(o)},
	}
	return r, nil
}

// landing is the output as the pipeline opens it, with a look at it for progress.
func (r *runner) landing(o opened) pipeline.Sink {
	name := r.target.scheme + ":" + r.target.where
	s := pipeline.Walsink(name, o.sink, outputOptions(&r.flags.place, r.flags.log, r.flags.flush, r.log), checkedEncode(o.encode))
	open := s.Open
	s.Open = func(ctx context.Context, restored pipeline.Restored) (pipeline.Output, error) {
		out, err := open(ctx, restored)
		if st, ok := out.(statuser); ok {
			r.output.Store(&st)
		}
		return out, opening(err)
	}
	return s
}

// A statuser is an open output that says how it is.
type statuser interface{ Status() walsink.Status }

// pulse is what progress shows.
func (r *runner) pulse() pulse {
	g := r.pipe.Progress()
	p := pulse{records: g.Records, bytes: g.Bytes, lanes: g.Lanes, checkpoint: g.Last}
	if !g.LastAt.IsZero() {
		p.since = time.Since(g.LastAt)
	}
	out := r.output.Load()
	if out == nil {
		return p
	}
	for _, l := range (*out).Status().Lanes {
		p.batches += l.PendingBatches
		p.pending += int64(l.PendingBytes)
		p.oldest = max(p.oldest, l.OldestAge)
		if !l.NextRetry.IsZero() {
			p.lastError = l.LastError
		}
	}
	return p
}

// newLogger writes log lines for people and programs alike.
func newLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
