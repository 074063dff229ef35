package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/internal/seam"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/wal"
)

// A proc is one life of a process, from its start to its end or death.
type proc struct {
	w      *world
	name   string
	serial int
	disk   *disk
	lanes  int
	cancel context.CancelFunc

	// Under world.mu.
	underway []int // records of each source between it and the state
	dead     bool
	ended    bool
	sum      pipeline.Summary
	err      error
}

// begin starts a process on one of the disks.
func (w *world) begin() {
	d := w.disks[w.rng.IntN(len(w.disks))]
	if w.calm {
		w.turn++
		d = w.disks[w.turn%len(w.disks)] // another one, after a refusal
	}
	w.launch(d)
}

func (w *world) launch(d *disk) {
	w.serial++
	p := &proc{w: w, name: fmt.Sprint("p", w.serial), serial: w.serial, disk: d, lanes: w.cfg.lanes, underway: make([]int, len(w.cfg.records))}
	if w.cfg.rescale {
		p.lanes = 1 + w.rng.IntN(3)
	}
	w.note("%s starts on disk %d with %d lanes", p.name, slices.Index(w.disks, d), p.lanes)
	w.procs = append(w.procs, p)
	ctx, cancel := context.WithCancel(seam.With(context.Background(), p.openLog))
	p.cancel = cancel
	pipe := p.pipeline()
	go func() {
		defer cancel()
		sum, err := pipe.Run(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		p.sum, p.err, p.ended = sum, err, true
	}()
}

func (p *proc) pipeline() *pipeline.Pipeline {
	c := p.w.cfg
	pipe := &pipeline.Pipeline{
		Lanes: p.lanes, Route: c.route(), Checkpoints: c.checkpoints, Grace: c.grace, Logger: quiet,
	}
	for i, n := range c.records {
		pipe.Sources = append(pipe.Sources, pipeline.Input{Name: fmt.Sprint("source", i), Source: &source{proc: p, index: i, end: n}})
	}
	if c.stateful {
		pipe.Stages = []pipeline.Stage{pipeline.Keyed("count", pipeline.MemoryState{}, p.count)}
	} else {
		pipe.Stages = []pipeline.Stage{{Name: "fan", Func: fan}}
	}
	if c.storage {
		pipe.Storage = &storage{proc: p}
	}
	for i, s := range p.w.stores {
		mem := &sink{Sink: memory.Open(s.Store, c.sink), proc: p, store: s, index: i}
		out := pipeline.Walsink(fmt.Sprint("output", i), mem, walsink.Options{
			Dir: logDir(i), ID: sinkID(i), Flush: c.flush, CarryEvery: c.carry, Logger: quiet, Lanes: []string{},
		}, nil)
		open := out.Open
		out.Open = func(ctx context.Context, r pipeline.Restored) (pipeline.Output, error) {
			o, err := open(ctx, r)
			if err != nil {
				return nil, err
			}
			return &output{o.(landing), p, out.Name}, nil
		}
		pipe.Outputs = append(pipe.Outputs, out)
	}
	return pipe
}

// landing is what pipeline.Walsink opens.
type landing interface {
	pipeline.Output
	pipeline.Resumer
	pipeline.Cutter
	pipeline.Aborter
	pipeline.Watcher
	pipeline.Guarantor
	pipeline.Holder
	io.Closer
}

// An output waits for its turn before it closes, so that it does not hang on
// chance what its lanes still do.
type output struct {
	landing
	proc *proc
	name string
}

func (o *output) Close() error {
	_, _ = o.proc.wait(context.Background(), "close", o.name) // a dead process closes too
	return o.landing.Close()
}

func logDir(i int) string { return fmt.Sprint("log", i) }

func sinkID(i int) string { return fmt.Sprint("sink", i) }

// kill ends a process: its calls fail for ever.
func (w *world) kill(p *proc, how string) {
	w.note("%s is killed %s", p.name, how)
	calls := w.pending()
	p.disk.crash(w, how) // before anybody can close what is there
	w.mu.Lock()
	p.dead = true
	for _, c := range calls {
		if c.proc == p {
			c.go_ <- verdict{fault: "dead", n: w.rng.Uint64()}
		}
	}
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.proc == p })
	w.mu.Unlock()
	p.cancel()
	w.zombies = append(w.zombies, p)
	w.crashes++
}

// refusals are the errors that ask for a person.
var refusals = []error{committer.ErrStateBehind, committer.ErrLedgerMissing, committer.ErrLedgerBehind, committer.ErrReplayDiffers}

// ending judges how a process ended that was not killed. The caller holds mu.
func (w *world) ending(p *proc) {
	kind := w.kindOf(p.err)
	w.note("%s ends: %s", p.name, kind)
	p.disk.ended()
	w.refusals++
	if kind != "refused" {
		w.refusals = 0
	}
	if p.err == nil {
		if p.sum.Ended {
			w.last = p
		}
		return
	}
	if w.log != nil {
		w.log("%v", p.err)
	}
	switch kind {
	case "refused":
		if !w.mayRefuse && (!w.refused || w.calm) {
			w.fail("%s refused to go on: %w", p.name, p.err)
		}
		w.putBack(p)
	case "fenced":
		if !w.fences {
			w.fail("%s was fenced by nobody: %w", p.name, p.err)
		}
	case "fault":
		if w.calm {
			w.fail("%s failed without a fault: %w", p.name, p.err)
		}
	case "together":
		if !w.fences {
			w.fail("%s says that it is not alone: %w", p.name, p.err)
		}
	case "moved":
		if !w.fences && w.faults[rolledBack] == 0 {
			w.fail("%s says that the store moved, and nobody moved it: %w", p.name, p.err)
		}
	default:
		w.fail("%s ended with an error that nobody injected: %w", p.name, p.err)
	}
}

// kindOf names the reason for which a process ended.
func (w *world) kindOf(err error) string {
	switch {
	case err == nil:
		return "well"
	case slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }):
		return "refused"
	case fenced(err):
		return "fenced"
	case errors.Is(err, errInjected), errors.Is(err, pipeline.ErrGrace), errors.Is(err, context.Canceled):
		return "fault"
	case w.cfg.flush.MaxAttempts > 0 && errors.Is(err, context.DeadlineExceeded):
		return "fault" // the store was slow until the attempts were used up
	case errors.Is(err, walsink.ErrShared), errors.Is(err, walsink.ErrUnknownLane):
		return "together"
	case errors.Is(err, walsink.ErrMoved):
		return "moved"
	}
	return "unknown"
}

func fenced(err error) bool {
	if e, ok := errors.AsType[*sinks.Error](err); ok && e.Kind == sinks.Fenced {
		return true
	}
	return sinks.KindOf(err) == sinks.Fenced
}

// openLog opens the log of an output of the process.
func (p *proc) openLog(dir string, _ wal.Options) (seam.Log, error) {
	v, err := p.wait(context.Background(), "open log", dir)
	if err != nil {
		return nil, err
	}
	if v.fault != "" {
		return nil, errInjected
	}
	return p.disk.openLog(p, dir), nil
}
