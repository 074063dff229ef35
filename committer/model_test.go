package committer_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// The model: there is one source of numbered records, which can be read from any
// position. Two owners with logs of their own take turns, or run at once, and
// everything goes wrong. At every moment the store holds exactly the first so many
// records, those that are bad as dead letters, and says how many; and once the
// faults end, an owner that starts gets everything in.

// An op is one thing that happens.
type op struct {
	Kind  opKind
	Owner int
	N     int
	Error sinks.Kind
	After bool
	Race  bool // do not wait for the workers after it
}

type opKind int

const (
	opAppend   opKind = iota // N records in a batch, sealed; starts a dead owner
	opComplete               // what is sealed
	opFail                   // the next N flushes
	opFailMark               // the next N reads of a mark
	opCrash                  // at once; the log may have forgotten Commit
	opStart
	opStartEmpty // without its log
	opStartCopy  // with a copy of the other's log
	opSnapshot
	opRollback
	opDrop // all but N committed batches
	opWait
	opKinds
)

var opNames = [...]string{"append", "complete", "fail", "fail mark", "crash", "start", "start empty", "start copy",
	"snapshot", "rollback", "drop", "wait"}

func (o op) String() string {
	return fmt.Sprintf("%s(owner %d, n %d, %v, after %v, race %v)", opNames[o.Kind], o.Owner, o.N, o.Error, o.After, o.Race)
}

// A config is the options of a run.
type config struct {
	StepBytes   int64
	Chunked     bool
	Bad         int // every so many records are bad; 0 for none
	Tolerate    bool
	FlushBytes  int64
	FlushAge    time.Duration
	EngineBytes int64
	MaxAttempts int
}

func drawConfig(t *rapid.T) config {
	return config{
		StepBytes:   int64(rapid.SampledFrom([]int{0, 1, 12, 40}).Draw(t, "step bytes")),
		Chunked:     rapid.Bool().Draw(t, "chunked"),
		Bad:         rapid.SampledFrom([]int{0, 2, 7}).Draw(t, "bad"),
		Tolerate:    rapid.Bool().Draw(t, "tolerate"),
		FlushBytes:  int64(rapid.SampledFrom([]int{0, 30}).Draw(t, "flush bytes")),
		FlushAge:    time.Duration(rapid.SampledFrom([]int{0, 1}).Draw(t, "flush age")) * time.Second,
		EngineBytes: int64(rapid.SampledFrom([]int{0, 20}).Draw(t, "engine bytes")),
		MaxAttempts: rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "max attempts"),
	}
}

