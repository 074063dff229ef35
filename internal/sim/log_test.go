package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/internal/seam"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/wal"
)

// A log is the simulated write-ahead log of one life of a process: what is
// promised by package wal, over a journal that can lose its end.
type log struct {
	proc *proc
	dir  string
	disk *journal

	mu     sync.Mutex
	view   view
	lanes  map[string]*lane
	dead   bool
	failed error
	late   int // entries that a planted bug has not synced
}

// An entry changes a view. It is not changed itself.
type entry func(v *view)

// A view is what a log knows, as the entries make it.
type view struct {
	lanes    map[string]*laneView
	done     uint64 // completed checkpoint
	position []byte
	first    uint64 // first and last that were sealed
	sealed   uint64
}

type laneView struct {
	known     bool
	restarted bool
	head      record.Head
	committed uint64
	batches   []*batch
}

type batch struct {
	record.Batch
	blocks [][]byte
	note   []byte
	entry  int // its number in the journal
}

// open begins the life of a log.
func (d *disk) openLog(p *proc, dir string) *log {
	j := d.logs[dir]
	if j == nil {
		j = &journal{}
		d.logs[dir] = j
	}
	l := &log{proc: p, dir: dir, disk: j, view: view{lanes: map[string]*laneView{}}, lanes: map[string]*lane{}}
	for _, e := range j.entries {
		e(&l.view)
	}
	d.open = append(d.open, l)
	return l
}

func (v *view) lane(name string) *laneView {
	if v.lanes[name] == nil {
		v.lanes[name] = &laneView{}
	}
	return v.lanes[name]
}

// failure is why nothing is taken any more. The caller holds mu.
func (l *log) failure() error {
	if l.dead {
		return errDead
	}
	return l.failed
}

// write adds an entry to the journal, and to the view if now is set.
func (l *log) write(e entry, now bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failure(); err != nil {
		return err
	}
	l.disk.entries = append(l.disk.entries, e)
	if now {
		e(&l.view)
	}
	return nil
}

// sync makes durable what was written before.
func (l *log) sync(actor string) error {
	l.mu.Lock()
	n := len(l.disk.entries)
	l.mu.Unlock()
	if plant.Active(plant.SyncOff) {
		return nil
	}
	if plant.Active(plant.AckBeforeSync) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.disk.synced, l.late = max(l.disk.synced, min(l.late, n)), n
		return l.failure()
	}
	v, err := l.proc.wait(context.Background(), "sync", l.dir+" "+actor)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failure(); err != nil {
		return err
	}
	if v.fault != "" {
		l.failed = fmt.Errorf("%w: %w", wal.ErrFailed, errInjected)
		return l.failed
	}
	l.disk.synced = max(l.disk.synced, n)
	l.forget()
	return nil
}

// forget drops batches beyond what is retained. The caller holds mu and has just
// synced.
func (l *log) forget() {
	keep := l.proc.w.cfg.retain
	if keep < 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.view.lanes)) {
		lv := l.view.lanes[name]
		limit := lv.committed
		if plant.Active(plant.DropBeforeCommit) {
			limit = lv.head.Seq
		}
		if n := len(lv.batches); n == 0 || lv.batches[0].Seq+uint64(keep) > limit {
			continue
		}
		upTo := limit - uint64(keep)
		e := func(v *view) {
			b := &v.lane(name).batches
			*b = slices.DeleteFunc(slices.Clone(*b), func(b *batch) bool { return b.Seq <= upTo })
		}
		l.disk.entries = append(l.disk.entries, e)
		e(&l.view)
	}
}

func (l *log) Lanes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.view.lanes))
}

func (l *log) Head(name string) (record.Head, uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lv := l.view.lanes[name]
	if lv == nil || !lv.known {
		return record.Head{}, 0, false
	}
	return lv.head, lv.committed, true
}

func (l *log) Batches(name string) (held []record.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lv := l.view.lanes[name]
	if lv == nil {
		return nil
	}
	for _, b := range lv.batches {
		if b.Checkpoint <= l.view.done {
			held = append(held, b.Batch)
		}
	}
	return held
}

// find returns a batch of a completed checkpoint. The caller holds mu.
func (l *log) find(name string, seq uint64) *batch {
	if lv := l.view.lanes[name]; lv != nil {
		for _, b := range lv.batches {
			if b.Seq == seq && b.Checkpoint <= l.view.done {
				return b
			}
		}
	}
	return nil
}

