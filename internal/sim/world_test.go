package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/walsink/walsink/sinks/memory"
)

var (
	// errDead is the answer to every call of a process that was killed.
	errDead = errors.New("the process is dead")
	// errInjected is the cause of every fault.
	errInjected = errors.New("injected")
)

// deadTime is how long a call of a dead process takes, so that it does not try again
// and again in no time.
const deadTime = 50 * time.Millisecond

// A world is one run. Its fields belong to the controller, but for those under mu;
// the controller looks only while everything else stands still.
type world struct {
	cfg    config
	rng    *rand.Rand
	trace  io.Writer // hash of all that happened
	sum    func() uint64
	log    func(format string, args ...any) // nil unless somebody reads it
	start  time.Time
	steps  int
	faults map[string]int

	stores    []*store
	procs     []*proc // those that run
	zombies   []*proc // killed, not yet ended
	disks     []*disk
	saved     func() // puts back what an operator would, after a refusal
	copies    []*disk
	mayRefuse bool // something was lost that only a person can bring back
	refusals  int  // of processes one after the other
	refused   bool // a running process may be refused, not one that starts in the calm
	fences    bool // more than one process has run at once, or fences have gone back
	down      bool // no store answers
	calm      bool // no faults any more
	crashes   int
	serial    int   // of the last process
	last      *proc // the last one that ended well
	calmed    int   // serial of the last process before the calm
	again     bool
	idle      int // naps since the last call
	turn      int // of the disks in the calm
	rows      int
	failure   error

	mu    sync.Mutex
	calls []*call
}

// A call is one that waits for its turn.
type call struct {
	proc  *proc
	op    string
	key   string // of the process, the operation and the actor
	ready func() bool
	go_   chan verdict
}

// A verdict is how a call goes on.
type verdict struct {
	fault string // "" if all is well
	n     uint64 // random bits
}

func newWorld(seed uint64) *world {
	h := fnv.New64a()
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 0x77616c73696e6b)), trace: h, sum: h.Sum64,
		start: time.Now(), faults: map[string]int{},
	}
	w.cfg = draw(w.rng)
	for range w.cfg.outputs {
		w.stores = append(w.stores, &store{Store: memory.NewStore()})
	}
	w.disks = []*disk{newDisk()}
	return w
}

// note adds to the trace.
func (w *world) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(w.trace, "%d %s\n", time.Since(w.start), text)
	if w.log != nil {
		w.log("%4d %12v %s", w.steps, time.Since(w.start), text)
	}
}

func (w *world) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf(format, args...)
	}
}

// chance is true in so many of 1,000 cases, and counts the fault.
func (w *world) chance(permille int, fault string) bool {
	if w.calm || !w.cfg.faults[fault] || w.rng.IntN(1000) >= permille {
		return false
	}
	w.faults[fault]++
	return true
}

// wait makes the call wait for its turn. It fails if ctx ends before, or the process
// dies.
func (p *proc) wait(ctx context.Context, op, actor string) (verdict, error) {
	return p.waitFor(ctx, op, actor, nil)
}

// waitFor is wait for a call that is not always ready.
func (p *proc) waitFor(ctx context.Context, op, actor string, ready func() bool) (verdict, error) {
	c := &call{proc: p, op: op, ready: ready, key: p.name + " " + op + " " + actor, go_: make(chan verdict, 1)}
	w := p.w
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		select {
		case <-time.After(deadTime):
		case <-ctx.Done():
		}
		return verdict{n: 1}, errDead
	}
	w.calls = append(w.calls, c)
	w.mu.Unlock()
	select {
	case v := <-c.go_:
		if v.fault == "dead" {
			return v, errDead
		}
		return v, nil
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
		return verdict{}, ctx.Err()
	}
}

// pending returns the calls that wait, in an order that does not hang on chance.
func (w *world) pending() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.calls, func(a, b *call) int { return cmp.Compare(a.key, b.key) })
	for i := range w.calls {
		if i > 0 && w.calls[i].key == w.calls[i-1].key {
			w.fail("two calls at once: %s", w.calls[i].key)
		}
	}
	return slices.Clone(w.calls)
}

