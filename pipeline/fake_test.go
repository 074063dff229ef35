package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

// A fakeStore is a store and the local log of an output, as slices. It outlives
// the fakeOutputs that are opened on it, each of which stands for a process.
type fakeStore struct {
	mu     sync.Mutex
	lanes  map[string]*fakeLedger // the store
	log    []fakeSeal             // the log: sealed and not flushed
	done   fakeBarrier            // the log: completed
	known  bool                   // the log exists
	sealed uint64                 // highest id ever sealed, in the log

	down     bool // flushes do nothing
	calls    []string
	failSeal func(n uint64) error
	failDone func(n uint64) error
	onAppend func(lane string, rec []byte) error
	block    chan struct{} // Append waits for it to be closed, if set
}

type fakeBarrier = committer.Barrier

type fakeSeal struct {
	n     uint64
	pos   []byte
	lanes map[string][]string
}

type fakeLedger struct {
	recs  []string
	audit []fakeBatch
}

type fakeBatch struct {
	n    uint64
	pos  []byte
	recs []string
}

func newFakeStore() *fakeStore { return &fakeStore{lanes: map[string]*fakeLedger{}} }

// wipe loses the local log.
func (s *fakeStore) wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.done, s.known, s.sealed = nil, fakeBarrier{}, false, 0
}

// all returns the records of all lanes, lane by lane.
func (s *fakeStore) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s.lanes)) {
		all = append(all, s.lanes[name].recs...)
	}
	return all
}

