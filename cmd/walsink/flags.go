package main

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/wal"
)

// A place is where an output keeps things.
type place struct {
	to    string
	state string
	id    string
}

func (p *place) register(fs *pflag.FlagSet) {
	fs.StringVar(&p.state, "state", "", "state `directory` (default .walsink/NAME below the working directory, NAME made from DST)")
	fs.StringVar(&p.id, "id", "", "sink id, the `name` of the job in the store's ledger (default made from DST)")
}

// A job is where records come from, where they go, and how. Command line and
// configuration file say it together: see [jobFlags.load].
type job struct {
	from         []string
	interval     time.Duration
	records      uint64
	lanes        int
	laneBy       string
	follow       bool
	maxRecord    sizeFlag
	require      string
	drainTimeout time.Duration
	waitStore    time.Duration
	http         string
	pprof        bool
	origins      origins

	outputs []*output // set by load
}

// register makes a flag of everything that is not about one output.
func (j *job) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&j.from, "from", nil, "`SRC`, a source; may be repeated")
	fs.DurationVar(&j.interval, "checkpoint-interval", time.Second, "take a checkpoint every so often; 0 for never")
	fs.Uint64Var(&j.records, "checkpoint-records", 0, "take a checkpoint after so many `records` of a source; 0 for no such limit")
	fs.IntVar(&j.lanes, "lanes", 1, "`number` of lanes per source; each keeps its own order")
	fs.StringVar(&j.laneBy, "lane-by", "round-robin", "`rule` that spreads records over lanes: round-robin or key:FIELD")
	fs.BoolVar(&j.follow, "follow", false, "wait for more at the end of the input, until a signal")
	j.maxRecord = 16 << 20
	fs.Var(&j.maxRecord, "max-record", "longest record that is accepted")
	fs.StringVar(&j.require, "require", "", "refuse to start with a weaker `guarantee`: exactly-once, at-least-once or at-most-once")
	fs.DurationVar(&j.drainTimeout, "drain-timeout", 10*time.Second, "how long the end may take after a signal")
	fs.StringVar(&j.http, "http", "", "serve a status page, metrics and probes at this `address`; a port alone is one of the loopback")
	fs.BoolVar(&j.pprof, "pprof", false, "serve profiles of the process as well, under /debug/pprof/")
	fs.DurationVar(&j.waitStore, "wait-store", 0, "how long to wait at the start for a store that cannot be reached; 0 for as long as it takes")
}

// guarantees are the words of --require.
var guarantees = map[string]pipeline.Guarantee{
	"": 0, "exactly-once": pipeline.ExactlyOnce, "at-least-once": pipeline.AtLeastOnce, "at-most-once": pipeline.AtMostOnce,
}

// check refuses values that cannot be meant so.
func (j *job) check() error {
	at := j.origins
	switch _, ok := guarantees[j.require]; {
	case j.lanes < 1:
		return at.bad("lanes", j.lanes, "want 1 or more")
	case j.interval < 0:
		return at.bad("checkpoint-interval", j.interval, "want 0 or more")
	case j.pprof && j.http == "":
		return at.bad("pprof", j.pprof, "the profiles are served with --http, which is missing")
	case j.drainTimeout <= 0:
		return at.bad("drain-timeout", j.drainTimeout, "want more than 0")
	case j.waitStore < 0:
		return at.bad("wait-store", j.waitStore, "want 0 or more")
	case !ok:
		return at.bad("require", strconv.Quote(j.require), "want exactly-once, at-least-once or at-most-once")
	}
	_, err := j.route()
	return err
}

// route is the meaning of --lane-by.
func (j *job) route() (pipeline.Route, error) {
	if j.laneBy == "round-robin" {
		return pipeline.Route{}, nil
	}
	if field, ok := strings.CutPrefix(j.laneBy, "key:"); ok && field != "" {
		return pipeline.ByField(field), nil
	}
	return pipeline.Route{}, j.origins.bad("lane-by", strconv.Quote(j.laneBy), "want round-robin or key:FIELD")
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

func (l *logFlags) check(at origins) error {
	switch {
	case l.maxBytes < leastLog:
		return at.bad("max-bytes", &l.maxBytes, "want "+formatSize(leastLog)+" or more")
	case l.retain < 0:
		return at.bad("retain", l.retain, "want 0 or more")
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

func (l *flushFlags) check(at origins) error {
	switch {
	case l.age < 0:
		return at.bad("flush-age", l.age, "want 0 or more")
	case l.attempts < 0:
		return at.bad("max-attempts", l.attempts, "want 0 or more")
	case l.deadLimit < 1:
		return at.bad("dead-limit", l.deadLimit, "want 1 or more")
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
