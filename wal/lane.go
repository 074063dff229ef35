package wal

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/record"
)

// A Lane is one ordered stream of records. Append, Seal and Pending are called
// from one goroutine at a time; those of different lanes concurrently.
type Lane struct {
	log  *Log
	name string

	// Of the goroutine that appends.
	cur     *record.Builder
	used    int64 // bytes that the open block takes, at most
	allowed int64 // bytes promised to the open block
	usual   int64 // bytes to ask for at once: about those of the last block, if it was full
	records uint64
	bytes   uint64

	// The other builders are at home in spare, or on their way: one can be finished
	// while one is written.
	spare    chan *record.Builder
	settling sync.Mutex     // held by the one who takes all from spare
	hasher   *record.Hasher // of the finisher, and of Seal once all are home

	// Under Log.mu.
	laneState
	known   bool                            // Head answers
	stored  bool                            // a lane state was written
	written uint64                          // head.Seq in the last one that was written
	batches []*batch                        // held, in order of Seq: committed, completed, sealed
	aside   []*batch                        // set aside, until their time is over
	cut     []*batch                        // behind damage, until Reset sets them aside
	batch   *batch                          // the open one; nil before its first block
	taken   struct{ records, bytes uint64 } // sealed since Open
	broken  error                           // damage; no records are taken
}

// A batch is what the log knows about the records between two checkpoints.
type batch struct {
	record.Batch
	lane     *Lane
	id       uint64
	blocks   uint32
	segments []segment
	footer   uint64    // generation of the footer, 0 if there is none
	notes    []uint64  // generations of notes
	since    time.Time // when it was committed or set aside
	pins     int       // readers; not dropped meanwhile
	gone     bool      // void or set aside
}

// generations are those that the batch needs, each once.
func (b *batch) generations() []uint64 {
	need := make([]uint64, 0, len(b.segments)+1+len(b.notes))
	for _, s := range b.segments {
		need = append(need, s.generation)
	}
	if b.footer != 0 {
		need = append(need, b.footer)
	}
	need = append(need, b.notes...)
	slices.Sort(need)
	return slices.Compact(need)
}

// after returns the batches above seq. The caller holds Log.mu.
func (ln *Lane) after(seq uint64) []*batch {
	i, _ := slices.BinarySearchFunc(ln.batches, seq+1, func(b *batch, seq uint64) int { return cmp.Compare(b.Seq, seq) })
	return ln.batches[i:]
}

// needs reports whether the batch needs a generation.
func (b *batch) needs(n uint64) bool { return slices.Contains(b.generations(), n) }

func newLane(l *Log, name string) *Lane {
	ln := &Lane{log: l, name: name, spare: make(chan *record.Builder, spares), hasher: record.NewHasher()}
	sink, lane, _ := strings.Cut(name, "/")
	ln.head.Chain = record.Genesis(sink, lane)
	for range spares {
		ln.spare <- nil
	}
	return ln
}

// Name returns the lane's name.
func (ln *Lane) Name() string { return ln.name }

// lengthBytes is what a record takes in a block beyond its bytes, at most.
const lengthBytes = 4

// Append puts a record into the lane's open batch. It copies: the caller may
// reuse rec at once. On return the record is neither durable nor visible.
//
// It blocks while the byte budget or the disk is full and a flush or a drop can
// free something, until ctx ends. Errors leave the batch as it was: ErrFull,
// ErrNoSpace, ErrDamaged, ErrFailed, ErrClosed, record.ErrTooLarge, and the end of
// ctx.
func (ln *Lane) Append(ctx context.Context, rec []byte) error {
	crash.Point(crash.AppendBefore)
	if p := ln.log.failed.Load(); p != nil {
		return *p
	}
	need := int64(len(rec)) + lengthBytes
	if ln.used+need > ln.allowed {
		if err := ln.grow(ctx, need); err != nil {
			return fmt.Errorf("append lane %s: %w", ln.name, err)
		}
	}
	if err := ln.cur.Append(rec); err != nil {
		return fmt.Errorf("append lane %s: %w", ln.name, err)
	}
	ln.used += need
	ln.records++
	ln.bytes += uint64(len(rec))
	if ln.cur.Full() {
		ln.handOff()
	}
	crash.Point(crash.AppendAfter)
	return nil
}

const (
	firstPromise = 4 << 10
	// blockFrame is what an encoded block takes beyond records and lengths.
	blockFrame = entryCost + 64
)

