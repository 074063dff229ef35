package sinktest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// mistakes are sinks that are broken on purpose, by the case that must name the
// fault.
var mistakes = []struct {
	name, rejectedBy string
	mistake
}{
	{"an owner does not raise the fence", "Acquire", mistake{acquire: func(m *sinks.Mark, _ sinks.LaneID) { m.Fence = 1 }}},
	{"Acquire begins the lane again", "Acquire", mistake{acquire: func(m *sinks.Mark, id sinks.LaneID) {
		if m.Fence > 1 {
			*m = sinks.Mark{Fence: m.Fence, Chain: id.Genesis()}
		}
	}}},
	{"Flush returns before it writes", "Visibility", mistake{
		store: func(r *row, st *sinks.Step, m *sinks.Mark) { r.late, *m = st, r.mark },
	}},
	{"only the first run is written", "Visibility", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			recs, err := readAll(ctx, s, r, st)
			return recs[:min(len(recs), 3)], err
		},
	}},
	{"a step is written backwards", "Order", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			recs, err := readAll(ctx, s, r, st)
			slices.Reverse(recs)
			return recs, err
		},
	}},
	{"the tip is not compared", "Tip", mistake{check: func(stored sinks.Mark, fence uint64, _ sinks.Mark) sinks.Kind {
		return verdict(stored, fence, stored)
	}}},
	{"the number of the batch is compared, not the tip", "Tip", mistake{
		check: func(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind {
			if stored.Seq == prev.Seq {
				prev = stored
			}
			return verdict(stored, fence, prev)
		},
	}},
	{"more than the tip is compared", "Tip", mistake{check: func(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind {
		if stored.Fence != prev.Fence {
			return sinks.Moved
		}
		return verdict(stored, fence, prev)
	}}},
	{"the mark is made from the batches", "Override", mistake{store: func(_ *row, st *sinks.Step, m *sinks.Mark) {
		if n := len(st.Batches); n > 0 && st.Next.Partial == nil {
			m.Chain = st.Batches[n-1].Chain()
		}
	}}},
	{"dead are only those that come as dead letters", "GivenUp", mistake{store: func(_ *row, st *sinks.Step, m *sinks.Mark) {
		m.Dead -= st.Lost
	}}},
	{"a replay is upserted", "Replay", mistake{check: func(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind {
		if prev.Seq < stored.Seq {
			prev = stored
		}
		return verdict(stored, fence, prev)
	}}},
	{"the fence is not compared", "Fence", mistake{check: func(stored sinks.Mark, _ uint64, prev sinks.Mark) sinks.Kind {
		return verdict(stored, stored.Fence, prev)
	}}},
	{"a fenced owner may read its mark", "Fence", mistake{mark: func(_ *row, _ *sinks.Mark, err *error) { *err = nil }}},
	{"the tip is looked at before the fence", "Fence", mistake{check: func(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind {
		if stored.Tip() != prev.Tip() {
			return sinks.Moved
		}
		return verdict(stored, fence, prev)
	}}},
	{"records are written before the fence is looked at", "FenceInFlight", mistake{read: writeEarly}},
	{"Next.Fence is stored as it comes", "NextFence", mistake{store: func(_ *row, st *sinks.Step, m *sinks.Mark) { m.Fence = st.Next.Fence }}},
	{"numbers are stored as doubles", "MarkFields", mistake{store: func(_ *row, _ *sinks.Step, m *sinks.Mark) {
		m.Checkpoint = throughJSON(m.Checkpoint)
	}}},
	{"positions are stored as text", "MarkFields", mistake{store: func(_ *row, _ *sinks.Step, m *sinks.Mark) {
		m.Position = bytes.ToValidUTF8(m.Position, []byte("?"))
	}}},
	{"an empty position leaves the old one", "MarkFields", mistake{store: func(r *row, _ *sinks.Step, m *sinks.Mark) {
		if len(m.Position) == 0 {
			m.Position = r.mark.Position
		}
	}}},
	{"closing a handle removes the entry", "Restart", mistake{close: func(r *row) { r.mark = sinks.Mark{} }}},
	{"a batch without records is passed over", "EmptyBatch", mistake{store: func(r *row, st *sinks.Step, m *sinks.Mark) {
		if st.Records == 0 {
			*m = r.mark
		}
	}}},
	{"more than a thousand records are cut off", "HugeBatch", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			recs, err := readAll(ctx, s, r, st)
			return recs[:min(len(recs), 1000)], err
		},
	}},
	{"blocks are kept", "BorrowedMemory", mistake{
		read: func(_ context.Context, _ *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			for run, err := range st.Runs {
				if err != nil {
					return nil, err
				}
				r.kept = append(r.kept, run.Block)
			}
			return nil, nil
		},
	}},
	{"records are changed in place", "BorrowedMemory", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			recs, err := readAll(ctx, s, r, st)
			for run := range st.Runs {
				for _, rec := range run.Block.All() {
					copy(rec, bytes.ToUpper(rec))
				}
			}
			return recs, err
		},
	}},
	{"records are lines", "Bytes", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			recs, err := readAll(ctx, s, r, st)
			for i := range recs {
				recs[i] = bytes.TrimRight(recs[i], "\r\n")
			}
			return recs, err
		},
	}},
	{"empty records are dropped", "Bytes", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			recs, err := readAll(ctx, s, r, st)
			return slices.DeleteFunc(recs, func(rec []byte) bool { return len(rec) == 0 }), err
		},
	}},
	{"a log that cannot be read ends the step", "LogError", mistake{
		read: func(_ context.Context, _ *shelf, _ *row, st *sinks.Step) (recs [][]byte, err error) {
			for run, err := range st.Runs {
				if err != nil {
					return recs, nil
				}
				for _, rec := range run.Block.All() {
					recs = append(recs, slices.Clone(rec))
				}
			}
			return recs, nil
		},
	}},
	{"the end of a context is permanent", "CancelledBefore", mistake{fail: func(e *sinks.Error) {
		if e.Kind == sinks.Cancelled {
			e.Kind = sinks.Permanent
		}
	}}},
	{"a cancelled step is written later", "CancelledInFlight", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			recs, err := readAll(ctx, s, r, st)
			if err == nil && ctx.Err() != nil {
				r.late, r.marks = st, 0
				return nil, ctx.Err()
			}
			return recs, err
		},
		mark: func(r *row, m *sinks.Mark, _ *error) {
			if r.late != nil && r.marks == 2 {
				recs, _ := readAll(context.Background(), nil, r, r.late)
				fence := r.mark.Fence
				r.records, r.mark, r.late = append(r.records, recs...), r.late.Next, nil
				r.mark.Fence = fence
				*m = r.mark
			}
		},
	}},
	{"a cancelled step leaves what it wrote", "CancelledInFlight", mistake{read: writeEarly}},
	{"an unfinished batch is not part of the tip", "PartialMismatch", mistake{
		check: func(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind {
			stored.Partial, prev.Partial = nil, nil
			return verdict(stored, fence, prev)
		},
	}},
	{"the number of records alone tells unfinished batches apart", "PartialMismatch", mistake{
		check: func(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind {
			if stored.Partial != nil && prev.Partial != nil && stored.Chain == prev.Chain && stored.Partial.Done == prev.Partial.Done {
				prev = stored
			}
			return verdict(stored, fence, prev)
		},
	}},
	{"the mark of an unfinished batch does not hold it", "Partial", mistake{store: func(_ *row, _ *sinks.Step, m *sinks.Mark) {
		if m.Partial != nil {
			p := *m.Partial
			p.Batch.Position, m.Partial = nil, &p
		}
	}}},
	{"a whole batch leaves its part in the mark", "Partial", mistake{store: func(r *row, _ *sinks.Step, m *sinks.Mark) {
		if m.Partial == nil && r.mark.Partial != nil {
			m.Partial = r.mark.Partial
		}
	}}},
	{"dead letters are dropped", "DeadLetters", mistake{store: func(r *row, st *sinks.Step, _ *sinks.Mark) {
		r.dead = r.dead[:len(r.dead)-len(st.Dead)]
	}}},
	{"dead letters are written again by a replay", "DeadLetters", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			if st.Prev.Tip() != r.mark.Tip() {
				r.dead = append(r.dead, st.Dead...)
			}
			return readAll(ctx, s, r, st)
		},
	}},
	{"audit rows do not count dead letters", "DeadLetters", mistake{store: func(r *row, _ *sinks.Step, _ *sinks.Mark) {
		for i := range r.audit {
			r.audit[i].Dead = 0
		}
	}}},
	{"the wrong record is named as bad", "Poison", mistake{fail: func(e *sinks.Error) {
		for i := range e.Bad {
			e.Bad[i].Number /= 2
		}
	}}},
	{"no record is named as bad", "Poison", mistake{fail: func(e *sinks.Error) { e.Bad = nil }}},
	{"records before a bad one are written", "Poison", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			recs, err := readAll(ctx, s, r, st)
			if sinks.KindOf(err) == sinks.Poison {
				for run := range st.Runs {
					for _, rec := range run.Block.All() {
						if isBad(rec) {
							return recs, err
						}
						r.records = append(r.records, slices.Clone(rec))
					}
				}
			}
			return recs, err
		},
	}},
	{"a batch of other contents is pinned", "Poison", mistake{read: pinning(func(_ *sinks.Step, p *sinks.Partial) {
		p.Batch.Digest[0] ^= 1
	})}},
	{"the last batch of a step is pinned, not the first", "Poison", mistake{read: pinning(func(st *sinks.Step, p *sinks.Partial) {
		p.Batch = st.Batches[len(st.Batches)-1].Batch
	})}},
	{"a pinned batch counts records that are not in", "Poison", mistake{read: pinning(func(_ *sinks.Step, p *sinks.Partial) {
		p.Done = 1
	})}},
	{"a pinned batch names dead records", "Poison", mistake{read: pinning(func(_ *sinks.Step, p *sinks.Partial) {
		p.Dead = []uint64{0}
	})}},
	{"a step that succeeds leaves a batch pinned that failed before", "Poison", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			recs, err := readAll(ctx, s, r, st)
			if sinks.KindOf(err) == sinks.Poison && len(st.Batches) > 1 {
				r.late = st
			}
			return recs, err
		},
		store: func(r *row, _ *sinks.Step, m *sinks.Mark) {
			if r.late == nil || m.Partial != nil {
				return
			}
			for _, a := range r.late.Batches {
				if a.Seq == m.Seq+1 {
					m.Partial = &sinks.Partial{Batch: a.Batch}
				}
			}
		},
	}},
	{"a batch of a step that was refused is pinned", "Tip", mistake{
		check: func(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind {
			if prev.Partial != nil && prev.Partial.Done == 0 {
				prev.Partial = nil
			}
			if stored.Partial != nil && stored.Partial.Done == 0 {
				stored.Partial = nil
			}
			return verdict(stored, fence, prev)
		},
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			pin(s, r, &sinks.Partial{Batch: st.Batches[0].Batch})
			return readAll(ctx, s, r, st)
		},
	}},
	{"bad records are dropped in silence", "Tolerate", mistake{
		read: func(_ context.Context, _ *shelf, _ *row, st *sinks.Step) (recs [][]byte, err error) {
			for run, err := range st.Runs {
				if err != nil {
					return nil, err
				}
				for _, rec := range run.Block.All() {
					if !isBad(rec) {
						recs = append(recs, slices.Clone(rec))
					}
				}
			}
			return recs, nil
		},
	}},
	{"lane names are not told apart by case", "Lanes", mistake{key: func(id sinks.LaneID) sinks.LaneID {
		id.Lane = strings.ToLower(id.Lane)
		return id
	}}},
	{"sink id and lane are put together without a mark", "Lanes", mistake{key: func(id sinks.LaneID) sinks.LaneID {
		return sinks.LaneID{Sink: "x", Lane: id.Sink + "-" + id.Lane}
	}}},
	{"lanes share a buffer", "Lanes", mistake{
		read: func(_ context.Context, s *shelf, _ *row, st *sinks.Step) ([][]byte, error) {
			s.mu.Lock()
			s.scratch = nil
			s.mu.Unlock()
			for run, err := range st.Runs {
				if err != nil {
					return nil, err
				}
				s.mu.Lock()
				for _, rec := range run.Block.All() {
					s.scratch = append(s.scratch, slices.Clone(rec))
				}
				s.mu.Unlock()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.scratch, nil
		},
	}},
	{"Marks forgets lanes that have not moved", "Marks", mistake{marks: func(list []sinks.LaneMark) []sinks.LaneMark {
		return slices.DeleteFunc(list, func(m sinks.LaneMark) bool { return m.Seq == 0 })
	}}},
	{"Marks is in no order", "Marks", mistake{marks: func(list []sinks.LaneMark) []sinks.LaneMark {
		slices.Reverse(list)
		return list
	}}},
	{"dead letters come in no order", "DeadLetterBox", mistake{letters: func(l []sinks.DeadLetter) []sinks.DeadLetter {
		slices.Reverse(l)
		return l
	}}},
	{"dead letters lose their reason", "DeadLetterBox", mistake{letters: func(l []sinks.DeadLetter) []sinks.DeadLetter {
		for i := range l {
			l[i].Reason = ""
		}
		return l
	}}},
	{"all letters of a checkpoint are dropped", "DeadLetterBox", mistake{drop: func(r *row, ids []sinks.LetterID) []sinks.LetterID {
		for _, d := range r.dead {
			if slices.ContainsFunc(ids, func(id sinks.LetterID) bool { return id.Checkpoint == d.Checkpoint }) {
				ids = append(ids, d.ID())
			}
		}
		return ids
	}}},
	{"a dropped letter is not counted any more", "DeadLetterBox", mistake{drop: func(r *row, ids []sinks.LetterID) []sinks.LetterID {
		r.mark.Dead--
		return ids
	}}},
	{"Reconcile sees what is not there", "Reconcile", mistake{differs: []sinks.Difference{{What: "records"}}}},
	{"Audit begins at after", "Audit", mistake{audit: func(rows []sinks.Audit, after uint64) []sinks.Audit {
		return slices.DeleteFunc(slices.Clone(rows), func(a sinks.Audit) bool { return a.Seq < after })
	}}},
	{"audit rows lose the position", "Audit", mistake{store: func(r *row, _ *sinks.Step, _ *sinks.Mark) {
		for i := range r.audit {
			r.audit[i].Position = nil
		}
	}}},
	{"records are written before the mark, in another step", "Kill", mistake{read: writeEarly}},
	{"the mark is not in the backup", "StoreRollback", mistake{}},
	{"a broken store is permanent", "Outage", mistake{}},
	{"what was written says it was not", "LostAnswer", mistake{}},
	{"the newest owner but one is obeyed", "Random", mistake{check: func(stored sinks.Mark, fence uint64, prev sinks.Mark) sinks.Kind {
		if stored.Fence == fence+1 {
			fence++
		}
		return verdict(stored, fence, prev)
	}}},
	{"the tip is looked at before the step and not in it", "Owners", mistake{
		read: func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
			s.mu.Lock()
			stored := r.mark.Tip()
			s.mu.Unlock()
			if stored != st.Prev.Tip() {
				return nil, &sinks.Error{Kind: sinks.Moved}
			}
			return readAll(ctx, s, r, st)
		},
		check: func(sinks.Mark, uint64, sinks.Mark) sinks.Kind { return 0 },
	}},
	{"the mark goes back on Acquire", "StateRollback", mistake{acquire: func(m *sinks.Mark, id sinks.LaneID) {
		if m.Fence > 1 {
			*m = sinks.Mark{Fence: m.Fence, Chain: id.Genesis()}
		}
	}}},
}

