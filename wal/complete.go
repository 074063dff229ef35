package wal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/record"
)

// Complete says that a checkpoint is durable everywhere: all sealed batches up to
// it may be flushed. It is durable on return, and so is everything sealed before.
// It is idempotent; a checkpoint not above the highest one changes nothing. Complete
// keeps no part of position, which Completed returns.
func (l *Log) Complete(checkpoint uint64, position []byte) error {
	c, err := newComplete(checkpoint, position)
	if err != nil {
		return err
	}
	done, err := l.writeComplete(&c, nil)
	if done || err != nil {
		return err
	}
	return l.completed(c)
}

// Checkpoint is SealDone and Complete in one, for who decides alone that a checkpoint
// is complete, and saves an fsync: before the completion is written, only the blocks
// of what was sealed have to be on the disk. The footers are in front of the completion
// in one log of Badger, which a power cut can only shorten.
func (l *Log) Checkpoint(checkpoint uint64, position []byte) error {
	c, err := newComplete(checkpoint, position)
	if err != nil {
		return err
	}
	if err := l.writeSealDone(checkpoint); err != nil {
		return err
	}
	in, err := l.syncBlocks()
	if err != nil {
		return err
	}
	done, err := l.writeComplete(&c, in)
	if errors.Is(err, errRetired) {
		if err = l.Sync(); err == nil {
			done, err = l.writeComplete(&c, nil)
		}
	}
	if done || err != nil {
		return err
	}
	return l.completed(c)
}

func newComplete(checkpoint uint64, position []byte) (c completeState, err error) {
	if len(position) > record.MaxPosition {
		err = fmt.Errorf("complete checkpoint %d: %w: position of %d bytes, the limit is %d",
			checkpoint, record.ErrTooLarge, len(position), record.MaxPosition)
	}
	return completeState{checkpoint: checkpoint, position: slices.Clone(position)}, err
}

// syncBlocks makes durable what must be on the disk before a completion is written to
// the generation that it returns: the blocks there. If more is written to than that one,
// it makes all durable that was written before and returns nil.
func (l *Log) syncBlocks() (*generation, error) {
	l.mu.Lock()
	g := l.active
	if len(l.retiring) > 0 {
		g = nil
	}
	for _, old := range l.gens {
		if old.foreign {
			g = nil
		}
	}
	l.mu.Unlock()
	if g == nil {
		return nil, l.Sync()
	}
	if plant.Active(plant.SyncOff) {
		return g, nil
	}
	if err := g.syncBlocks(); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return nil, l.failLocked(err)
	}
	return g, nil
}