var errNoBatch = errors.New("the log does not hold the batch")

func (l *log) Blocks(name string, seq uint64) iter.Seq2[record.Block, error] {
	return func(yield func(record.Block, error) bool) {
		l.mu.Lock()
		b := l.find(name, seq)
		l.mu.Unlock()
		if b == nil {
			yield(record.Block{}, errNoBatch)
			return
		}
		var block record.Block
		var buf []byte
		for _, data := range b.blocks {
			buf = append(buf[:0], data...) // over the one before, which is not valid any more
			var err error
			if block, err = record.Decode(buf, block); !yield(block, err) || err != nil {
				return
			}
		}
	}
}

func (l *log) Note(name string, seq uint64) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.find(name, seq); b != nil {
		return b.note, l.failure()
	}
	return nil, errNoBatch
}

func (l *log) PutNote(name string, seq uint64, note []byte) error {
	note = slices.Clone(note)
	err := l.write(func(v *view) {
		for _, b := range v.lane(name).batches {
			if b.Seq == seq {
				b.note = note
			}
		}
	}, true)
	if err != nil {
		return err
	}
	return l.sync("note " + name)
}

func (l *log) Commit(name string, seq uint64) error {
	l.mu.Lock()
	lv := l.view.lane(name)
	none := seq > lv.head.Seq
	l.mu.Unlock()
	if none {
		return fmt.Errorf("commit lane %s batch %d: no such batch", name, seq)
	}
	return l.write(func(v *view) {
		lv := v.lane(name)
		switch {
		case seq > lv.committed:
			lv.committed = seq
		case len(lv.batches) > 0:
			lv.committed = min(lv.committed, max(seq, lv.batches[0].Seq-1))
		}
	}, true)
}

func (l *log) Reset(name string, head record.Head) error {
	head.Position = slices.Clone(head.Position)
	err := l.write(func(v *view) {
		fresh := !v.lane(name).known && head.Seq == 0
		v.lanes[name] = &laneView{known: true, head: head, committed: head.Seq, restarted: !fresh}
	}, true)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if ln := l.lanes[name]; ln != nil {
		ln.recs = nil
	}
	l.mu.Unlock()
	return l.sync("reset " + name)
}

func (l *log) Completed() (uint64, []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view.done, l.view.position
}

func (l *log) Complete(n uint64, position []byte) error {
	if done, _ := l.Completed(); n <= done {
		return nil
	}
	if !l.proc.w.cfg.stateful {
		l.proc.disk.complete = max(l.proc.disk.complete, n)
	}
	position = slices.Clone(position)
	e := func(v *view) {
		if n <= v.done {
			return
		}
		v.done, v.position = n, position
		for _, lv := range v.lanes {
			for _, b := range lv.batches {
				if b.Seq > lv.head.Seq && b.Checkpoint <= n {
					lv.head, lv.known = b.Head(), true
				}
			}
		}
	}
	if err := l.write(e, false); err != nil {
		return err
	}
	if err := l.sync("complete"); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e(&l.view)
	return nil
}

func (l *log) SealDone(n uint64) error {
	if err := l.writeSealDone(n); err != nil {
		return err
	}
	return l.sync("seal")
}

func (l *log) writeSealDone(n uint64) error {
	return l.write(func(v *view) {
		if v.sealed == 0 {
			v.first = n
		}
		v.sealed = max(v.sealed, n)
	}, true)
}

// Checkpoint syncs once: what a crash leaves is a beginning of the journal.
func (l *log) Checkpoint(n uint64, position []byte) error {
	if err := l.writeSealDone(n); err != nil {
		return err
	}
	return l.Complete(n, position)
}

func (l *log) Sealed() (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view.first, l.view.sealed
}

func (l *log) SealedEnd(n uint64) (position []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := l.view.done
	for _, lv := range l.view.lanes {
		for _, b := range lv.batches {
			if b.Checkpoint <= n && b.Checkpoint > newest {
				newest, position, ok = b.Checkpoint, b.Position, true
			}
		}
	}
	return position, ok
}

func (l *log) Truncate() error {
	l.mu.Lock()
	for _, ln := range l.lanes {
		ln.recs = nil
	}
	l.mu.Unlock()
	err := l.write(func(v *view) {
		if v.sealed > v.done {
			v.first, v.sealed = 0, 0
		}
		for _, lv := range v.lanes {
			lv.batches = slices.DeleteFunc(slices.Clone(lv.batches), func(b *batch) bool { return b.Checkpoint > v.done })
		}
	}, true)
	if err != nil {
		return err
	}
	return l.sync("truncate")
}