func (s *fakeStore) trace(format string, args ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

// sink returns the Sink of the store.
func (s *fakeStore) sink(name string) Sink {
	return Sink{Name: name, Open: func(_ context.Context, r Restored) (Output, error) { return s.open(r) }}
}

func (s *fakeStore) open(r Restored) (*fakeOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &fakeOutput{store: s, lanes: map[string]*fakeLane{}, failed: make(chan struct{})}
	s.trace("open restored=%d", r.Checkpoint)
	if s.known {
		if r.Checkpoint > s.done.Checkpoint {
			s.done = fakeBarrier{Checkpoint: r.Checkpoint, Position: r.Position}
		}
		s.log = slices.DeleteFunc(s.log, func(b fakeSeal) bool { return b.n > s.done.Checkpoint })
		s.flush()
		o.position, o.last = s.done.Position, s.done.Checkpoint
		if !s.ahead() {
			return o, nil
		}
	}
	s.known = true
	return o, o.recover()
}

// ahead reports whether the store has more of a lane than the log knows of.
func (s *fakeStore) ahead() bool {
	for _, l := range s.lanes {
		if n := len(l.audit); n > 0 && l.audit[n-1].n > s.done.Checkpoint {
			return true
		}
	}
	return false
}

// recover finds position and barriers in the ledgers, after a loss of the log.
func (o *fakeOutput) recover() error {
	var marks []fakeBatch
	barriers := map[uint64][]byte{}
	for _, l := range o.store.lanes {
		mark := fakeBatch{}
		if len(l.audit) > 0 {
			mark = l.audit[len(l.audit)-1]
		}
		marks = append(marks, mark)
	}
	if len(marks) == 0 {
		return nil
	}
	byID := func(a, b fakeBatch) int { return cmp.Compare(a.n, b.n) }
	low, high := slices.MinFunc(marks, byID), slices.MaxFunc(marks, byID)
	for name, l := range o.store.lanes {
		lane := &fakeLane{out: o, name: name}
		for _, b := range l.audit {
			if b.n > low.n {
				barriers[b.n] = b.pos
				lane.replay = append(lane.replay, b)
			}
		}
		o.lanes[name] = lane
	}
	for _, n := range slices.Sorted(maps.Keys(barriers)) {
		o.barriers = append(o.barriers, fakeBarrier{Checkpoint: n, Position: barriers[n]})
	}
	o.position, o.last = low.pos, high.n
	o.store.done = fakeBarrier{Checkpoint: low.n, Position: low.pos}
	return nil
}

// flush moves completed batches into the store.
func (s *fakeStore) flush() {
	if s.down {
		return
	}
	for len(s.log) > 0 && s.log[0].n <= s.done.Checkpoint {
		b := s.log[0]
		s.log = s.log[1:]
		for name, recs := range b.lanes {
			l := s.lanes[name]
			l.recs = append(l.recs, recs...)
			l.audit = append(l.audit, fakeBatch{n: b.n, pos: b.pos, recs: recs})
		}
	}
}

type fakeOutput struct {
	store    *fakeStore
	lanes    map[string]*fakeLane
	position []byte
	last     uint64
	barriers []fakeBarrier
	failed   chan struct{}
	err      error
}

type fakeLane struct {
	out    *fakeOutput
	name   string
	open   []string
	replay []fakeBatch // what the store has already
}

func (o *fakeOutput) Lane(_ context.Context, name string) (Lane, error) {
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	if o.lanes[name] == nil {
		o.lanes[name] = &fakeLane{out: o, name: name}
	}
	if o.store.lanes[name] == nil {
		o.store.lanes[name] = &fakeLedger{}
	}
	return o.lanes[name], nil
}

func (l *fakeLane) Append(ctx context.Context, rec []byte) error {
	l.out.store.mu.Lock()
	block, hook := l.out.store.block, l.out.store.onAppend
	l.out.store.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if hook != nil {
		if err := hook(l.name, rec); err != nil {
			return err
		}
	}
	l.open = append(l.open, string(rec))
	return nil
}

func (o *fakeOutput) Seal(_ context.Context, n uint64, pos []byte) error {
	s := o.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace("seal %d", n)
	if s.failSeal != nil {
		if err := s.failSeal(n); err != nil {
			return err
		}
	}
	if err := o.admit(n, pos); err != nil {
		return err
	}
	b := fakeSeal{n: n, pos: bytes.Clone(pos), lanes: map[string][]string{}}
	for name, l := range o.lanes {
		open := l.open
		if len(l.replay) > 0 {
			if l.replay[0].n != n {
				if len(open) > 0 {
					return fmt.Errorf("lane %s checkpoint %d: %d records where the store has none: %w", name, n, len(open), committer.ErrReplayDiffers)
				}
				continue
			}
			if !slices.Equal(l.replay[0].recs, open) {
				return fmt.Errorf("lane %s checkpoint %d: %w", name, n, committer.ErrReplayDiffers)
			}
			l.replay, l.open = l.replay[1:], nil
			continue
		}
		if len(open) > 0 {
			b.lanes[name] = open
			l.open = nil
		}
	}
	s.log = append(s.log, b)
	s.sealed = max(s.sealed, n)
	return nil
}

func (o *fakeOutput) admit(n uint64, pos []byte) error {
	if len(o.barriers) > 0 {
		if b := o.barriers[0]; b.Checkpoint != n || !bytes.Equal(b.Position, pos) {
			return fmt.Errorf("seal %d: checkpoint %d must be repeated first", n, b.Checkpoint)
		}
		o.barriers = o.barriers[1:]
		return nil
	}
	if n <= o.last {
		return fmt.Errorf("seal %d after %d", n, o.last)
	}
	o.last = n
	return nil
}

func (o *fakeOutput) Complete(_ context.Context, n uint64) error {
	s := o.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace("complete %d", n)
	if s.failDone != nil {
		if err := s.failDone(n); err != nil {
			return err
		}
	}
	for _, b := range s.log {
		if b.n <= n && b.n > s.done.Checkpoint {
			s.done = fakeBarrier{Checkpoint: b.n, Position: b.pos}
		}
	}
	s.flush()
	return nil
}

func (o *fakeOutput) Abort(_ context.Context, n uint64) error {
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	o.store.trace("abort %d", n)
	return nil
}

func (o *fakeOutput) Drain(context.Context) error {
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	o.store.trace("drain")
	o.store.flush()
	if len(o.store.log) > 0 && o.store.log[0].n <= o.store.done.Checkpoint {
		return errors.New("store is down")
	}
	return nil
}

func (o *fakeOutput) Position() []byte        { return o.position }
func (o *fakeOutput) Last() uint64            { return o.last }
func (o *fakeOutput) Barriers() []fakeBarrier { return slices.Clone(o.barriers) }
func (o *fakeOutput) Failed() <-chan struct{} { return o.failed }
func (o *fakeOutput) Err() error              { return o.err }
func (o *fakeOutput) Guarantee() (sinks.Guarantee, string) {
	return sinks.ExactlyOnce, ""
}
func (o *fakeOutput) Close() error {
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	o.store.trace("close")
	return nil
}

// seals counts the calls that begin with a word.
func (s *fakeStore) count(word string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if strings.HasPrefix(c, word) {
			n++
		}
	}
	return n
}
