package sinktest

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// A store for sinks that are broken on purpose: the contract, once more, in few
// lines, with a place for every mistake.
type shelf struct {
	mu      sync.Mutex
	lanes   map[sinks.LaneID]*row
	scratch [][]byte
}

type row struct {
	mark    sinks.Mark
	records [][]byte
	dead    []sinks.DeadLetter
	audit   []sinks.Audit
	kept    []record.Block // not yet copied
	late    *sinks.Step    // not yet written
	marks   int            // how often the mark was read
}

// A mistake is what a broken sink does wrong; the zero value does nothing wrong.
type mistake struct {
	// lane changes the key of a lane.
	key func(sinks.LaneID) sinks.LaneID
	// acquire changes the mark that an Acquire found.
	acquire func(m *sinks.Mark, id sinks.LaneID)
	// check replaces the compare-and-set.
	check func(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind
	// read replaces the reading of the step's records.
	read func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error)
	// store changes what is stored.
	store func(r *row, st *sinks.Step, m *sinks.Mark)
	// mark changes what Mark returns.
	mark func(r *row, m *sinks.Mark, err *error)
	// fail changes an error.
	fail func(*sinks.Error)
	// close is called when a handle is closed.
	close func(r *row)
	// marks and audit change what is listed.
	marks func([]sinks.LaneMark) []sinks.LaneMark
	audit func(rows []sinks.Audit, after uint64) []sinks.Audit
	// letters changes the dead letters that are given out, drop those that are dropped.
	letters func([]sinks.DeadLetter) []sinks.DeadLetter
	drop    func(*row, []sinks.LetterID) []sinks.LetterID
	differs []sinks.Difference // found by Reconcile
}

type broken struct {
	shelf *shelf
	mistake
}

func (b *broken) Info() sinks.Info {
	return sinks.Info{Name: "broken", Target: "shelf", Guarantee: sinks.ExactlyOnce, Format: "bytes", Chunked: true}
}

func (b *broken) Close() error { return nil }

func (b *broken) row(id sinks.LaneID) *row {
	if b.key != nil {
		id = b.key(id)
	}
	if b.shelf.lanes[id] == nil {
		b.shelf.lanes[id] = &row{mark: sinks.Mark{Chain: id.Genesis()}}
	}
	return b.shelf.lanes[id]
}

func (b *broken) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	if err := ctx.Err(); err != nil {
		return nil, sinks.Mark{}, b.wrong("acquire", sinks.Cancelled, id, nil)
	}
	b.shelf.mu.Lock()
	defer b.shelf.mu.Unlock()
	r := b.row(id)
	r.mark.Fence++
	if b.acquire != nil {
		b.acquire(&r.mark, id)
	}
	return &brokenLane{b, id, r.mark.Fence}, r.mark, nil
}

func (b *broken) wrong(op string, k sinks.Kind, id sinks.LaneID, bad []sinks.Reject) error {
	e := &sinks.Error{Kind: k, Op: op, Lane: id, Bad: bad}
	if b.fail != nil {
		b.fail(e)
	}
	return e
}

func (b *broken) Marks(_ context.Context, sink string) ([]sinks.LaneMark, error) {
	b.shelf.mu.Lock()
	defer b.shelf.mu.Unlock()
	var list []sinks.LaneMark
	for id, r := range b.shelf.lanes {
		if id.Sink == sink && r.mark.Fence > 0 {
			list = append(list, sinks.LaneMark{LaneID: id, Mark: r.mark})
		}
	}
	slices.SortFunc(list, func(a, b sinks.LaneMark) int { return strings.Compare(a.Lane, b.Lane) })
	if b.marks != nil {
		list = b.marks(list)
	}
	return list, nil
}

func (b *broken) Audit(_ context.Context, id sinks.LaneID, after uint64) iter.Seq2[sinks.Audit, error] {
	b.shelf.mu.Lock()
	defer b.shelf.mu.Unlock()
	all := b.row(id).audit
	rows := slices.DeleteFunc(slices.Clone(all), func(a sinks.Audit) bool { return a.Seq <= after })
	if b.audit != nil {
		rows = b.audit(all, after)
	}
	return func(yield func(sinks.Audit, error) bool) {
		for _, a := range rows {
			if !yield(a, nil) {
				return
			}
		}
	}
}

type brokenLane struct {
	*broken
	id    sinks.LaneID
	fence uint64
}

func (l *brokenLane) Close() error {
	l.shelf.mu.Lock()
	defer l.shelf.mu.Unlock()
	if l.close != nil {
		l.close(l.row(l.id))
	}
	return nil
}

func (l *brokenLane) Mark(ctx context.Context) (m sinks.Mark, err error) {
	if ctx.Err() != nil {
		return m, l.wrong("mark", sinks.Cancelled, l.id, nil)
	}
	l.shelf.mu.Lock()
	defer l.shelf.mu.Unlock()
	r := l.row(l.id)
	m = r.mark
	if m.Fence != l.fence {
		err = l.wrong("mark", sinks.Fenced, l.id, nil)
	}
	if r.marks++; l.broken.mark != nil {
		l.broken.mark(r, &m, &err)
	}
	return m, err
}

