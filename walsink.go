package walsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/internal/seam"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// DefaultLane is the lane of [Output.Append].
const DefaultLane = "000"

// carryEvery is the default of Options.CarryEvery.
const carryEvery = 100

// Errors of this package; those of [committer] and [wal] come through as they are.
var (
	// ErrClosed says that the output was closed.
	ErrClosed = errors.New("output is closed")
	// ErrBarrier says that a checkpoint was to be taken at another position than the
	// next of Barriers. Read on in the source until its position is reached.
	ErrBarrier = errors.New("a checkpoint of an earlier run must be repeated first")
	// ErrCheckpoint says that a checkpoint id is not above the one before.
	ErrCheckpoint = errors.New("checkpoint id does not rise")
	// ErrForeignState says that the state directory belongs to another sink id,
	// whose source position would be taken for that of this one.
	ErrForeignState = errors.New("the state directory belongs to another sink id")
	// ErrNew says that neither log nor ledger knows the sink id, and that Options.RefuseNew
	// wants one that is known. Nothing was written, and the sink is still open.
	ErrNew = errors.New("neither log nor ledger knows the sink id")
	// ErrShared says that another process took up a lane under the sink id while the
	// output was opened.
	ErrShared = errors.New("another process uses the sink id")
	// ErrMoved says that a lane's ledger entry was another one at the end of Open than
	// at its beginning, although nobody had taken the lane over: the store was put back
	// to an older state in between. Nothing was written on the strength of either; Open
	// again goes on from what the store has now.
	ErrMoved = errors.New("the ledger changed while it was read")
	// ErrUnknownLane says that a lane was taken for new and the store has records of
	// it: another process writes under the sink id, or the sink cannot list its lanes.
	ErrUnknownLane = errors.New("the store has records of a lane that this log does not know")
)

// Options configure an Output. Dir and ID are required.
type Options struct {
	// Dir is the state directory, created if missing, on a local file system. One
	// process at a time has it open.
	Dir string
	// ID is the sink id: with the lane's name, the key of the ledger entries in the
	// store. Keep it for the life of the job; see [sinks.LaneID] for its form.
	ID string
	// Lanes are opened by Open, in addition to those that log and store know.
	// Default: DefaultLane alone.
	Lanes []string
	// NewLanes are opened by Open as well if neither log nor ledger knows the sink id: the
	// lanes that a job begins with. The ledger is read once for all that are opened
	// together, and once for each that is opened by [Output.Lane].
	NewLanes []string
	// Log configures the write-ahead log in Dir.
	Log wal.Options
	// Flush configures the flush engine.
	Flush committer.Options
	// AckAfterFlush makes Checkpoint wait until the store has the checkpoint: for
	// sources that forget what was acknowledged, on a disk that may be lost.
	AckAfterFlush bool
	// CarryEvery is the number of checkpoints after which the mark of a lane without
	// records is carried forward, so that a start without local state need not go
	// back further. Default 100.
	CarryEvery uint64
	// Restored is the checkpoint that the caller's own state was restored from, for
	// a caller that keeps state beside the output. If the log has sealed it, it counts
	// as complete even if the note of that did not reach the log. If the log has not,
	// because it was lost or put back, it does not count, and Position is another one
	// than that of Restored: the caller must not go on from its state. Nil: the log's
	// newest.
	Restored *Barrier
	// Observer is told what happens up to the seal; Flush.Observer is told the rest.
	Observer Observer
	// Completed is a checkpoint that the caller knows to be complete, from another output
	// of the same job. If this log has sealed it, it counts as complete here too, up to
	// where this output sealed it. 0: none.
	Completed uint64
	// RefuseNew makes Open fail with ErrNew if neither log nor ledger knows the sink id.
	// It leaves the sink open then, for another Open.
	RefuseNew bool
	// Begin is where a sink id begins that neither log nor ledger knows: Position is that
	// of the output, and checkpoints rise from there. The ledger has it, for all of Lanes
	// and NewLanes, when Open returns. Nil: at the beginning of the source.
	Begin *Barrier
	// Logger gets what an operator may want to know. Default: slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Log.Logger == nil {
		o.Log.Logger = o.Logger.With("output", o.ID)
	}
	if o.Flush.Logger == nil {
		o.Flush.Logger = o.Logger
	}
	if o.CarryEvery == 0 {
		o.CarryEvery = carryEvery
	}
	if o.Lanes == nil {
		o.Lanes = []string{DefaultLane}
	}
	return o
}

