// Package memory is a store in memory. It keeps nothing after the process; it
// exists to be read and to be tested with: it is the contract of package sinks,
// executed under one mutex. An adapter for a real store differs from it only in
// how it makes [Lane.Flush] atomic and durable.
//
// A [Store] is the store itself and outlives the sinks opened on it, as a
// database outlives its clients. Where the contract leaves a duty to the engine,
// the store checks it: a step whose parts do not add up is refused as Permanent.
package memory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/walsink/walsink/sinks"
)

// Options of a Sink. The zero value is a sink that takes every record, in steps
// of any size.
type Options struct {
	// Format is Info.Format; "bytes" if empty.
	Format string
	// StepBytes and Chunked are as in Info.
	StepBytes int64
	Chunked   bool
	// Reject tells the records that the store will never take: nil means that the
	// record is good. Batch and Number of the result are not read.
	Reject func(rec []byte) *sinks.Reject
	// Tolerate makes the sink find bad records within the step, as Redis does,
	// instead of returning Poison.
	Tolerate bool
	// Pin makes a step pin its first batch in the mark before anything else, as a
	// Redis cluster does.
	Pin bool
}

// A Sink is a client of a Store.
type Sink struct {
	store *Store
	opts  Options
}

// Open returns a sink on the store. It does not fail.
func Open(store *Store, opts Options) *Sink {
	if opts.Format == "" {
		opts.Format = "bytes"
	}
	return &Sink{store: store, opts: opts}
}

// Info describes the sink.
func (s *Sink) Info() sinks.Info {
	return sinks.Info{
		Name: "memory", Target: "memory", Guarantee: sinks.ExactlyOnce,
		Format: s.opts.Format, StepBytes: s.opts.StepBytes, Chunked: s.opts.Chunked,
	}
}

// Close does nothing: the store stays.
func (s *Sink) Close() error { return nil }