// completed makes a completion durable that was written, and then lets it count.
func (l *Log) completed(c completeState) error {
	if err := l.Sync(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.above(&l.complete) {
		l.complete = c
		for _, ln := range l.lanes {
			ln.completeUpTo(c.checkpoint)
		}
		l.broadcast()
	}
	return nil
}

// writeComplete writes a completion, or does nothing if there was one as high. If in is
// not nil, that must be the generation that it goes to; else the error is errRetired.
func (l *Log) writeComplete(c *completeState, in *generation) (done bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failure(); err != nil {
		return false, err
	}
	if c.checkpoint <= l.complete.checkpoint {
		return true, nil
	}
	l.turnOver()
	if in != nil && l.active != in {
		return false, errRetired
	}
	c.era = l.complete.era
	if _, err := l.control(normal, entry{[]byte{kindComplete}, c.encode()}); err != nil {
		return false, fmt.Errorf("complete checkpoint %d: %w", c.checkpoint, err)
	}
	if c.above(&l.completing) {
		l.completing = *c
	}
	return false, nil
}

// SealDone says that every lane has sealed what it has for the checkpoint, and
// so has everything before it. It is durable on return, and so is everything
// sealed before. It is what tells a checkpoint without records from one that
// this log never saw.
func (l *Log) SealDone(checkpoint uint64) error {
	if err := l.writeSealDone(checkpoint); err != nil {
		return err
	}
	return l.Sync()
}

func (l *Log) writeSealDone(checkpoint uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failure(); err != nil {
		return err
	}
	sealed := sealedState{era: l.complete.era, first: checkpoint, last: checkpoint}
	if !sealed.above(&l.ended) {
		return nil
	}
	if l.ended.era == sealed.era && l.ended.last > 0 {
		sealed.first = l.ended.first
	}
	l.turnOver()
	if _, err := l.control(normal, entry{[]byte{kindSealed}, sealed.encode()}); err != nil {
		return fmt.Errorf("seal checkpoint %d: %w", checkpoint, err)
	}
	l.ended = sealed
	return nil
}

// Sealed returns the first and the last checkpoint that SealDone was told of since the
// log was made, or since the last Rewind, or since a Truncate that forgot any; zeros if
// there is none. A checkpoint before the first may have been sealed, and is forgotten.
func (l *Log) Sealed() (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended.era != l.complete.era {
		return 0, 0
	}
	return l.ended.first, l.ended.last
}

// SealedEnd returns the position of the newest batch that was sealed under a
// checkpoint up to the given one and is not completed; false if no lane has any.
func (l *Log) SealedEnd(checkpoint uint64) (position []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := uint64(0)
	for _, ln := range l.lanes {
		for _, b := range ln.after(ln.head.Seq) {
			if b.Checkpoint <= checkpoint && b.Checkpoint > newest {
				newest, position = b.Checkpoint, b.Position
			}
		}
	}
	return slices.Clone(position), newest > 0
}

// completeUpTo moves the lane's head. The caller holds Log.mu.
func (ln *Lane) completeUpTo(checkpoint uint64) {
	for _, b := range ln.after(ln.head.Seq) {
		if b.Checkpoint > checkpoint {
			break
		}
		ln.head = b.Head()
		ln.known = true
	}
}

// Completed returns the highest completed checkpoint and its position, which the
// caller must not change.
func (l *Log) Completed() (checkpoint uint64, position []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.complete.checkpoint, l.complete.position
}

// maxGroup is how many entries go into one append.
const maxGroup = 128

// Truncate forgets all open batches and all sealed ones above the completed
// checkpoint, as if they had never been; the source replays them. Durable on
// return. It must not run beside Append or Seal.
func (l *Log) Truncate() error {
	if err := l.truncate(); err != nil {
		return fmt.Errorf("truncate log: %w", err)
	}
	return l.Sync()
}

func (l *Log) truncate() error {
	lanes := l.settled()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.suspect != 0 {
		return &Damage{Generation: l.suspect, Block: -1, Err: errors.New("the completed checkpoint may be lost; " + wayOut)}
	}
	var entries []entry
	if l.ended.era == l.complete.era && l.ended.last > l.complete.checkpoint {
		// What was sealed under them is forgotten: a new era, before any batch.
		c := l.complete
		c.era++
		if _, err := l.control(normal, entry{[]byte{kindComplete}, c.encode()}); err != nil {
			return err
		}
		l.complete, l.completing = c, c
	}
	for _, ln := range lanes {
		l.discardOpen(ln)
		keep := len(ln.batches)
		for keep > 0 && ln.batches[keep-1].Checkpoint > l.complete.checkpoint {
			keep--
			entries = append(entries, entry{idKey(kindVoid, ln.batches[keep].id), begin()})
		}
		if keep == len(ln.batches) {
			continue
		}
		for _, b := range ln.batches[keep:] {
			b.gone = true
			l.voids[b.id] = b.footer
			l.release(b)
		}
		ln.batches = ln.batches[:keep:keep]
		ln.durable = min(ln.durable, ln.tip().Seq)
		entries = append(entries, entry{laneKey(kindLane, ln.name), ln.encode()})
	}
	return l.controlAll(normal, entries)
}

// controlAll writes any number of entries, in groups.
func (l *Log) controlAll(t tier, entries []entry) error {
	for group := range slices.Chunk(entries, maxGroup) {
		if _, err := l.control(t, group...); err != nil {
			return err
		}
		crash.Point(crash.AbortHalf)
	}
	return nil
}

// settled returns all lanes when nothing of them is on its way any more.
func (l *Log) settled() []*Lane {
	l.mu.Lock()
	lanes := make([]*Lane, 0, len(l.lanes))
	for _, ln := range l.lanes {
		lanes = append(lanes, ln)
	}
	l.mu.Unlock()
	for _, ln := range lanes {
		ln.settle()
	}
	return lanes
}

// discardOpen forgets the open batch of a settled lane. The caller holds mu.
func (l *Log) discardOpen(ln *Lane) {
	if ln.allowed > 0 {
		l.promised -= ln.allowed
		l.open--
		ln.cur.Reset()
	}
	ln.allowed, ln.used, ln.records, ln.bytes = 0, 0, 0, 0
	ln.hasher.Reset()
	if ln.batch != nil {
		l.release(ln.batch)
		ln.batch = nil
	}
	l.broadcast()
}

// release ends a batch's need of its generations. The caller holds mu.
func (l *Log) release(b *batch) {
	for _, n := range b.generations() {
		if g := l.gens[n]; g != nil {
			g.live--
		}
	}
	l.kick()
}

// Head returns the end of the lane's last batch of a completed checkpoint, held
// or dropped long ago, and the highest Seq that Commit was told of. It is false
// for a lane the log does not know.
func (l *Log) Head(lane string) (head record.Head, committed uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lanes[lane]
	if ln == nil || !ln.known {
		return record.Head{}, 0, false
	}
	return ln.head, ln.committed, true
}

// Batches returns the lane's batches of completed checkpoints that the log still
// holds, committed ones within the retention window included, in order of Seq
// without gaps.
func (l *Log) Batches(lane string) []record.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lanes[lane]
	if ln == nil {
		return nil
	}
	n := len(ln.batches)
	for n > 0 && ln.batches[n-1].Checkpoint > l.complete.checkpoint {
		n--
	}
	held := make([]record.Batch, n)
	for i, b := range ln.batches[:n] {
		held[i] = b.Batch
	}
	return held
}

