package main

import (
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// A place is where a job keeps things: the flags that all commands on it share.
type place struct {
	to    string
	state string
	id    string
}

func (p *place) register(fs *pflag.FlagSet, what string) {
	fs.StringVar(&p.to, "to", "", "`DST`, the store "+what)
	fs.StringVar(&p.state, "state", "", "state `directory` (default .walsink/NAME below the working directory, NAME made from DST)")
	fs.StringVar(&p.id, "id", "", "sink id, the `name` of the job in the store's ledger (default made from DST)")
}

// resolve parses DST, if there is one, and fills in the defaults it gives.
func (p *place) resolve() (target, error) {
	if p.to == "" {
		return target{}, nil
	}
	t, err := parseTarget(p.to)
	if err != nil {
		return t, err
	}
	if p.id == "" {
		p.id = t.defaultID()
	}
	if p.state == "" {
		p.state = filepath.Join(".walsink", t.stateName())
	}
	if err := (sinks.LaneID{Sink: p.id, Lane: "x"}).Validate(); err != nil {
		return t, usagef("--id: %w", err)
	}
	return t, nil
}

// A runFlags is the command line of run.
type runFlags struct {
	place
	from         []string
	interval     time.Duration
	records      uint64
	lanes        int
	laneBy       string
	follow       bool
	maxRecord    sizeFlag
	require      string
	drainTimeout time.Duration
	log          logFlags
	flush        flushFlags
}

func (f *runFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.from, "from", nil, "`SRC`, a source; may be repeated")
	f.place.register(fs, "to write to")
	fs.DurationVar(&f.interval, "checkpoint-interval", time.Second, "take a checkpoint every so often; 0 for never")
	fs.Uint64Var(&f.records, "checkpoint-records", 0, "take a checkpoint after so many `records` of a source; 0 for no such limit")
	fs.IntVar(&f.lanes, "lanes", 1, "`number` of lanes per source; each keeps its own order")
	fs.StringVar(&f.laneBy, "lane-by", "round-robin", "`rule` that spreads records over lanes: round-robin or key:FIELD")
	fs.BoolVar(&f.follow, "follow", false, "wait for more at the end of the input, until a signal")
	f.maxRecord = 16 << 20
	fs.Var(&f.maxRecord, "max-record", "longest record that is accepted")
	fs.StringVar(&f.require, "require", "", "refuse to start with a weaker `guarantee`: exactly-once, at-least-once or at-most-once")
	fs.DurationVar(&f.drainTimeout, "drain-timeout", 10*time.Second, "how long the end may take after a signal")
	f.log.register(fs)
	f.flush.register(fs)
}

// guarantees are the words of --require.
var guarantees = map[string]pipeline.Guarantee{
	"": 0, "exactly-once": pipeline.ExactlyOnce, "at-least-once": pipeline.AtLeastOnce, "at-most-once": pipeline.AtMostOnce,
}

// check refuses what cannot be meant so.
func (f *runFlags) check() error {
	switch _, ok := guarantees[f.require]; {
	case len(f.from) == 0:
		return usagef("--from SRC is missing: where the records come from")
	case f.to == "":
		return usagef("--to DST is missing: where the records go")
	case f.lanes < 1:
		return usagef("--lanes %d: want 1 or more", f.lanes)
	case f.interval < 0:
		return usagef("--checkpoint-interval %v: want 0 or more", f.interval)
	case f.drainTimeout <= 0:
		return usagef("--drain-timeout %v: want more than 0", f.drainTimeout)
	case !ok:
		return usagef("--require %q: want exactly-once, at-least-once or at-most-once", f.require)
	}
	_, err := f.route()
	return firstErr(err, f.log.check(), f.flush.check())
}

// route is the meaning of --lane-by.
func (f *runFlags) route() (pipeline.Route, error) {
	if f.laneBy == "round-robin" {
		return pipeline.Route{}, nil
	}
	if field, ok := strings.CutPrefix(f.laneBy, "key:"); ok && field != "" {
		return pipeline.ByField(field), nil
	}
	return pipeline.Route{}, usagef("--lane-by %q: want round-robin or key:FIELD", f.laneBy)
}

// A logFlags configures the write-ahead log.
type logFlags struct {
	maxBytes, generation sizeFlag
	retain               time.Duration
}

func (l *logFlags) register(fs *pflag.FlagSet) {
	l.maxBytes, l.generation = 10<<30, 32<<20
	fs.Var(&l.maxBytes, "max-bytes", "byte budget of the log; input waits while it is used up")
	fs.Var(&l.generation, "generation-size", "about how much of the log is dropped at a time")
	fs.DurationVar(&l.retain, "retain", 10*time.Minute, "how long the log keeps what is in the store, to heal a store that was rolled back")
}

// leastLog is the least budget that the log takes.
const leastLog = 4 << 20

func (l *logFlags) check() error {
	switch {
	case l.maxBytes < leastLog:
		return usagef("--max-bytes %v: want %v or more", &l.maxBytes, formatSize(leastLog))
	case l.retain < 0:
		return usagef("--retain %v: want 0 or more", l.retain)
	}
	return nil
}

func (l *logFlags) options() wal.Options {
	o := wal.Options{MaxBytes: int64(l.maxBytes), GenerationBytes: int64(l.generation), Retain: l.retain}
	if o.Retain <= 0 {
		o.Retain = -1
	}
	return o
}

// A flushFlags configures the flush engine.
type flushFlags struct {
	bytes            sizeFlag
	age              time.Duration
	attempts         int
	dead             bool
	deadLimit        int
	loss, duplicates bool
}

func (l *flushFlags) register(fs *pflag.FlagSet) {
	fs.Var(&l.bytes, "flush-bytes", "gather complete checkpoints up to this size before they go to the store; 0B for at once")
	fs.DurationVar(&l.age, "flush-age", 0, "how long complete checkpoints may wait to be gathered; 0 for not at all")
	fs.IntVar(&l.attempts, "max-attempts", 0, "stop after so many attempts at one flush; 0 for never")
	fs.BoolVar(&l.dead, "dead-letters", false, "put records that the store refuses aside, instead of stopping")
	fs.IntVar(&l.deadLimit, "dead-limit", 100, "most dead letters of one batch")
	fs.BoolVar(&l.duplicates, "accept-duplicates", false, "get past a refusal at start where records may come into the store again")
	fs.BoolVar(&l.loss, "accept-loss", false, "get past a refusal at start where records may be missing for ever")
}

func (l *flushFlags) check() error {
	switch {
	case l.age < 0:
		return usagef("--flush-age %v: want 0 or more", l.age)
	case l.attempts < 0:
		return usagef("--max-attempts %d: want 0 or more", l.attempts)
	case l.deadLimit < 1:
		return usagef("--dead-limit %d: want 1 or more", l.deadLimit)
	}
	return nil
}

// firstErr returns the first error.
func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *flushFlags) options() committer.Options {
	o := committer.Options{
		FlushBytes: int64(l.bytes), FlushAge: l.age, MaxAttempts: l.attempts, DeadLetters: l.dead, DeadLimit: l.deadLimit,
	}
	if o.FlushAge > 0 && o.FlushBytes == 0 {
		o.FlushBytes = math.MaxInt64
	}
	if l.duplicates {
		o.Accept |= committer.AcceptDuplicates
	}
	if l.loss {
		o.Accept |= committer.AcceptLoss
	}
	return o
}