// writeEarly writes records as they come and finds out afterwards that it must not.
func writeEarly(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
	for run, err := range st.Runs {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		for _, rec := range run.Block.All() {
			r.records = append(r.records, slices.Clone(rec))
		}
		s.mu.Unlock()
	}
	return nil, nil
}

// pinning pins the first batch of a step that has bad records, or what change makes
// of it.
func pinning(change func(*sinks.Step, *sinks.Partial)) func(context.Context, *shelf, *row, *sinks.Step) ([][]byte, error) {
	return func(ctx context.Context, s *shelf, r *row, st *sinks.Step) ([][]byte, error) {
		recs, err := readAll(ctx, s, r, st)
		if sinks.KindOf(err) == sinks.Poison && st.Prev.Partial == nil {
			p := &sinks.Partial{Batch: st.Batches[0].Batch}
			change(st, p)
			pin(s, r, p)
		}
		return recs, err
	}
}

func pin(s *shelf, r *row, p *sinks.Partial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mark.Partial = p
}

// half gives a harness the mistakes that are not the sink's own.
func half(name string, s *shelf, h Harness) Harness {
	switch name {
	case "the mark is not in the backup":
		h.Snapshot = func(testing.TB) func() {
			restore := s.snapshot(mistake{})
			return func() {
				marks := map[sinks.LaneID]sinks.Mark{}
				for id, r := range s.lanes {
					marks[id] = r.mark
				}
				restore()
				for id, m := range marks {
					s.lanes[id].mark = m
				}
			}
		}
	case "a broken store is permanent", "what was written says it was not":
		kind := map[string]sinks.Kind{"a broken store is permanent": sinks.Permanent}[name]
		if kind == 0 {
			kind = sinks.Transient
		}
		open := h.Open
		h.Open = func(t testing.TB) sinks.Sink { return &relabel{open(t), kind} }
	}
	return h
}

