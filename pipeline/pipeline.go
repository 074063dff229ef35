package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/walsink/walsink/checkpoint"
)

// A Pipeline is sources, transforms and outputs, and how they run together. Sources
// and Outputs are required; everything else is usable at zero. It runs once, and is
// not changed while it does.
type Pipeline struct {
	// Sources are read at the same time.
	Sources []Input
	// Stages are applied to each record, in order.
	Stages []Stage
	// Outputs each get every record that comes out of the last stage.
	Outputs []Sink

	// Lanes is the number of lanes; default 1. With state the sources share them; without,
	// each source has so many of its own. See the package comment.
	Lanes int
	// Route spreads records over the lanes. State on several lanes needs one with a key.
	Route Route

	// Checkpoints says when checkpoints are taken. Tasks is set by Run. Records is
	// exact with one source.
	Checkpoints checkpoint.Options
	// OpenBytes is the number of bytes emitted since the last checkpoint at which
	// another one is demanded, so that the open batches never fill the log; 0 means
	// no limit. A quarter of the log's budget is a good value.
	OpenBytes uint64
	// Mode says whether lanes with several inputs align them.
	Mode checkpoint.Mode
	// Storage keeps completed checkpoints. It is required with state; without, each
	// output remembers where it stands.
	Storage checkpoint.Storage
	// Require is the least guarantee to run with; 0 requires none.
	Require Guarantee
	// Grace bounds what happens after the context of Run ends: the final checkpoint
	// and draining. Default 30 s.
	Grace time.Duration
	// Logger gets the guarantee at start, aborted checkpoints, and what a start had
	// to repeat. Default slog.Default().
	Logger *slog.Logger

	stats stats
}

const defaultGrace = 30 * time.Second

// ErrConfig says that a Pipeline is put together wrong.
var ErrConfig = errors.New("pipeline")

func (p *Pipeline) logger() *slog.Logger {
	if p.Logger == nil {
		return slog.Default()
	}
	return p.Logger
}

func (p *Pipeline) grace() time.Duration {
	if p.Grace <= 0 {
		return defaultGrace
	}
	return p.Grace
}

// stateful reports whether any stage has state.
func (p *Pipeline) stateful() bool {
	return slices.ContainsFunc(p.Stages, func(s Stage) bool { return s.State })
}

// layout is how the pipeline spreads records, unless a position says otherwise.
func (p *Pipeline) layout() layout {
	return layout{lanes: max(p.Lanes, 1), shared: p.stateful(), route: p.Route.String()}
}

func (p *Pipeline) validate() error {
	for _, check := range []func() error{p.checkParts, p.checkNames, p.checkLanes, p.checkCheckpoints} {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return nil
}

func (p *Pipeline) checkParts() error {
	if len(p.Sources) == 0 {
		return errors.New("no source")
	}
	if len(p.Outputs) == 0 {
		return errors.New("no output")
	}
	for _, in := range p.Sources {
		if in.Source == nil {
			return fmt.Errorf("source %q is nil", in.Name)
		}
	}
	for _, out := range p.Outputs {
		if out.Open == nil {
			return fmt.Errorf("output %q has no Open", out.Name)
		}
	}
	for _, s := range p.Stages {
		if (s.Func == nil) == (s.New == nil) {
			return fmt.Errorf("transform %q: want exactly one of Func and New", s.Name)
		}
	}
	return nil
}

func (p *Pipeline) checkNames() error {
	seen := map[string]bool{}
	for _, in := range p.Sources {
		if seen["source "+in.Name] {
			return fmt.Errorf("two sources are called %q", in.Name)
		}
		seen["source "+in.Name] = true
	}
	for _, out := range p.Outputs {
		if seen["output "+out.Name] {
			return fmt.Errorf("two outputs are called %q", out.Name)
		}
		seen["output "+out.Name] = true
	}
	for _, s := range p.Stages {
		if s.State && seen["transform "+s.Name] {
			return fmt.Errorf("two transforms with state are called %q", s.Name)
		}
		seen["transform "+s.Name] = true
	}
	return nil
}

func (p *Pipeline) checkLanes() error {
	l := p.layout()
	if p.Lanes < 0 {
		return fmt.Errorf("%d lanes", p.Lanes)
	}
	if n := l.width(len(p.Sources)); n > maxLanes {
		return fmt.Errorf("%d lanes; want 1 to %d in all", n, maxLanes)
	}
	if l.shared && l.lanes > 1 && p.Route.key == nil {
		return errors.New("a transform with state on several lanes needs a Route by key, so that each key has one lane")
	}
	return nil
}

func (p *Pipeline) checkCheckpoints() error {
	if p.Storage == nil && p.stateful() {
		return errors.New("a transform has state, and there is no Storage for checkpoints")
	}
	if p.Checkpoints.Interval > 0 || p.Checkpoints.Records > 0 {
		return nil
	}
	for _, in := range p.Sources {
		if e, ok := in.Source.(Endless); ok && e.Endless() {
			return fmt.Errorf("checkpoints are off, and source %q may never end: nothing would ever become visible; set an interval", in.Name)
		}
	}
	return nil
}

// A Summary is what a run did.
type Summary struct {
	// Promise is the guarantee that the run had.
	Promise Promise
	// Records and Bytes were read from the sources; Emitted records went to the
	// outputs, counted once per output.
	Records, Bytes, Emitted uint64
	// Skipped records were in a completed checkpoint already, and not read.
	Skipped uint64
	// Repeated checkpoints were done again after a loss of state.
	Repeated uint64
	// Checkpoints completed and Aborted, and the Last one that is complete.
	Checkpoints, Aborted, Last uint64
	// Ended says that all sources came to their end, else the run was stopped.
	Ended bool
	// Elapsed is the time from start to end.
	Elapsed time.Duration
}

// Run runs the pipeline until all sources have ended or ctx does. In both cases
// it then takes a final checkpoint and drains the outputs, after the end of ctx
// within Grace. On nil everything that was read is in the stores. After an error
// nothing is lost either: the next run goes on from the last completed
// checkpoint. Run opens and closes sources and outputs; when it returns no
// goroutine of its own is left.
func (p *Pipeline) Run(ctx context.Context) (s Summary, err error) {
	start := time.Now()
	defer func() { s.Elapsed = time.Since(start) }()
	if err := p.validate(); err != nil {
		return s, err
	}
	j, err := p.start(ctx)
	if err != nil {
		return s, errors.Join(err, j.close())
	}
	s.Promise, s.Skipped = j.promise, j.at.records()
	err = j.work(ctx)
	err = errors.Join(err, j.close())
	p.stats.fill(&s)
	s.Last, s.Repeated, s.Ended = j.last, j.repeated, j.ended
	return s, err
}
