package committer

import (
	"log/slog"
	"time"
)

// Options of a Committer. The zero value is ready to use: flush at once, retry
// for ever, stop at a record that the store refuses, refuse whatever could lose
// or repeat data.
type Options struct {
	// Stateful says that the pipeline keeps state that belongs to its local log, so
	// that it cannot go on from the mark of the store alone.
	Stateful bool
	// NoReplay says that the source cannot go back to an earlier position.
	NoReplay bool
	// Accept answers refusals of Open. It is for one start, given by a person.
	Accept Accept

	// FlushBytes and FlushAge delay a flush until so many bytes are complete or the
	// oldest complete batch has waited so long, whichever is first; it is how small
	// checkpoints become large steps. With both zero a batch is flushed at once. If
	// only FlushBytes is set, FlushAge is one second.
	FlushBytes int64
	FlushAge   time.Duration
	// StepBytes is the most record bytes of several batches put into one step; the
	// default is 32 MiB, and a sink may want less. A single batch may be larger.
	StepBytes int64

	// MaxAttempts stops a lane after so many attempts at one step; nothing is lost
	// by it. 0 means no end.
	MaxAttempts int
	// RetryMin and RetryMax bound the wait before another attempt: a random time up
	// to RetryMin doubled for each attempt, but no more than RetryMax. The defaults
	// are 50 ms and 2 s, so that a store that is back has work at once.
	RetryMin, RetryMax time.Duration
	// StepTimeout and MarkTimeout end a call of the sink that does not return. The
	// defaults are 10 min and 30 s.
	StepTimeout, MarkTimeout time.Duration
	// UnknownAfter is how long the outcome of a flush may stay unknown before it is
	// reported as an error. The mark is asked for until it answers. The default is
	// one minute.
	UnknownAfter time.Duration
	// CloseTimeout is how long Close lets a flush go on, and how long it waits for
	// the sink to obey after that. The default is 5 s.
	CloseTimeout time.Duration

	// DeadLetters says that records which the store will never take go to its dead
	// letters, up to DeadLimit of one batch (100 if zero). Otherwise the lane stops
	// at the first. The numbers and reasons of one batch have to fit into one note of
	// the log; if they do not, the lane stops.
	DeadLetters bool
	DeadLimit   int

	// Observer is told what happens.
	Observer Observer
	// Logger gets what a person should know. The default discards it.
	Logger *slog.Logger
}

// Accept says which damage an operator is willing to take to get past a refusal
// of Open. The table in the package comment says what the first two do.
type Accept uint8

const (
	// AcceptDuplicates goes on where records may come into the store again.
	AcceptDuplicates Accept = 1 << iota
	// AcceptLoss goes on where records may be missing from the store for ever.
	AcceptLoss
	// AcceptForm takes dead letters whose wire form nobody remembers for that of
	// today. Open has no use for it.
	AcceptForm
)

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if o.FlushBytes > 0 {
		def(&o.FlushAge, time.Second)
	}
	if o.StepBytes <= 0 {
		o.StepBytes = 32 << 20
	}
	if o.DeadLimit <= 0 {
		o.DeadLimit = 100
	}
	def(&o.RetryMin, 50*time.Millisecond)
	def(&o.RetryMax, 2*time.Second)
	def(&o.StepTimeout, 10*time.Minute)
	def(&o.MarkTimeout, 30*time.Second)
	def(&o.UnknownAfter, time.Minute)
	def(&o.CloseTimeout, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
