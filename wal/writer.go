package wal

import (
	"errors"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/record"
)

// A job is a block to be written, with the bytes that were promised to it.
type job struct {
	lane     *Lane
	block    *record.Builder
	promised int64
	value    []byte // the encoded block, once it is finished
}

// finish is the task that takes full blocks from all lanes, one by one, and
// computes checksums and digests, beside the goroutines that append and the one
// that writes.
func (l *Log) finish() {
	for {
		select {
		case j := <-l.jobs:
			j.value = j.block.Finish(j.lane.hasher)
			select {
			case l.finished <- j:
			case <-l.quit:
				j.home()
				return
			}
		case <-l.quit:
			return
		}
	}
}

// write is the task that writes finished blocks.
func (l *Log) write() {
	var key []byte
	for {
		select {
		case j := <-l.finished:
			key = l.writeBlock(j, key)
		case <-l.quit:
			return
		}
	}
}

// home gives the block's memory back to its lane.
func (j job) home() {
	if j.block.Size() > 4*record.BlockSize {
		j.block = new(record.Builder)
	}
	j.block.Reset()
	j.lane.spare <- j.block
}

// writeBlock writes a block, or latches the log, and sends the builder home.
func (l *Log) writeBlock(j job, key []byte) []byte {
	for {
		g, b := l.target(j.lane)
		key = blockKey(key, b.id, b.blocks)
		err := l.failure()
		if err == nil {
			err = g.append(entry{key, j.value})
		}
		if l.written(j, g, b, entry{key, j.value}, err) {
			break
		}
	}
	crash.Point(crash.AppendBlock)
	j.home()
	return key
}

// target is the generation to write to, and the open batch of the lane. The
// generation counts as needed until written is called, since it can be retired
// meanwhile.
func (l *Log) target(ln *Lane) (*generation, *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln.batch == nil {
		ln.batch = &batch{lane: ln, id: l.newID()}
	}
	l.active.live++
	return l.active, ln.batch
}

// written deals with the outcome of writing a block to g. It is false if g was
// retired before it took the block.
func (l *Log) written(j job, g *generation, b *batch, e entry, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.live--
	switch {
	case errors.Is(err, errRetired):
		l.kick() // it may be time to drop it
		return false
	case err != nil:
		_ = l.failLocked(err)
	default:
		b.add(g)
		g.charge(e)
	}
	l.promised -= j.promised
	l.open--
	l.broadcast()
	return true
}

// newID returns an id for a batch. The caller holds mu.
func (l *Log) newID() uint64 {
	l.counter++
	return l.number<<32 | uint64(l.counter)
}

// add notes that the next block is in g. The caller holds Log.mu.
func (b *batch) add(g *generation) {
	if n := len(b.segments); n == 0 || b.segments[n-1].generation != g.number {
		b.segments = append(b.segments, segment{generation: g.number, first: b.blocks})
		g.live++
	}
	b.blocks++
}
