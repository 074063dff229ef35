package wal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/walsink/walsink/record"
)

// A modelLane is what a lane must be, by the promises of the package.
type modelLane struct {
	base   uint64 // Seq at which the lane began or was reset
	sealed []modelBatch
	acked  int      // how many of sealed are durable for sure
	commit uint64   // highest Seq that Commit was told of
	open   []string // records of the open batch
}

type modelBatch struct {
	checkpoint uint64
	recs       []string
}

// A model drives a log at random and compares it with the model.
type model struct {
	t         *rapid.T
	dir       string
	backend   *memory
	log       *Log
	lanes     map[string]*modelLane
	names     []string
	next      uint64 // next checkpoint
	completed uint64 // acknowledged
	serial    int
	foreign   bool // another process left something that was not synced since
}

func (m *model) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) opened() {
	l, err := Open(m.dir, Options{GenerationBytes: 1 << 20, Retain: time.Nanosecond, Logger: quiet, backend: m.backend})
	m.check(err)
	m.log = l
	if d := l.Stat().Damage; len(d) > 0 {
		m.t.Fatalf("damage: %v", d)
	}
}

func (m *model) lane() (string, *modelLane, *Lane) {
	name := rapid.SampledFrom(m.names).Draw(m.t, "lane")
	ln, err := m.log.Lane(name)
	m.check(err)
	return name, m.lanes[name], ln
}

func (m *model) append() {
	_, ml, ln := m.lane()
	size := rapid.SampledFrom([]int{0, 10, 3000, 90_000, 400_000}).Draw(m.t, "size")
	for range rapid.IntRange(1, 4).Draw(m.t, "records") {
		m.serial++
		rec := fmt.Sprintf("%d/%s", m.serial, bytes.Repeat([]byte{'x'}, size))
		m.check(ln.Append(context.Background(), []byte(rec)))
		ml.open = append(ml.open, rec)
	}
}

func (m *model) seal() {
	m.next++
	for name, ml := range m.lanes {
		ln, err := m.log.Lane(name)
		m.check(err)
		b, ok, err := ln.Seal(m.next, []byte(name), "f", false)
		m.check(err)
		if ok != (len(ml.open) > 0) {
			m.t.Fatalf("seal of %s says %v with %d records open", name, ok, len(ml.open))
		}
		if ok {
			ml.sealed = append(ml.sealed, modelBatch{m.next, ml.open})
			ml.open = nil
			if want := ml.base + uint64(len(ml.sealed)); b.Seq != want {
				m.t.Fatalf("%s: batch %d, want %d", name, b.Seq, want)
			}
		}
	}
}

func (m *model) acknowledged() {
	m.foreign = false
	for _, ml := range m.lanes {
		ml.acked = len(ml.sealed)
	}
}

func (m *model) sync() {
	m.check(m.log.Sync())
	m.acknowledged()
}

func (m *model) complete() {
	if m.next == 0 {
		return
	}
	c := rapid.Uint64Range(1, m.next).Draw(m.t, "checkpoint")
	complete := m.log.Complete
	if rapid.Bool().Draw(m.t, "alone") {
		complete = m.log.Checkpoint
	}
	m.check(complete(c, nil))
	if c > m.completed {
		m.acknowledged()
	}
	m.completed = max(m.completed, c)
}

func (m *model) commit() {
	name, ml, _ := m.lane()
	head, committed, ok := m.log.Head(name)
	if !ok || head.Seq == committed {
		return
	}
	seq := rapid.Uint64Range(committed+1, head.Seq).Draw(m.t, "seq")
	ml.commit = max(ml.commit, seq)
	m.check(m.log.Commit(name, seq))
}

func (m *model) note() {
	name, ml, _ := m.lane()
	head, _, ok := m.log.Head(name)
	if ok && head.Seq > ml.commit {
		m.check(m.log.PutNote(name, head.Seq, []byte("note")))
		m.acknowledged()
	}
}