// A Barrier is a checkpoint with the source position it was taken at.
type Barrier = committer.Barrier

// An Output lands records in a sink exactly once. Seal, Complete, Abort,
// Checkpoint and Close are called from one goroutine at a time, and no append runs
// beside Seal and Checkpoint; the rest is safe for concurrent use, but for the
// appends of one lane.
type Output struct {
	id   string
	opts Options
	sink sinks.Sink
	log  seam.Log
	eng  *committer.Committer

	valid   sinks.Validator // nil if the sink is none
	opening chan struct{}   // holds one token, for who opens a lane

	mu       sync.Mutex // guards what follows; never held during a call of sink or log
	lanes    map[string]*Lane
	closed   bool
	position []byte    // where the source resumes
	barriers []Barrier // checkpoints still to be repeated
	last     uint64    // highest checkpoint id seen anywhere
	sealed   []Barrier // sealed, neither completed nor aborted
	refused  error     // why a checkpoint could not be repeated, or is sealed by half; nothing is sealed after it
}

// A Lane is one ordered stream of records of an Output. Append and Seal are
// called from one goroutine at a time.
type Lane struct {
	out    *Output
	name   string
	log    seam.Lane
	replay *committer.Replay // not nil while the store has it already
	// partial is the checkpoint of a batch of which a part is in, and which the source
	// sends again: it ends there, whatever other lanes have sealed before.
	partial uint64
	last    uint64 // checkpoint of the lane's last batch

	again   uint64        // records given to replay since the last seal
	skipped atomic.Uint64 // records given to replay and sealed
}

// Append adds a copy of rec, which is in the sink's wire form, to the open batch
// of the default lane. See [Lane.Append].
func (o *Output) Append(ctx context.Context, rec []byte) error {
	l, err := o.Lane(ctx, DefaultLane)
	if err != nil {
		return err
	}
	return l.Append(ctx, rec)
}

// Append adds a copy of rec to the lane's open batch; the caller may reuse rec at
// once. The record is in memory only: it is durable when its checkpoint is. It
// blocks while the log is at its byte budget, and can wait for ever if the lane
// that is to make room has stopped: see [Output.Failed]. Errors are those of
// [wal.Lane] and of a sink that is a [sinks.Validator]; after one the record is not in
// the batch, which is as it was.
func (l *Lane) Append(ctx context.Context, rec []byte) error {
	if v := l.out.valid; v != nil {
		if err := v.Validate(rec); err != nil {
			return fmt.Errorf("append lane %s/%s: %w", l.out.id, l.name, err)
		}
	}
	if l.replay != nil {
		l.again++
		return l.replay.Append(rec)
	}
	err := l.log.Append(ctx, rec)
	if f := l.out.opts.Observer.Appended; f != nil && err == nil {
		f(ctx, l.name)
	}
	return err
}