func (l *log) Restarted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lv := range l.view.lanes {
		if lv.restarted {
			return true
		}
	}
	return false
}

func (l *log) Rewind(n uint64, position []byte) error {
	position = slices.Clone(position)
	if err := l.write(func(v *view) { v.done, v.position, v.first, v.sealed = n, position, 0, 0 }, true); err != nil {
		return err
	}
	if err := l.sync("rewind"); err != nil {
		return err
	}
	err := l.write(func(v *view) {
		for _, lv := range v.lanes {
			lv.batches, lv.committed, lv.restarted, lv.known = nil, lv.head.Seq, false, true
		}
	}, true)
	if err != nil {
		return err
	}
	return l.sync("rewind")
}

func (l *log) Stat() (s wal.Stat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Completed, s.Failed = l.view.done, l.failed
	return s
}

// Close syncs, unless a sync has failed: then some of the rest is lost.
func (l *log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead:
		return nil
	case l.failed != nil:
		l.disk.cut(len(l.disk.entries[l.disk.synced:]) / 2)
	case !plant.Active(plant.SyncOff):
		l.disk.synced = len(l.disk.entries)
	}
	l.dead = true
	d := l.proc.disk
	d.open = slices.DeleteFunc(d.open, func(o *log) bool { return o == l })
	return nil
}

// A lane is one of the log's lanes.
type lane struct {
	log  *log
	name string
	recs [][]byte
}

func (l *log) Lane(name string) (seam.Lane, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lanes[name]
	if ln == nil {
		ln = &lane{log: l, name: name}
		l.lanes[name] = ln
	}
	return ln, nil
}

func (ln *lane) Append(_ context.Context, rec []byte) error {
	ln.log.mu.Lock()
	defer ln.log.mu.Unlock()
	if err := ln.log.failure(); err != nil {
		return err
	}
	ln.recs = append(ln.recs, slices.Clone(rec))
	return nil
}

func (ln *lane) Seal(n uint64, position []byte, format string, force bool) (b record.Batch, ok bool, err error) {
	l := ln.log
	if len(ln.recs) == 0 && !force {
		return b, false, nil
	}
	v, err := l.proc.wait(context.Background(), "seal", ln.log.dir+" "+ln.name)
	if err != nil {
		return b, false, err
	}
	if v.fault != "" {
		return b, false, fmt.Errorf("seal lane %s: %w: %w", ln.name, wal.ErrNoSpace, errInjected)
	}
	l.mu.Lock()
	tip, done := l.tip(ln.name), l.view.done
	at := len(l.disk.entries)
	l.mu.Unlock()
	if low := max(tip.Checkpoint, done); n <= low {
		return b, false, fmt.Errorf("checkpoints must rise, and %d was there before %d", low, n)
	}
	h := record.NewHasher()
	blocks, err := build(ln.recs, l.proc.w.cfg.blockRecords, h)
	if err != nil {
		return b, false, err
	}
	b = record.Batch{
		Seq: tip.Seq + 1, Checkpoint: n, Prev: tip.Chain, Records: h.Records(), Bytes: h.Bytes(), Digest: h.Sum(),
		Position: slices.Clone(position), Format: format, SealedAt: time.Now().UnixMilli(),
	}
	err = l.write(func(v *view) {
		lv := v.lane(ln.name)
		lv.batches = append(lv.batches, &batch{Batch: b, blocks: blocks, entry: at})
	}, true)
	ln.recs = nil
	return b, err == nil, err
}

// tip is the end of the lane's last sealed batch. The caller holds mu.
func (l *log) tip(name string) record.Head {
	lv := l.view.lane(name)
	if n := len(lv.batches); n > 0 && lv.batches[n-1].Seq > lv.head.Seq {
		return lv.batches[n-1].Head()
	}
	return lv.head
}

// durable reports whether a batch would be there after a power cut.
func (l *log) durable(name string, seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.find(name, seq)
	return b != nil && b.entry < l.disk.synced
}

func build(recs [][]byte, perBlock int, h *record.Hasher) (blocks [][]byte, err error) {
	for part := range slices.Chunk(recs, perBlock) {
		var b record.Builder
		for _, rec := range part {
			if err := b.Append(rec); err != nil {
				return nil, err
			}
		}
		blocks = append(blocks, slices.Clone(b.Finish(h)))
	}
	return blocks, nil
}