// A relabel is a sink that classifies a missing answer wrongly.
type relabel struct {
	sinks.Sink
	kind sinks.Kind
}

func (s *relabel) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, m, err := s.Sink.Acquire(ctx, id)
	return &relabelLane{l, s.kind}, m, err
}

type relabelLane struct {
	sinks.Lane
	kind sinks.Kind
}

func (l *relabelLane) Flush(ctx context.Context, st *sinks.Step) (sinks.Result, error) {
	res, err := l.Lane.Flush(ctx, st)
	if e, ok := errors.AsType[*sinks.Error](err); ok && errors.Is(err, errFault) {
		e.Kind = l.kind
	}
	return res, err
}

// TestPinned lets a sink pass that pins the first batch of a step before anything
// else, whatever becomes of the step.
func TestPinned(t *testing.T) {
	right := mistake{read: pinning(func(*sinks.Step, *sinks.Partial) {})}
	for _, c := range cases {
		if failures := recordCase(t, newShelf().harness(right), c); len(failures) > 0 {
			t.Errorf("pins before poison: %q", failures)
		}
		if failures := recordCase(t, harness(memory.Options{Pin: true}, asIs), c); len(failures) > 0 && c.without(map[need]bool{chunked: false}) == "" {
			t.Errorf("pins always: %q", failures)
		}
		if failures := recordCase(t, harness(memory.Options{Pin: true, Chunked: true}, asIs), c); len(failures) > 0 {
			t.Errorf("pins always, chunked: %q", failures)
		}
	}
}

// TestMistakes runs each broken sink through the case that is to find it, which must
// fail, name its rule and not panic; and the sink without a mistake through all.
func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			i := slices.IndexFunc(cases, func(c testCase) bool { return c.name == m.rejectedBy })
			s := newShelf()
			failures := recordCase(t, half(m.name, s, s.harness(m.mistake)), cases[i])
			if len(failures) == 0 {
				t.Fatalf("%s does not find it", m.rejectedBy)
			}
			if !strings.Contains(failures[0], cases[i].rule) || strings.Contains(strings.Join(failures, "\n"), "panic") {
				t.Errorf("%s: %q", m.rejectedBy, failures)
			}
			t.Log(failures[0])
		})
	}
	found := map[string]bool{}
	for _, m := range mistakes {
		found[m.rejectedBy] = true
	}
	for _, c := range cases {
		if !found[c.name] {
			t.Errorf("no broken sink is for the case %s", c.name)
		}
		if failures := recordCase(t, newShelf().harness(mistake{}), c); len(failures) > 0 {
			t.Errorf("a sink without a mistake: %q", failures)
		}
	}
}