// Lane returns the lane of that name. A new lane gets its ledger entry here, and
// waits for the store until ctx ends; others are not held up by it.
func (o *Output) Lane(ctx context.Context, name string) (*Lane, error) {
	if l, err := o.lookUp(name); l != nil || err != nil {
		return l, err
	}
	select {
	case o.opening <- struct{}{}:
		defer func() { <-o.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l, err := o.lookUp(name); l != nil || err != nil {
		return l, err
	}
	names := []string{name}
	_, err := o.eng.OpenAll(ctx, names, func(found []committer.Opening, ledger []sinks.LaneMark) error {
		if found[0].Outcome == committer.Resume {
			return fmt.Errorf("%w: %s/%s; stop the process that wrote them and open the output again, or, if there is none, name the lane in Options.Lanes",
				ErrUnknownLane, o.id, name)
		}
		return o.alone(names, ledger)
	})
	if err != nil {
		return nil, err
	}
	return o.addLane(name)
}

// Held returns nil if at one moment during the call no other process had taken a lane of
// the output over. [Open] and Lane see to that for the output by itself; it is for those
// who keep several outputs that belong together, once all of their lanes are open and
// before anything is completed. A sink that cannot list its lanes is not asked.
func (o *Output) Held(ctx context.Context) error { return o.eng.Held(ctx) }

// lookUp returns the lane if it is open, nil if it is not.
func (o *Output) lookUp(name string) (*Lane, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, ErrClosed
	}
	return o.lanes[name], nil
}

func (o *Output) addLane(name string) (*Lane, error) {
	key := sinks.LaneID{Sink: o.id, Lane: name}.String()
	w, err := o.log.Lane(key)
	if err != nil {
		return nil, err
	}
	head, _, _ := o.log.Head(key)
	l := &Lane{out: o, name: name, log: w, last: head.Checkpoint}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lanes[name] = l
	return l, nil
}

// Checkpoint seals the open batch of every lane, completes the checkpoint and
// returns its id. On return the records are durable on this machine, and pos is
// where the source resumes after a crash: the source may be told. With
// AckAfterFlush they are in the store as well. While [Output.Barriers] is not
// empty, pos must be the first one's, else the error is ErrBarrier.
func (o *Output) Checkpoint(ctx context.Context, pos []byte) (uint64, error) {
	n := o.Last() + 1
	if b := o.Barriers(); len(b) > 0 {
		n = b[0].Checkpoint
	}
	if err := o.Cut(ctx, n, pos); err != nil {
		return 0, err
	}
	if err := o.complete(n, o.log.Checkpoint); err != nil {
		return 0, err
	}
	if o.opts.AckAfterFlush {
		if err := o.eng.Drain(ctx); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Seal is Cut and Sync: the open batch of every lane ends under checkpoint n,
// durably, with one fsync. The records become visible when n or a later checkpoint
// completes.
func (o *Output) Seal(ctx context.Context, n uint64, pos []byte) error {
	if err := o.Cut(ctx, n, pos); err != nil {
		return err
	}
	return o.Sync()
}

// Cut ends the open batch of every lane under checkpoint n, which must be above the
// one before; pos is where the source resumes after it. No lane is appended to
// meanwhile. It does not wait for the disk: call Sync before Complete. If ctx has
// ended nothing is done. A cut that has begun waits for room on a full disk; if ctx
// ends first, nothing is sealed any more until the output is opened again.
func (o *Output) Cut(ctx context.Context, n uint64, pos []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	repeated, err := o.admit(n, pos)
	if err != nil {
		return err
	}
	begun, err := o.cut(ctx, n, pos, !repeated)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		if repeated || begun {
			o.refused = err
		}
		return err
	}
	o.sealed = append(o.sealed, Barrier{Checkpoint: n, Position: bytes.Clone(pos)})
	return nil
}

// cut seals what the lanes have and, if carry is set, carries forward the marks of
// those that have had nothing for long. While checkpoints are repeated it is not: a
// batch of which a part is in has to follow what it followed before. If it fails, begun
// says that some lanes have a batch that ends here and others, with records, have none.
func (o *Output) cut(ctx context.Context, n uint64, pos []byte, carry bool) (begun bool, err error) {
	lanes := o.laneList()
	idle := lanes[:0:0]
	for _, l := range lanes {
		ok, err := l.seal(n, pos, false)
		for begun && errors.Is(err, wal.ErrNoSpace) && !errors.Is(err, wal.ErrFailed) && pause(ctx) {
			ok, err = l.seal(n, pos, false)
		}
		if err != nil {
			return begun, err
		}
		if ok {
			begun = true
		} else if carry && l.replay == nil && n-min(n, l.last) >= o.opts.CarryEvery {
			idle = append(idle, l)
		}
	}
	if !begun {
		return false, nil
	}
	for _, l := range idle {
		if _, err := l.seal(n, pos, true); err != nil {
			return false, err
		}
	}
	return false, nil
}

// pause waits for room on the disk, of which nobody tells. It is false if ctx ends.
func pause(ctx context.Context) bool {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Sync makes durable what was cut before the call. It may run beside appending.
// After an error nothing is acknowledged any more.
func (o *Output) Sync() error {
	o.mu.Lock()
	closed := o.closed
	var last uint64
	if n := len(o.sealed); n > 0 {
		last = o.sealed[n-1].Checkpoint
	}
	o.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case last == 0:
		return nil
	}
	return o.log.SealDone(last)
}

// admit checks the id and position of a checkpoint about to be sealed, and uses
// the id up. It reports whether it is the next of Barriers.
func (o *Output) admit(n uint64, pos []byte) (repeated bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return false, ErrClosed
	case o.refused != nil:
		return false, o.refused
	case len(pos) > record.MaxPosition:
		return false, fmt.Errorf("%w: position of %d bytes, the limit is %d", record.ErrTooLarge, len(pos), record.MaxPosition)
	case len(o.barriers) > 0:
		next := o.barriers[0]
		if n != next.Checkpoint || !bytes.Equal(pos, next.Position) {
			return false, fmt.Errorf("%w: checkpoint %d at position %q, got %d at %q", ErrBarrier, next.Checkpoint, next.Position, n, pos)
		}
		o.barriers = o.barriers[1:]
		repeated = true
	case n <= o.last:
		return false, fmt.Errorf("%w: %d after %d", ErrCheckpoint, n, o.last)
	}
	o.last = max(o.last, n)
	return repeated, nil
}

func (o *Output) laneList() []*Lane {
	o.mu.Lock()
	defer o.mu.Unlock()
	lanes := make([]*Lane, 0, len(o.lanes))
	for _, l := range o.lanes {
		lanes = append(lanes, l)
	}
	slices.SortFunc(lanes, byName)
	return lanes
}

// seal ends the lane's open batch and reports whether there was one.
func (l *Lane) seal(n uint64, pos []byte, force bool) (bool, error) {
	if l.replay != nil {
		if err := l.replay.Seal(n, pos); err != nil {
			return false, err
		}
		l.skipped.Add(l.again)
		l.last, l.again = n, 0
		if l.replay.Done() {
			l.replay = nil
		}
		return false, nil
	}
	if n < l.partial {
		return false, nil
	}
	b, ok, err := l.log.Seal(n, pos, l.out.sink.Info().Format, force)
	if ok {
		l.last = n
		if f := l.out.opts.Observer.Sealed; f != nil {
			f(l.name, b)
		}
	}
	return ok, err
}

// Complete says that checkpoint n is durable everywhere: all batches sealed under
// it or an earlier one may become visible. It is recorded durably, and does not
// wait for the store. A repeated or late call changes nothing.
func (o *Output) Complete(_ context.Context, n uint64) error { return o.complete(n, o.log.Complete) }

func (o *Output) complete(n uint64, write func(n uint64, pos []byte) error) error {
	upTo, closed := o.sealedUpTo(n)
	if closed {
		return ErrClosed
	}
	if len(upTo) == 0 {
		return nil
	}
	if err := write(n, upTo[len(upTo)-1].Position); err != nil {
		return err
	}
	o.mu.Lock()
	o.sealed = slices.DeleteFunc(o.sealed, func(b Barrier) bool { return b.Checkpoint <= n })
	o.mu.Unlock()
	o.eng.Notify()
	return nil
}

// sealedUpTo returns the sealed checkpoints up to n, ascending.
func (o *Output) sealedUpTo(n uint64) (upTo []Barrier, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.sealed {
		if b.Checkpoint <= n {
			upTo = append(upTo, b)
		}
	}
	return upTo, o.closed
}

// Abort says that checkpoint n will not complete. Nothing is discarded: what was
// sealed under it becomes visible with the next checkpoint that completes.
func (o *Output) Abort(_ context.Context, n uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealed = slices.DeleteFunc(o.sealed, func(b Barrier) bool { return b.Checkpoint == n })
	return nil
}

// Position is where the source resumes: the end of the last completed checkpoint
// when the output was opened, as this log or, without it, the store knows. Nil
// means from the start.
func (o *Output) Position() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.position)
}