// grow gets room for so many more bytes in the open block.
func (ln *Lane) grow(ctx context.Context, need int64) error {
	if need > record.MaxRecord+lengthBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", record.ErrTooLarge, need-lengthBytes, record.MaxRecord)
	}
	if ln.allowed == 0 {
		need = max(need+blockFrame, ln.usual, firstPromise)
		if err := ln.log.promise(ctx, ln, need, true); err != nil {
			return err
		}
		ln.allowed, ln.used = need, blockFrame
		if ln.cur == nil {
			ln.cur = new(record.Builder)
		}
		return nil
	}
	more := max(ln.used+need-ln.allowed, min(ln.allowed, record.BlockSize))
	if err := ln.log.promise(ctx, ln, more, false); err != nil {
		return err
	}
	ln.allowed += more
	return nil
}

// Pending returns the records and their bytes in the open batch.
func (ln *Lane) Pending() (records, bytes uint64) { return ln.records, ln.bytes }

// handOff gives the open block away and takes another builder, for which it
// waits. If the log fails or closes meanwhile, the records are lost, as they may
// be: nothing of the batch will be acknowledged.
func (ln *Lane) handOff() {
	ln.usual = 0
	if ln.cur.Full() {
		ln.usual = min(ln.used, 2*record.BlockSize)
	}
	j := job{lane: ln, block: ln.cur, promised: ln.allowed}
	ln.cur, ln.allowed, ln.used = <-ln.spare, 0, 0
	select {
	case ln.log.jobs <- j:
	case <-ln.log.quit:
		j.home()
	}
}

// spares is how many builders a lane has beside the open one.
const spares = 2

// settle waits until all blocks of the lane have been written.
func (ln *Lane) settle() {
	ln.settling.Lock()
	defer ln.settling.Unlock()
	var home [spares]*record.Builder
	for i := range home {
		home[i] = <-ln.spare
	}
	for _, b := range home {
		ln.spare <- b
	}
}

// tip is the end of the last sealed batch. The caller holds Log.mu.
func (ln *Lane) tip() record.Head {
	if n := len(ln.batches); n > 0 && ln.batches[n-1].Seq > ln.head.Seq {
		return ln.batches[n-1].Head()
	}
	return ln.head
}

// Seal ends the open batch with a footer; no record joins it later. The batch is
// durable once Log.Sync has returned. Checkpoints must rise. If the batch is
// empty, ok is false and nothing is written, unless force is set, which is how
// the mark of an idle lane is carried forward. Seal keeps no part of position.
func (ln *Lane) Seal(checkpoint uint64, position []byte, format string, force bool) (b record.Batch, ok bool, err error) {
	if err := ln.log.failure(); err != nil {
		return b, false, err
	}
	if ln.records == 0 && !force {
		return b, false, nil
	}
	if ln.allowed > 0 {
		ln.handOff()
	}
	ln.settle()
	crash.Point(crash.SealFooter)
	b, err = ln.log.seal(ln, checkpoint, position, format)
	if err != nil {
		return b, false, fmt.Errorf("seal lane %s checkpoint %d: %w", ln.name, checkpoint, err)
	}
	ln.records, ln.bytes = 0, 0
	return b, true, nil
}

func (l *Log) seal(ln *Lane, checkpoint uint64, position []byte, format string) (record.Batch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := firstErr(l.failure(), ln.broken); err != nil {
		return record.Batch{}, err
	}
	tip := ln.tip()
	if low := max(tip.Checkpoint, l.complete.checkpoint); checkpoint <= low {
		return record.Batch{}, fmt.Errorf("checkpoints must rise, and %d was there before", low)
	}
	sealed := record.Batch{
		Seq: tip.Seq + 1, Checkpoint: checkpoint, Prev: tip.Chain,
		Records: ln.hasher.Records(), Bytes: ln.hasher.Bytes(), Digest: ln.hasher.Sum(),
		Position: slices.Clone(position), Format: format, SealedAt: l.opts.now().UnixMilli(),
	}
	b := ln.batch
	if b == nil {
		b = &batch{lane: ln, id: l.newID()}
	}
	f := footer{lane: ln.name, blocks: b.blocks, segments: b.segments, batch: sealed}
	value, err := f.encode()
	if err != nil {
		return record.Batch{}, err
	}
	l.turnOver()
	entries := []entry{{idKey(kindFooter, b.id), value}}
	if !ln.stored {
		entries = append(entries, entry{laneKey(kindLane, ln.name), ln.encode()})
	}
	g, err := l.control(normal, entries...)
	if err != nil {
		return record.Batch{}, err
	}
	if !b.needs(g.number) {
		g.live++
	}
	b.Batch, b.footer = sealed, g.number
	ln.batches = append(ln.batches, b)
	ln.batch, ln.stored = nil, true
	ln.taken.records += sealed.Records
	ln.taken.bytes += sealed.Bytes
	ln.hasher.Reset()
	l.sealed = append(l.sealed, b)
	return sealed, nil
}

// firstErr returns the first error that is not nil.
func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