func verdict(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind {
	switch {
	case stored.Fence != fence:
		return sinks.Fenced
	case stored.Tip() != prev.Tip():
		return sinks.Moved
	}
	return 0
}

func (l *brokenLane) Flush(ctx context.Context, st *sinks.Step) (sinks.Result, error) {
	if ctx.Err() != nil {
		return sinks.Result{}, l.wrong("flush", sinks.Cancelled, l.id, nil)
	}
	read := readAll
	if l.read != nil {
		read = l.read
	}
	l.shelf.mu.Lock()
	r := l.row(l.id)
	l.shelf.mu.Unlock()
	recs, err := read(ctx, l.shelf, r, st)
	if e, ok := errors.AsType[*sinks.Error](err); ok {
		return sinks.Result{}, l.wrong("flush", e.Kind, l.id, e.Bad)
	}
	if err != nil {
		return sinks.Result{}, err
	}
	l.shelf.mu.Lock()
	defer l.shelf.mu.Unlock()
	check := verdict
	if l.check != nil {
		check = l.check
	}
	if k := check(r.mark, l.fence, st.Prev); k != 0 {
		return sinks.Result{}, l.wrong("flush", k, l.id, nil)
	}
	m := st.Next
	m.Fence = l.fence
	r.records = append(r.records, recs...)
	for _, d := range st.Dead {
		d.Record = slices.Clone(d.Record)
		r.dead = append(r.dead, d)
	}
	for _, a := range st.Batches[:len(st.Batches)-ifPartial(m)] {
		a.FlushedAt = a.FlushedAt.AddDate(2000, 0, 0)
		r.audit = append(r.audit, a)
	}
	if l.store != nil {
		l.store(r, st, &m)
	}
	r.mark = m
	return sinks.Result{}, nil
}

func ifPartial(m sinks.Mark) int {
	if m.Partial != nil {
		return 1
	}
	return 0
}

func isBad(rec []byte) bool { return strings.HasPrefix(string(rec), "bad ") }

func readAll(_ context.Context, _ *shelf, _ *row, st *sinks.Step) (recs [][]byte, err error) {
	var bad []sinks.Reject
	for r, err := range st.Runs {
		if err != nil {
			return nil, err
		}
		for i, rec := range r.Block.All() {
			if isBad(rec) {
				bad = append(bad, sinks.Reject{Batch: r.Batch, Number: r.First + uint64(i)})
			}
			recs = append(recs, slices.Clone(rec))
		}
	}
	if bad != nil {
		return nil, &sinks.Error{Kind: sinks.Poison, Bad: bad}
	}
	return recs, nil
}

func (s *shelf) harness(m mistake) Harness {
	h := harness(memory.Options{}, asIs)
	f := new(fault)
	look := func(id sinks.LaneID) row {
		b := broken{s, m}
		s.mu.Lock()
		defer s.mu.Unlock()
		r := *b.row(id)
		if r.kept != nil { // records that were kept instead of copied
			r.records = nil
			for _, b := range r.kept {
				for _, rec := range b.All() {
					r.records = append(r.records, rec)
				}
			}
		}
		return r
	}
	h.Open = func(testing.TB) sinks.Sink { return f.wrap(&broken{s, m}) }
	h.Visible = func(_ testing.TB, id sinks.LaneID) [][]byte { return look(id).records }
	h.DeadLetters = func(_ testing.TB, id sinks.LaneID) []sinks.DeadLetter { return look(id).dead }
	h.Snapshot = func(testing.TB) func() { return s.snapshot(m) }
	h.Break = func(testing.TB) func() { return f.set(down) }
	h.LoseAnswers = func(testing.TB) func() { return f.set(mute) }
	return h
}

func (s *shelf) snapshot(mistake) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved := map[sinks.LaneID]row{}
	for id, r := range s.lanes {
		saved[id] = *r
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, r := range saved {
			*s.lanes[id] = r
		}
	}
}

func newShelf() *shelf { return &shelf{lanes: map[sinks.LaneID]*row{}} }

// throughJSON is what a store does that keeps numbers as doubles and text as UTF-8.
func throughJSON(v uint64) uint64 {
	data, _ := json.Marshal(float64(v))
	var f float64
	_ = json.Unmarshal(data, &f)
	return uint64(f)
}

// DeadLetters and DropDeadLetters are those of a sinks.DeadLetterBox.
func (b *broken) DeadLetters(_ context.Context, id sinks.LaneID, after sinks.LetterID) iter.Seq2[sinks.DeadLetter, error] {
	return func(yield func(sinks.DeadLetter, error) bool) {
		b.shelf.mu.Lock()
		letters := slices.Clone(b.row(id).dead)
		b.shelf.mu.Unlock()
		if b.letters != nil {
			letters = b.letters(letters)
		}
		for _, d := range letters {
			if d.ID().Compare(after) > 0 && !yield(d, nil) {
				return
			}
		}
	}
}

func (b *broken) DropDeadLetters(_ context.Context, id sinks.LaneID, ids []sinks.LetterID) error {
	b.shelf.mu.Lock()
	defer b.shelf.mu.Unlock()
	r := b.row(id)
	if b.drop != nil {
		ids = b.drop(r, ids)
	}
	r.dead = slices.DeleteFunc(slices.Clone(r.dead), func(d sinks.DeadLetter) bool { return slices.Contains(ids, d.ID()) })
	return nil
}

// Reconcile is that of a sinks.Reconciler.
func (b *broken) Reconcile(context.Context, []sinks.LaneRows) (sinks.Reconciliation, error) {
	return sinks.Reconciliation{Compared: []string{"nothing"}, Differences: b.differs}, nil
}