// let lets a call go on.
func (w *world) let(c *call) {
	w.mu.Lock()
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
	w.mu.Unlock()
	w.idle = 0
	v := verdict{n: w.rng.Uint64(), fault: w.fault(c)}
	w.note("%s %s", c.key, v.fault)
	c.go_ <- v
}

// failures are the faults of each operation, with how often they come when they
// come at all.
var failures = map[string][]string{
	"read":     {"read fails"},
	"seal":     {"no space"},
	"sync":     {"sync fails", "no space"},
	"save":     {"save fails", "save unanswered"},
	"load":     {"checkpoint damaged", "checkpoint unread"},
	"acquire":  {"transient", "acquire unanswered"},
	"marks":    {"transient"},
	"flush":    {"transient", "lost before", "lost after", "late", "late", "cancelled"},
	"mark":     {"transient", "mark unanswered"},
	"open log": {"open fails"},
}

func (w *world) fault(c *call) string {
	if w.down && !w.calm && slices.Contains([]string{"acquire", "marks", "flush", "mark"}, c.op) {
		return "transient"
	}
	list := failures[c.op]
	if len(list) == 0 {
		return ""
	}
	if f := list[w.rng.IntN(len(list))]; w.chance(w.cfg.rate, f) {
		return f
	}
	return ""
}

// run is the controller: it lives the whole life of the world.
func (w *world) run() error {
	for {
		synctest.Wait()
		w.steps++
		w.reap()
		w.check(false)
		if w.failure != nil {
			break
		}
		if w.steps == w.cfg.steps {
			w.heal()
			continue
		}
		if w.steps > w.cfg.steps+20_000 {
			w.fail("no end: waiting are %s", w.waiting())
			break
		}
		if len(w.procs) == 0 && w.calm && w.ended() {
			break
		}
		if w.hopeless() {
			w.faults[givenUp]++
			break
		}
		w.step()
	}
	for _, p := range w.procs {
		w.kill(p, "at the end")
	}
	w.procs = nil
	for range 1000 {
		synctest.Wait()
		w.reap()
		if len(w.zombies) == 0 {
			return w.failure
		}
		time.Sleep(time.Second)
	}
	w.fail("a dead process does not end: %s", w.zombies[0].name)
	return w.failure
}

func (w *world) waiting() string {
	var keys []string
	for _, c := range w.pending() {
		keys = append(keys, c.key)
	}
	return strings.Join(keys, ", ")
}

// step picks what happens next.
func (w *world) step() {
	if !w.calm && w.disturb() {
		return
	}
	if len(w.procs) == 0 {
		w.begin()
		return
	}
	var sum int
	calls := w.pending()
	for _, c := range calls {
		sum += w.cfg.weight(c)
	}
	sleep := w.cfg.sleep
	if w.calm && sum > 0 {
		sleep = 0
	}
	if sum == 0 {
		w.pass()
		return
	}
	n := w.rng.IntN(sum + sleep)
	for _, c := range calls {
		if n -= w.cfg.weight(c); n < 0 {
			w.let(c)
			return
		}
	}
	w.pass()
}

// pass lets time pass.
func (w *world) pass() {
	d := time.Duration(1 + w.rng.Int64N(int64(w.cfg.nap)<<min(w.idle, 10)))
	w.idle++
	w.note("sleep")
	time.Sleep(d)
}

// heal ends all faults. What was given up by then is started again.
func (w *world) heal() {
	w.note("calm")
	w.calm, w.down, w.calmed = true, false, w.serial
	for _, p := range w.procs {
		w.kill(p, "before the calm")
	}
	w.procs = nil
}

// reap looks which processes have ended.
func (w *world) reap() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.zombies = slices.DeleteFunc(w.zombies, func(p *proc) bool { return p.ended })
	w.procs = slices.DeleteFunc(w.procs, func(p *proc) bool {
		if p.ended {
			w.ending(p)
		}
		return p.ended
	})
}