func (m *model) truncate() {
	m.check(m.log.Truncate())
	for _, ml := range m.lanes {
		ml.open = nil
		ml.sealed = slices.DeleteFunc(ml.sealed, func(b modelBatch) bool { return b.checkpoint > m.completed })
	}
	m.acknowledged()
}

func (m *model) reset() {
	name, ml, _ := m.lane()
	base := rapid.Uint64Range(0, 100).Draw(m.t, "base")
	m.check(m.log.Reset(name, record.Head{Seq: base, Chain: record.Chain{byte(base)}}))
	m.acknowledged()
	*ml = modelLane{base: base, commit: base}
}

func (m *model) reopen() {
	m.check(m.log.Close())
	if !m.foreign {
		m.acknowledged() // closing syncs
	}
	for _, ml := range m.lanes {
		ml.open = nil
	}
	m.opened()
	m.adopt()
}

func (m *model) powerCut() {
	left := m.backend.powerCut(rapid.IntRange(0, 5).Draw(m.t, "unsynced"))
	_ = m.log.Close() // of the world that is no more
	m.backend, m.foreign = left, true
	m.opened()
	m.adopt()
}

func (m *model) kill() {
	left := m.backend.kill()
	_ = m.log.Close()
	m.backend, m.foreign = left, true
	m.opened()
	m.adopt()
}

// adopt takes over what was not acknowledged, as the log found it.
func (m *model) adopt() {
	c, _ := m.log.Completed()
	if c < m.completed {
		m.t.Fatalf("completed %d, was told %d", c, m.completed)
	}
	m.completed = c
	for name, ml := range m.lanes {
		ml.open = nil
		ln, err := m.log.Lane(name)
		m.check(err)
		n := int(m.log.tipOf(ln) - ml.base)
		if n < ml.acked || n > len(ml.sealed) {
			m.t.Fatalf("%s has %d batches, of which %d were acknowledged, and %d were sealed", name, n, ml.acked, len(ml.sealed))
		}
		ml.sealed = ml.sealed[:n]
	}
}

// look compares what the log gives out.
func (m *model) look() {
	for name, ml := range m.lanes {
		batches := m.log.Batches(name)
		due := ml.base
		for i, b := range ml.sealed {
			if b.checkpoint <= m.completed {
				due = ml.base + uint64(i) + 1
			}
		}
		if head, _, ok := m.log.Head(name); ok && head.Seq != due {
			m.t.Fatalf("%s: head %d, want %d", name, head.Seq, due)
		}
		for seq := ml.commit + 1; seq <= due; seq++ {
			if !slices.ContainsFunc(batches, func(b record.Batch) bool { return b.Seq == seq }) {
				m.t.Fatalf("%s: batch %d is pending and not held", name, seq)
			}
			var got []string
			for block, err := range m.log.Blocks(name, seq) {
				m.check(err)
				for _, r := range block.All() {
					got = append(got, string(r))
				}
			}
			if !slices.Equal(got, ml.sealed[seq-ml.base-1].recs) {
				m.t.Fatalf("%s: batch %d has other records", name, seq)
			}
		}
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "walmodel") //nolint:usetesting // one for each run of the model
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := &model{t: t, dir: dir, backend: newMemory(), lanes: make(map[string]*modelLane), names: []string{"s/a", "s/b"}}
		for _, name := range m.names {
			m.lanes[name] = new(modelLane)
		}
		m.opened()
		defer func() { _ = m.log.Close() }()
		act := func(f func()) func(*rapid.T) { return func(*rapid.T) { f() } }
		t.Repeat(map[string]func(*rapid.T){
			"append": act(m.append), "append more": act(m.append), "seal": act(m.seal), "sync": act(m.sync),
			"complete": act(m.complete), "commit": act(m.commit), "note": act(m.note), "truncate": act(m.truncate),
			"reset": act(m.reset), "reopen": act(m.reopen), "power cut": act(m.powerCut), "kill": act(m.kill), "": act(m.look),
		})
	})
}