// Acquire takes a lane over by raising its fence.
func (s *Sink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	if err := ctx.Err(); err != nil {
		return nil, sinks.Mark{}, &sinks.Error{Kind: sinks.Cancelled, Op: "acquire", Lane: id, Err: err}
	}
	if err := id.Validate(); err != nil {
		return nil, sinks.Mark{}, &sinks.Error{Kind: sinks.Permanent, Op: "acquire", Lane: id, Err: err}
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	e, ok := s.store.lanes[id]
	if !ok || e.mark.Fence == 0 {
		e.mark.Chain = id.Genesis()
	}
	e.mark.Fence++
	s.store.lanes[id] = e
	return &Lane{sink: s, id: id, fence: e.mark.Fence}, e.mark, nil
}

// Marks lists the marks of a sink id.
func (s *Sink) Marks(_ context.Context, sink string) ([]sinks.LaneMark, error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	var list []sinks.LaneMark
	for id, e := range s.store.lanes {
		if id.Sink == sink && e.mark.Fence > 0 {
			list = append(list, sinks.LaneMark{LaneID: id, Mark: e.mark})
		}
	}
	slices.SortFunc(list, func(a, b sinks.LaneMark) int { return strings.Compare(a.Lane, b.Lane) })
	return list, nil
}

// Audit ranges over all batches of a lane that are in, from the one after seq.
func (s *Sink) Audit(_ context.Context, id sinks.LaneID, after uint64) iter.Seq2[sinks.Audit, error] {
	return func(yield func(sinks.Audit, error) bool) {
		s.store.mu.Lock()
		rows := s.store.lanes[id].audit
		s.store.mu.Unlock()
		for _, row := range rows {
			if row.Seq > after && !yield(row, nil) {
				return
			}
		}
	}
}

// A Lane is an acquired lane.
type Lane struct {
	sink  *Sink
	id    sinks.LaneID
	fence uint64
}

// Close does nothing: the fence and the mark stay.
func (l *Lane) Close() error { return nil }

// Mark reads the mark.
func (l *Lane) Mark(ctx context.Context) (sinks.Mark, error) {
	if err := ctx.Err(); err != nil {
		return sinks.Mark{}, l.fail("mark", sinks.Cancelled, 0, err)
	}
	s := l.sink.store
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.lanes[l.id]
	if e.mark.Fence != l.fence {
		return sinks.Mark{}, l.fenced("mark", 0, e.mark)
	}
	return e.mark, nil
}

// Flush performs the step: the rule of package sinks, line by line.
func (l *Lane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	var cp uint64
	if len(step.Batches) > 0 {
		cp = step.Batches[0].Checkpoint
	}
	if err := ctx.Err(); err != nil {
		return sinks.Result{}, l.fail("flush", sinks.Cancelled, cp, err)
	}
	prev := step.Prev
	if l.sink.opts.Pin && prev.Partial == nil && len(step.Batches) > 0 {
		prev.Partial = &sinks.Partial{Batch: step.Batches[0].Batch}
		if err := l.pin(step.Prev, prev.Partial, cp); err != nil {
			return sinks.Result{}, err
		}
	}
	recs, rejected, err := l.read(step, cp)
	if err != nil {
		return sinks.Result{}, err
	}
	s := l.sink.store
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.lanes[l.id]
	if err := l.admit(e.mark, prev, cp); err != nil {
		return sinks.Result{}, err
	}
	s.lanes[l.id] = apply(e, step, recs, rejected, l.fence)
	res := sinks.Result{}
	for _, d := range rejected {
		res.Rejected = append(res.Rejected, d.Reject)
	}
	return res, nil
}

// admit compares fence and tip.
func (l *Lane) admit(stored, prev sinks.Mark, cp uint64) error {
	switch {
	case stored.Fence != l.fence:
		return l.fenced("flush", cp, stored)
	case stored.Tip() != prev.Tip():
		return l.fail("flush", sinks.Moved, cp, fmt.Errorf("the tip is that of seq %d", stored.Seq))
	}
	return nil
}

// pin puts a batch of which nothing is in into the mark.
func (l *Lane) pin(prev sinks.Mark, p *sinks.Partial, cp uint64) error {
	s := l.sink.store
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.lanes[l.id]
	if err := l.admit(e.mark, prev, cp); err != nil {
		return err
	}
	e.mark.Partial, e.mark.UpdatedAt = p, time.Now()
	s.lanes[l.id] = e
	return nil
}

// read copies the step's good records and finds the bad ones.
func (l *Lane) read(step *sinks.Step, cp uint64) (recs [][]byte, rejected []sinks.DeadLetter, err error) {
	var count, bytes int64
	for run, err := range step.Runs {
		if err != nil {
			return nil, nil, err
		}
		for i, rec := range run.Block.All() {
			count, bytes = count+1, bytes+int64(len(rec))
			if r := l.reject(rec, run, i); r != nil {
				b := step.Batches[run.Batch].Checkpoint
				rejected = append(rejected, sinks.DeadLetter{Reject: *r, Checkpoint: b, Record: slices.Clone(rec)})
				continue
			}
			recs = append(recs, slices.Clone(rec))
		}
	}
	if err := check(step, count, bytes); err != nil {
		return nil, nil, l.fail("flush", sinks.Permanent, cp, err)
	}
	if len(rejected) > 0 && (!l.sink.opts.Tolerate || len(rejected) > step.Tolerate) {
		e := &sinks.Error{Kind: sinks.Poison, Op: "flush", Lane: l.id, Checkpoint: cp}
		for _, d := range rejected {
			e.Bad = append(e.Bad, d.Reject)
		}
		return nil, nil, e
	}
	return recs, rejected, nil
}

func (l *Lane) reject(rec []byte, run sinks.Run, i int) *sinks.Reject {
	if l.sink.opts.Reject == nil {
		return nil
	}
	r := l.sink.opts.Reject(rec)
	if r == nil {
		return nil
	}
	bad := *r
	bad.Batch, bad.Number = run.Batch, run.First+uint64(i)
	return &bad
}

// apply returns the entry after the step.
func apply(e entry, step *sinks.Step, recs [][]byte, rejected []sinks.DeadLetter, fence uint64) entry {
	next, audit := step.Next, slices.Clone(step.Batches)
	for _, d := range slices.Concat(step.Dead, rejected) {
		e.dead = append(e.dead, Dead{
			Seq: audit[d.Batch].Seq, Checkpoint: d.Checkpoint, Number: d.Number,
			Field: d.Field, Code: d.Code, Reason: d.Reason, Record: slices.Clone(d.Record),
		})
	}
	if next.Partial != nil {
		p := *next.Partial
		p.Dead = slices.Clone(p.Dead)
		for _, d := range rejected {
			if d.Batch == len(audit)-1 {
				p.Dead = append(p.Dead, d.Number)
			}
		}
		slices.Sort(p.Dead)
		next.Partial, audit = &p, audit[:len(audit)-1]
	}
	for _, d := range rejected {
		next.Records, next.Dead = next.Records-1, next.Dead+1
		if d.Batch < len(audit) {
			audit[d.Batch].Dead++
		}
	}
	next.Fence, next.UpdatedAt = fence, time.Now()
	for i := range audit {
		audit[i].FlushedAt = next.UpdatedAt
	}
	e.records, e.audit, e.mark = append(e.records, recs...), append(e.audit, audit...), next
	return e
}

// check holds the engine to its side of the contract.
func check(step *sinks.Step, count, bytes int64) error {
	if count != step.Records || bytes != step.Bytes {
		return fmt.Errorf("runs hold %d records of %d bytes, the step says %d of %d", count, bytes, step.Records, step.Bytes)
	}
	if got, want := step.Next.Records-step.Prev.Records, uint64(count); got != want {
		return fmt.Errorf("the mark counts %d new records, the step has %d", got, want)
	}
	if got, want := step.Next.Dead-step.Prev.Dead, uint64(len(step.Dead))+step.Lost; got != want {
		return fmt.Errorf("the mark counts %d new dead letters, the step has %d", got, want)
	}
	if len(step.Batches) == 0 {
		if count > 0 || len(step.Dead) > 0 || step.Next.Partial != nil {
			return errors.New("a step without batches has records")
		}
		return nil
	}
	last := step.Batches[len(step.Batches)-1]
	if p := step.Next.Partial; p != nil && (p.Done > last.Records || p.Batch.Chain() != last.Chain()) {
		return errors.New("the mark is within another batch than the last of the step")
	}
	return nil
}

func (l *Lane) fail(op string, kind sinks.Kind, cp uint64, err error) error {
	return &sinks.Error{Kind: kind, Op: op, Lane: l.id, Checkpoint: cp, Err: err}
}

func (l *Lane) fenced(op string, cp uint64, now sinks.Mark) error {
	return l.fail(op, sinks.Fenced, cp, fmt.Errorf("fence %d was raised to %d", l.fence, now.Fence))
}
