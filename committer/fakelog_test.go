package committer_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/walsink/walsink/record"
)

// A fakeLog is a Log in memory: what the real one promises, in the fewest lines.
// Each operation can be made to fail.
type fakeLog struct {
	mu    sync.Mutex
	lanes map[string]*fakeLane
	// fail, if not nil, is asked before each operation.
	fail func(op string) error
	// blocks counts calls of Blocks, open those whose iteration has not ended.
	blocks, open int
	// blockRecords is how many records go into one block.
	blockRecords int
	commits      []uint64
}

type fakeLane struct {
	head      record.Head
	committed uint64
	sealed    []fakeBatch // all held ones, complete up to complete
	complete  int
	aside     int
}

type fakeBatch struct {
	record.Batch
	blocks [][]byte
	note   []byte
}

func newLog() *fakeLog { return &fakeLog{lanes: make(map[string]*fakeLane), blockRecords: 3} }

func (f *fakeLog) failing(op string) error {
	if f.fail == nil {
		return nil
	}
	return f.fail(op)
}

// lane returns a lane that Reset has begun.
func (f *fakeLog) lane(key string) *fakeLane {
	l := f.lanes[key]
	if l == nil {
		panic("no lane " + key)
	}
	return l
}

// add appends, seals and completes one batch.
func (f *fakeLog) add(key string, checkpoint uint64, recs ...string) {
	f.seal(key, checkpoint, recs...)
	f.finish(key, checkpoint)
}

// addAt is add with a position.
func (f *fakeLog) addAt(key string, checkpoint uint64, position string, recs ...string) {
	f.seal(key, checkpoint, recs...)
	f.mu.Lock()
	l := f.lane(key)
	l.sealed[len(l.sealed)-1].Position = []byte(position)
	f.mu.Unlock()
	f.finish(key, checkpoint)
}

// seal appends and seals a batch at position "p<checkpoint>".
func (f *fakeLog) seal(key string, checkpoint uint64, recs ...string) record.Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lane(key)
	prev := l.head
	if n := len(l.sealed); n > 0 {
		prev = l.sealed[n-1].Head()
	}
	b := build(prev, checkpoint, f.blockRecords, recs...)
	l.sealed = append(l.sealed, b)
	return b.Batch
}

func build(prev record.Head, checkpoint uint64, perBlock int, recs ...string) fakeBatch {
	h := record.NewHasher()
	b := fakeBatch{Batch: record.Batch{
		Seq: prev.Seq + 1, Checkpoint: checkpoint, Prev: prev.Chain, Format: "bytes",
		Position: fmt.Appendf(nil, "p%d", checkpoint), SealedAt: 1,
	}}
	for part := range slices.Chunk(recs, perBlock) {
		var builder record.Builder
		for _, r := range part {
			if err := builder.Append([]byte(r)); err != nil {
				panic(err)
			}
		}
		b.blocks = append(b.blocks, bytes.Clone(builder.Finish(h)))
	}
	b.Records, b.Bytes, b.Digest = h.Records(), h.Bytes(), h.Sum()
	return b
}

// finish completes all batches up to the checkpoint.
func (f *fakeLog) finish(key string, checkpoint uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lane(key)
	for l.complete < len(l.sealed) && l.sealed[l.complete].Checkpoint <= checkpoint {
		l.head = l.sealed[l.complete].Head()
		l.complete++
	}
}

// truncate discards what is not complete, as the root does at a start.
func (f *fakeLog) truncate() {
	for _, l := range f.lanes {
		l.sealed = l.sealed[:l.complete]
	}
}

// drop forgets all but the last keep committed batches.
func (f *fakeLog) drop(key string, keep int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lane(key)
	for n := l.done() - keep; n > 0; n-- {
		l.sealed, l.complete = l.sealed[1:], l.complete-1
	}
}

func (l *fakeLane) done() int {
	n := 0
	for _, b := range l.sealed[:l.complete] {
		if b.Seq <= l.committed {
			n++
		}
	}
	return n
}

// clone is the directory copied to another machine.
func (f *fakeLog) clone() *fakeLog {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := newLog()
	out.blockRecords = f.blockRecords
	for k, l := range f.lanes {
		c := *l
		c.sealed = slices.Clone(l.sealed)
		out.lanes[k] = &c
	}
	return out
}

func (f *fakeLog) Head(key string) (record.Head, uint64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.lanes[key]
	if !ok {
		return record.Head{}, 0, false
	}
	return l.head, l.committed, true
}

func (f *fakeLog) Batches(key string) []record.Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []record.Batch
	if l, ok := f.lanes[key]; ok {
		for _, b := range l.sealed[:l.complete] {
			out = append(out, b.Batch)
		}
	}
	return out
}

func (f *fakeLog) find(key string, seq uint64) *fakeBatch {
	l := f.lane(key)
	for i := range l.sealed {
		if l.sealed[i].Seq == seq {
			return &l.sealed[i]
		}
	}
	return nil
}

func (f *fakeLog) Blocks(key string, seq uint64) iter.Seq2[record.Block, error] {
	return func(yield func(record.Block, error) bool) {
		f.mu.Lock()
		b := f.find(key, seq)
		f.blocks++
		f.open++
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			f.open--
			f.mu.Unlock()
		}()
		if b == nil {
			yield(record.Block{}, fmt.Errorf("no batch %d", seq))
			return
		}
		var block record.Block
		var buf []byte
		for i, data := range b.blocks {
			buf = append(buf[:0], data...) // the last block turns to something else
			var err error
			if block, err = record.Decode(buf, block); err != nil {
				err = fmt.Errorf("generation 1 batch %d block %d: %w", seq, i, err)
			}
			if err == nil {
				err = f.failing("blocks")
			}
			if !yield(block, err) || err != nil {
				return
			}
		}
	}
}

func (f *fakeLog) Note(key string, seq uint64) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failing("note"); err != nil {
		return nil, err
	}
	if b := f.find(key, seq); b != nil {
		return b.note, nil
	}
	return nil, errors.New("no batch")
}

func (f *fakeLog) PutNote(key string, seq uint64, note []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failing("putnote"); err != nil {
		return err
	}
	f.find(key, seq).note = bytes.Clone(note)
	return nil
}

func (f *fakeLog) Commit(key string, seq uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failing("commit"); err != nil {
		return err
	}
	l := f.lane(key)
	if seq > l.committed {
		l.committed = seq
	} else if len(l.sealed) > 0 { // the store was rolled back: see wal.Log
		l.committed = min(l.committed, max(seq, l.sealed[0].Seq-1))
	}
	f.commits = append(f.commits, seq)
	return nil
}

func (f *fakeLog) Reset(key string, head record.Head) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failing("reset"); err != nil {
		return err
	}
	aside := 0
	if l, ok := f.lanes[key]; ok {
		aside = l.aside + len(l.sealed)
	}
	f.lanes[key] = &fakeLane{head: head, committed: head.Seq, aside: aside}
	return nil
}