func drawOp(t *rapid.T) op {
	// Appending and completing come often, so that the rest has something to meet.
	weighted := rapid.SampledFrom([]opKind{opAppend, opAppend, opAppend, opAppend, opComplete, opComplete, opComplete, opFail, opFail,
		opFailMark, opCrash, opStart, opStart, opStartEmpty, opStartCopy, opSnapshot, opRollback, opDrop, opWait, opWait})
	return op{
		Kind:  weighted.Draw(t, "op"),
		Owner: rapid.IntRange(0, 1).Draw(t, "owner"),
		N:     rapid.IntRange(0, 7).Draw(t, "n"),
		Error: rapid.SampledFrom([]sinks.Kind{sinks.Transient, sinks.Ambiguous, sinks.Ambiguous, sinks.Cancelled}).Draw(t, "error"),
		After: rapid.Bool().Draw(t, "after"),
		Race:  rapid.Bool().Draw(t, "race"),
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		ops := rapid.SliceOfN(rapid.Custom(drawOp), 20, 60).Draw(rt, "ops")
		var err error
		synctest.Test(t, func(t *testing.T) { err = simulate(t, cfg, ops) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

type simulation struct {
	cfg    config
	store  *memory.Store
	saved  memory.Snapshot
	fences bool // have gone back: two owners may hold the same one
	owners [2]*owner
}

// An owner is a process with its disk.
type owner struct {
	sim  *simulation
	log  *fakeLog
	sink *faultySink
	c    *committer.Committer // nil if it does not run

	mu             sync.Mutex
	dead           bool // its calls no longer reach the store
	fail, failMark int
	err            sinks.Kind
	after          bool

	at, checkpoint int // of the source, and the next checkpoint
}

func simulate(t *testing.T, cfg config, ops []op) error {
	s := &simulation{cfg: cfg, store: memory.NewStore()}
	s.saved = s.store.Snapshot()
	for i := range s.owners {
		s.owners[i] = &owner{sim: s, log: newLog()}
	}
	defer func() {
		for _, o := range s.owners {
			o.crash(0)
		}
	}()
	for i, op := range ops {
		if err := s.do(t.Context(), op); err != nil {
			return fmt.Errorf("step %d %v: %w", i, op, err)
		}
		if !op.Race {
			synctest.Wait()
		}
		if err := s.check(); err != nil {
			return fmt.Errorf("after step %d %v: %w", i, op, err)
		}
	}
	return s.alive(t.Context())
}

func (s *simulation) do(ctx context.Context, op op) error {
	o := s.owners[op.Owner]
	switch op.Kind {
	case opAppend:
		if err := o.start(ctx, 0); err != nil {
			return err
		}
		o.append(op.N)
	case opComplete:
		o.complete()
	case opFail:
		o.set(func() { o.fail, o.err, o.after = op.N, op.Error, op.After })
	case opFailMark:
		o.set(func() { o.failMark = op.N })
	case opCrash:
		o.crash(op.N)
	case opStart:
		return o.start(ctx, 0)
	case opStartEmpty:
		o.crash(0)
		o.log = newLog()
		return o.start(ctx, 0)
	case opStartCopy:
		o.crash(0)
		o.log = s.owners[1-op.Owner].log.clone()
		o.log.truncate()
		return o.start(ctx, 0)
	case opSnapshot:
		s.saved = s.store.Snapshot()
	case opRollback:
		s.store.Restore(s.saved, op.After)
		s.fences = s.fences || !op.After
	case opDrop:
		if _, _, ok := o.log.Head(key); ok {
			o.log.drop(key, op.N)
		}
	case opWait:
		time.Sleep(time.Duration(op.N) * 300 * time.Millisecond)
		synctest.Wait()
	}
	return nil
}

// record is record n of the source.
func (s *simulation) record(n int) string {
	if s.cfg.Bad > 0 && n%s.cfg.Bad == 1 {
		return fmt.Sprintf("bad%d", n)
	}
	return fmt.Sprintf("r%03d", n)
}

// check compares the store, at one moment, with the source.
func (s *simulation) check() error {
	store := memory.NewStore()
	store.Restore(s.store.Snapshot(), false)
	marks, err := memory.Open(store, memory.Options{}).Marks(context.Background(), sinkID)
	if err != nil || len(marks) == 0 {
		return err
	}
	m := marks[0].Mark
	end := parse(m.Position)
	if m.Partial != nil {
		end += int(m.Partial.Done)
	}
	var good, dead []string
	for n := range end {
		if r := s.record(n); badRecord([]byte(r)) != nil {
			dead = append(dead, r)
		} else {
			good = append(good, r)
		}
	}
	if err := same("record", store.Records(laneA), good); err != nil {
		return err
	}
	var letters [][]byte
	for _, d := range store.DeadLetters(laneA) {
		letters = append(letters, d.Record)
	}
	if err := same("dead letter", letters, dead); err != nil {
		return err
	}
	if m.Records != uint64(len(good)) || m.Dead != uint64(len(dead)) {
		return fmt.Errorf("the mark counts %d and %d dead, not %d and %d", m.Records, m.Dead, len(good), len(dead))
	}
	return nil
}

func same(what string, got [][]byte, want []string) error {
	if len(got) != len(want) {
		return fmt.Errorf("the store shows %d %ss, the mark stands for %d", len(got), what, len(want))
	}
	for i := range got {
		if string(got[i]) != want[i] {
			return fmt.Errorf("%s %d is %q, want %q", what, i, got[i], want[i])
		}
	}
	return nil
}

// alive ends all faults: an owner that starts has to get everything in.
func (s *simulation) alive(ctx context.Context) error {
	o := s.owners[0]
	if s.fences {
		s.owners[1].crash(0)
	}
	o.set(func() { o.fail, o.failMark = 0, 0 })
	for range 2 { // the second start, if another owner was newer
		if err := o.start(ctx, 0); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
		o.append(5)
		o.complete()
		err := o.c.Drain(ctx)
		if sinks.KindOf(o.c.Err()) == sinks.Fenced || errors.Is(err, committer.ErrReplayDiffers) ||
			errors.Is(err, committer.ErrStateBehind) || errors.Is(err, committer.ErrLedgerBehind) || errors.Is(err, committer.ErrLedgerMissing) {
			o.crash(0)
			continue
		}
		if err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
		if err := s.check(); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
		marks, _ := memory.Open(s.store, memory.Options{}).Marks(ctx, sinkID)
		if got := parse(marks[0].Position); got != o.at || marks[0].Partial != nil {
			return fmt.Errorf("at the end the mark is at %d, the source at %d", got, o.at)
		}
		return nil
	}
	return errors.New("an owner did not get along in two starts")
}

func (o *owner) set(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// append seals a batch of the next n records.
func (o *owner) append(n int) {
	if o.c == nil || n == 0 {
		return
	}
	var list []string
	for range n {
		list = append(list, o.sim.record(o.at))
		o.at++
	}
	o.seal(list)
}

func (o *owner) seal(list []string) {
	o.log.seal(key, uint64(o.checkpoint), list...)
	o.checkpoint++
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	l := o.log.lane(key)
	l.sealed[len(l.sealed)-1].Position = []byte(strconv.Itoa(o.at))
}

func parse(position []byte) int {
	n, _ := strconv.Atoi(string(position))
	return n
}

func (o *owner) complete() {
	if o.c != nil {
		o.log.finish(key, uint64(o.checkpoint))
		o.c.Notify()
	}
}

// crash ends the process without a word. Of what Commit said the log may have
// forgotten some.
func (o *owner) crash(forget int) {
	if o.c == nil {
		return
	}
	o.set(func() { o.dead = true })
	disk := o.log.clone()
	if err := o.c.Close(); err != nil {
		panic(err)
	}
	if l, ok := disk.lanes[key]; ok {
		disk.truncate()
		floor := l.head.Seq - uint64(len(l.sealed))
		l.committed = max(floor, l.committed-min(l.committed, uint64(forget)))
	}
	o.log, o.c = disk, nil
}

func (o *owner) start(ctx context.Context, accept committer.Accept) error {
	if o.c != nil && o.c.Err() == nil {
		return nil
	}
	o.crash(0)
	cfg := o.sim.cfg
	o.set(func() { o.dead = false })
	o.sink = &faultySink{Sink: memory.Open(o.sim.store, memory.Options{
		StepBytes: cfg.StepBytes, Chunked: cfg.Chunked, Reject: badRecord, Tolerate: cfg.Tolerate,
	})}
	o.sink.flush = func(int, *sinks.Step) fault { return o.flushFault() }
	o.sink.mark = func(int) error { return o.markFault() }
	c, err := committer.New(o.sink, sinkID, o.log, committer.Options{
		DeadLetters: true, FlushBytes: cfg.FlushBytes, FlushAge: cfg.FlushAge, StepBytes: cfg.EngineBytes, MaxAttempts: cfg.MaxAttempts,
		RetryMin: time.Millisecond, RetryMax: time.Second, CloseTimeout: time.Millisecond, Accept: accept,
	})
	if err != nil {
		return err
	}
	opening, err := c.Open(ctx, "a")
	if err != nil {
		return o.refused(ctx, c, accept, err)
	}
	o.c = c
	o.resume(opening)
	return nil
}

// refused does what the refusal tells an operator to do.
func (o *owner) refused(ctx context.Context, c *committer.Committer, accept committer.Accept, err error) error {
	if cerr := c.Close(); cerr != nil {
		return cerr
	}
	switch {
	case accept != 0:
	case errors.Is(err, committer.ErrLedgerMissing): // the store lost everything
		return o.start(ctx, committer.AcceptDuplicates)
	case errors.Is(err, committer.ErrReplayDiffers): // another owner's batch
		o.log = newLog()
		return o.start(ctx, committer.AcceptDuplicates)
	}
	return err
}

// resume does what the root does after Open.
func (o *owner) resume(opening committer.Opening) {
	head, _, _ := o.log.Head(key)
	m := opening.Mark
	o.at, o.checkpoint = parse(head.Position), int(max(head.Checkpoint, m.Checkpoint))+1
	if opening.Outcome == committer.Resume && m.Partial != nil {
		var list []string
		for ; o.at < parse(m.Partial.Batch.Position); o.at++ {
			list = append(list, o.sim.record(o.at))
		}
		o.checkpoint = int(m.Partial.Batch.Checkpoint)
		o.seal(list)
	}
}

var errDead = &sinks.Error{Kind: sinks.Cancelled, Op: "flush", Err: errors.New("the process is dead")}

func (o *owner) flushFault() fault {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dead:
		return fault{err: errDead}
	case o.fail > 0:
		o.fail--
		return fault{err: kind(o.err), after: o.after}
	}
	return fault{}
}

func (o *owner) markFault() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dead:
		return errDead
	case o.failMark > 0:
		o.failMark--
		return kind(sinks.Transient)
	}
	return nil
}