// Commit says that the store holds the lane's batches up to seq. The log may
// forget it at a crash, and drops the batches after the retention window. If seq is
// lower than before, the store was rolled back: the batches above it that are still
// held are kept until they are committed again. A crash forgets that.
func (l *Log) Commit(lane string, seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lanes[lane]
	if ln == nil || seq > ln.head.Seq {
		return fmt.Errorf("commit lane %s batch %d: no such completed batch", lane, seq)
	}
	if err := l.failure(); err != nil {
		return err
	}
	if seq <= ln.committed {
		if len(ln.batches) > 0 {
			ln.committed = min(ln.committed, max(seq, ln.batches[0].Seq-1))
		}
		return nil
	}
	now := l.opts.now()
	for _, b := range ln.after(ln.committed) {
		if b.Seq > seq {
			break
		}
		b.since = now
	}
	ln.committed = seq
	l.uncertain = true
	l.turnOver()
	c := committedState{floor: ln.floor, seq: seq}
	_, err := l.control(normal, entry{laneKey(kindCommitted, lane), c.encode()})
	l.kick()
	return ignoreNoSpace(err) // it is written again before anything is dropped
}

// Reset sets all batches of the lane aside, so that they are never flushed, and
// makes the next batch continue head, with committed = head.Seq. It is also how
// a lane begins, and how a damaged lane takes records again. Durable on return. It
// must not run beside Append or Seal of the lane.
func (l *Log) Reset(lane string, head record.Head) error {
	ln, err := l.Lane(lane)
	if err != nil {
		return err
	}
	ln.settle()
	if err := l.reset(ln, head); err != nil {
		return fmt.Errorf("reset lane %s: %w", lane, err)
	}
	return l.Sync()
}

func (l *Log) reset(ln *Lane, head record.Head) error {
	if len(head.Position) > record.MaxPosition {
		return fmt.Errorf("%w: position of %d bytes, the limit is %d", record.ErrTooLarge, len(head.Position), record.MaxPosition)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	head.Position = slices.Clone(head.Position)
	fresh := !ln.known && head.Seq == 0
	state := laneState{floor: l.newID(), head: head, committed: head.Seq, durable: head.Seq, restarted: !fresh}
	if _, err := l.control(normal, entry{laneKey(kindLane, ln.name), state.encode()}); err != nil {
		return err
	}
	l.restart(ln, state)
	return nil
}

// restart sets all batches of a settled lane aside. The caller holds mu and has
// written the state.
func (l *Log) restart(ln *Lane, state laneState) {
	l.discardOpen(ln)
	now := l.opts.now()
	for _, b := range slices.Concat(ln.batches, ln.cut) {
		b.since, b.gone = now, true
		ln.aside = append(ln.aside, b)
	}
	ln.batches, ln.cut = nil, nil
	ln.laneState, ln.known, ln.stored, ln.written, ln.broken = state, true, true, state.head.Seq, nil
	l.kick()
}
