package sim

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

var quiet = slog.New(slog.DiscardHandler)

// A config is what a seed decides before anything happens.
type config struct {
	records     []int // of each source
	stateful    bool
	outputs     int
	lanes       int
	byKey       bool
	rescale     bool
	storage     bool
	checkpoints checkpoint.Options
	grace       time.Duration
	flush       committer.Options
	sink        memory.Options
	carry       uint64
	retain      int // committed batches of a lane that the log holds; -1 for all
	snaps       int // checkpoints that are kept

	blockRecords int
	readMax      int
	weights      map[string]int
	sleep        int
	nap          time.Duration
	rate         int // of faults, in a thousand
	steps        int // before the calm
	crashes      int // at most
	faults       map[string]bool
	loss         string // the one that a person may have to answer, if any
}

// Ways to die.
const (
	powerCut = "by a power cut"
	kill9    = "by a signal"
)

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func draw(r *rand.Rand) config {
	c := config{
		stateful: r.IntN(3) == 0, outputs: pick(r, 1, 1, 1, 2), lanes: pick(r, 1, 1, 2, 3), byKey: r.IntN(2) == 0,
		rescale: r.IntN(5) == 0, grace: pick(r, 5*time.Millisecond, 300*time.Millisecond) + 3,
		carry: pick[uint64](r, 1, 3, 100), retain: pick(r, -1, -1, 0, 1, 4), snaps: 1 + r.IntN(3),
		blockRecords: 1 + r.IntN(4), readMax: pick(r, 1, 4, 20), sleep: pick(r, 0, 1, 4), nap: pick(r, time.Microsecond, 3*time.Millisecond),
		rate: pick(r, 0, 10, 50, 200), steps: 50 + r.IntN(250), crashes: r.IntN(6),
	}
	for range pick(r, 1, 1, 2, 3) {
		c.records = append(c.records, r.IntN(pick(r, 4, 25, 60)))
	}
	c.byKey = c.byKey || c.stateful
	c.storage = c.stateful || r.IntN(4) == 0
	c.checkpoints = checkpoint.Options{
		Interval: pick(r, 0, time.Millisecond+7, 20*time.Millisecond+11), Records: pick[uint64](r, 0, 1, 5, 20),
		Timeout: pick(r, 0, 0, 40*time.Millisecond+13), MinPause: pick(r, 0, 0, time.Millisecond+17), MaxConcurrent: 1 + r.IntN(3),
	}
	c.drawFlush(r)
	c.drawFaults(r)
	return c
}

func (c *config) drawFlush(r *rand.Rand) {
	c.flush = committer.Options{
		FlushBytes: pick[int64](r, 0, 0, 100), FlushAge: pick(r, 0, 0, 5*time.Millisecond+19), StepBytes: pick[int64](r, 0, 0, 60),
		RetryMin: 1, RetryMax: 1, // more would hang on chance
		StepTimeout: pick(r, 10*time.Millisecond, time.Minute) + 23, MarkTimeout: pick(r, 10*time.Millisecond, time.Minute) + 29,
		CloseTimeout: 20*time.Millisecond + 31, DeadLetters: r.IntN(3) == 0, DeadLimit: 1000, MaxAttempts: pick(r, 0, 0, 0, 3),
	}
	c.sink = memory.Options{
		StepBytes: pick[int64](r, 0, 0, 30, 1), Chunked: r.IntN(2) == 0, Pin: r.IntN(4) == 0, Tolerate: r.IntN(2) == 0,
	}
	if c.flush.DeadLetters {
		c.sink.Reject = func(row []byte) *sinks.Reject {
			if isBad(row) {
				return &sinks.Reject{Field: "f", Code: "22P02", Reason: "bad"}
			}
			return nil
		}
	}
}

// isBad says of a row that the store will never take it.
func isBad(row []byte) bool { return (int(row[0])+int(row[atNumber+1])*7+int(row[atPart]))%11 == 3 }

// drawFaults chooses a few kinds of faults, so that not all runs are alike, and
// makes some operations slow.
func (c *config) drawFaults(r *rand.Rand) {
	c.faults, c.weights = map[string]bool{}, map[string]int{}
	for _, op := range operations {
		c.weights[op] = pick(r, 1, 8, 8, 40)
		for _, f := range failures[op] {
			c.faults[f] = c.faults[f] || r.IntN(2) == 0
		}
	}
	for _, f := range []string{killed, powerLost, stopped, storeDown} {
		c.faults[f] = r.IntN(2) == 0
	}
	losses := []string{rolledBack, diskLost, diskOld, secondOwner}
	c.loss = pick(r, losses...)
	switch {
	case r.IntN(3) == 0:
		c.loss = ""
	case !c.person():
		for _, f := range losses {
			c.faults[f] = r.IntN(3) == 0
		}
	}
	c.faults[c.loss] = true
	if c.person() && c.loss == rolledBack {
		c.retain = -1 // else the store has lost what only it had
	}
}

// person reports whether the loss of a disk may need a person: there is state that
// the ledger does not have.
func (c *config) person() bool { return c.stateful || c.outputs > 1 }

func (c *config) route() pipeline.Route {
	if !c.byKey {
		return pipeline.Route{}
	}
	return pipeline.ByKey("key", func(rec []byte) []byte { return rec[atKey:atPart] })
}

// weight says how likely it is that a call is the next to go on.
func (c *config) weight(o *call) int {
	if o.ready != nil && !o.ready() {
		return 0
	}
	return c.weights[o.op]
}

// operations are all those that wait for their turn.
var operations = []string{"read", "seal", "sync", "save", "load", "acquire", "marks", "flush", "mark", "open log", "close"}