// Barriers are the checkpoints of an earlier run that the caller repeats before it
// takes any of its own, each with its id when the source is exactly at its
// position. There are some only after a loss of local state.
func (o *Output) Barriers() []Barrier {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.barriers)
}

// Last is the highest checkpoint id that was sealed, or that log and store know.
func (o *Output) Last() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// Drain flushes everything complete without waiting to put batches together. On
// nil it is in the store; an error says what is not, and why.
func (o *Output) Drain(ctx context.Context) error { return o.eng.Drain(ctx) }

// Failed is closed when a lane has stopped for good, also because the log failed
// under it; Err says why. A log that fails while no lane has anything to flush is
// known from the next Append or Seal.
func (o *Output) Failed() <-chan struct{} { return o.eng.Failed() }

// Err is why Failed was closed, or nil.
func (o *Output) Err() error { return o.eng.Err() }

// A Status is a snapshot of an Output.
type Status struct {
	ID        string                 `json:"id"`
	Sink      string                 `json:"sink"`
	Target    string                 `json:"target"`
	Guarantee string                 `json:"guarantee"`
	Completed uint64                 `json:"completed"`
	Lanes     []committer.LaneStatus `json:"lanes"`
	Log       wal.Stat               `json:"log"`
	At        time.Time              `json:"at"`
}

