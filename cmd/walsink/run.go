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
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

func (a *app) runCommand() *cobra.Command {
	var f jobFlags
	cmd := &cobra.Command{
		Use:   "run --from SRC --to DST",
		Short: "Move records from sources to a store, each exactly once",
		Long:  runHelp(),
		Example: "  walsink run --from ndjson:events.ndjson --to 'file:out?format=ndjson' --state state\n" +
			"  walsink run --from csv:birds.csv --to 'file:out?bucket={state}&compress=zstd' --lanes 4",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := f.load()
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), j)
		},
	}
	f.register(cmd, "to write to")
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
	return b.String() + "\nAll options of DST: cmd/walsink/README.md in the source.\n\n" + codeHelp()
}

// openBytes is when a checkpoint is taken before its time, so that the store has
// work while input is read fast.
const openBytes = 16 << 20

// A runner is one run of a job.
type runner struct {
	app     *app
	job     *job
	log     *slog.Logger
	pipe    *pipeline.Pipeline
	outputs []*landing
	server  *server
}

// A landing is an output of a run.
type landing struct {
	*output
	sink   opened
	found  []sinks.Finding
	opened atomic.Pointer[statuser] // nil until the run has opened it
}

func (a *app) run(ctx context.Context, j *job) error {
	stop := newStopper(ctx, j.drainTimeout, a.note, a.cut).listen()
	defer stop.close()
	r, err := a.newRunner(stop.ctx, j)
	if err != nil && stop.stopped() {
		return j.stoppedEarly(err)
	}
	if err != nil {
		return err
	}
	defer r.server.close()
	meter, interval := newMeter(a.err, -1, r.log)
	quiet := watch(meter, interval, r.pulse)
	sum, err := r.pipe.Run(stop.ctx)
	quiet()
	if stop.stopped() {
		err = j.stopped(sum, err)
	}
	if len(j.outputs) == 1 {
		err = j.outputs[0].locate(err)
	}
	for _, o := range j.outputs {
		if len(j.outputs) == 1 || isA[*wal.Damage](err) {
			err = o.advise(j, err)
		}
	}
	return errors.Join(a.printSummary(sum, r.landed(), err), err)
}

// stopped is the error of a run that a signal ended; nil if nothing is left to do.
func (j *job) stopped(sum pipeline.Summary, err error) error {
	switch {
	case err == nil && (sum.Ended || j.follow):
		return nil
	case err == nil:
		return fmt.Errorf("%w before the end of the input", errStopped)
	case errors.Is(err, pipeline.ErrGrace), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: the drain bound of %v has passed: %w", errStopped, j.drainTimeout, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", errStopped, err)
	}
	return err
}

// stoppedEarly is the error of a run that a signal ended before it began.
func (j *job) stoppedEarly(err error) error {
	if j.follow {
		return nil
	}
	return fmt.Errorf("%w before the start: %w", errStopped, err)
}

// note prints a line about the run itself.
func (a *app) note(text string) { fmt.Fprintln(a.err, "walsink: "+text) }

func (a *app) newRunner(ctx context.Context, j *job) (*runner, error) {
	if err := firstErr(j.needFrom(), j.needTo("where the records go"), j.eatsItself()); err != nil {
		return nil, err
	}
	route, err := j.route()
	if err != nil {
		return nil, err
	}
	r := &runner{app: a, job: j, log: newLogger(a.err)}
	inputs, sample, err := openSources(j, r.log)
	if err != nil {
		return nil, err
	}
	if r.server, err = a.serve(ctx, j, r.log); err != nil {
		return nil, err
	}
	if err := r.openSinks(ctx, sample); err != nil {
		r.server.close()
		return nil, err
	}
	r.pipe = &pipeline.Pipeline{
		Sources: inputs, Lanes: j.lanes, Route: route, Require: guarantees[j.require], Grace: j.drainTimeout, Logger: r.log,
		Checkpoints: checkpoint.Options{Interval: j.interval, Records: j.records},
		OpenBytes:   openBytes,
	}
	for _, l := range r.outputs {
		r.pipe.OpenBytes = min(r.pipe.OpenBytes, uint64(l.log.maxBytes/4))
		r.pipe.Outputs = append(r.pipe.Outputs, l.pipe(j, r.server, r.log))
	}
	r.server.progress(r.pipe)
	return r, nil
}

// openSinks opens the stores, one after the other.
func (r *runner) openSinks(ctx context.Context, sample sampler) error {
	for _, o := range r.job.outputs {
		err := ownState(o.state)
		l := &landing{output: o}
		if err == nil {
			w := waiter{r.job.waitStore, r.log, r.job.label(o)}
			l.sink, l.found, err = o.target.openWaiting(ctx, w, sample)
		}
		if err != nil {
			for _, l := range r.outputs {
				err = errors.Join(err, l.sink.sink.Close())
			}
			return err
		}
		warn(r.log, r.job.label(o), l.found)
		r.outputs = append(r.outputs, l)
	}
	return nil
}

// pipe is the output as the pipeline opens it, with a look at it for progress.
func (l *landing) pipe(j *job, srv *server, log *slog.Logger) pipeline.Sink {
	opts := outputOptions(l.output, j.logger(l.output, log))
	opts.Flush.NoReplay = j.noReplay()
	opts = srv.instrument(l.output, opts)
	s := pipeline.Walsink(j.label(l.output), l.sink.sink, opts, checkedEncode(l.sink.encode))
	s.Findings, s.Start = l.found, starts[l.start]
	open := s.Open
	s.Open = func(ctx context.Context, restored pipeline.Restored) (pipeline.Output, error) {
		out, err := open(ctx, restored)
		if st, ok := out.(statuser); ok {
			l.opened.Store(&st)
			srv.opened(l.output, st)
		}
		return out, l.advise(j, opening(err))
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
	for _, out := range r.outputs {
		out.add(&p)
	}
	return p
}

// status is that of the output, zero if it is not open yet.
func (l *landing) status() walsink.Status {
	out := l.opened.Load()
	if out == nil {
		return walsink.Status{}
	}
	return (*out).Status()
}

func (l *landing) add(p *pulse) {
	for _, l := range l.status().Lanes {
		p.batches += l.PendingBatches
		p.pending += int64(l.PendingBytes)
		p.oldest = max(p.oldest, l.OldestAge)
		if !l.NextRetry.IsZero() {
			p.lastError = l.LastError
		}
	}
}

// newLogger writes log lines for people and programs alike.
func newLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