// Status describes lanes and log as they are now. It does no I/O.
func (o *Output) Status() Status {
	info := o.sink.Info()
	n, _ := o.log.Completed()
	lanes := o.eng.Status()
	for i := range lanes {
		if l, err := o.lookUp(lanes[i].Lane); l != nil && err == nil {
			lanes[i].Skipped += l.skipped.Load()
		}
	}
	return Status{
		ID: o.id, Sink: info.Name, Target: info.Target, Guarantee: info.Guarantee.String(),
		Completed: n, Lanes: lanes, Log: o.log.Stat(), At: time.Now(),
	}
}

// Close stops the flush workers, closes the log and the sink. Records after the
// last seal are dropped, for the source to send again; what is complete and not
// flushed stays in the log for the next Open.
func (o *Output) Close() error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	o.mu.Unlock()
	return o.release()
}

// A Typed joins an encoder of T to a lane. Like the lane, it is used by one
// goroutine at a time.
type Typed[T any] struct {
	lane   *Lane
	encode func(dst []byte, v T) ([]byte, error)
	buf    []byte
}

// NewTyped returns a Typed that appends to lane what encode appends to dst.
func NewTyped[T any](lane *Lane, encode func(dst []byte, v T) ([]byte, error)) *Typed[T] {
	return &Typed[T]{lane: lane, encode: encode}
}

// Append encodes v and appends it to the lane. An error of the encoder comes
// through as it is, and leaves the lane as it was.
func (t *Typed[T]) Append(ctx context.Context, v T) error {
	buf, err := t.encode(t.buf[:0], v)
	if err != nil {
		return err
	}
	t.buf = buf
	return t.lane.Append(ctx, buf)
}
