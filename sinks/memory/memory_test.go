package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

var id = sinks.LaneID{Sink: "s", Lane: "l"}

// batch makes the batch that follows prev.
func batch(prev record.Head, recs ...string) (record.Batch, record.Block) {
	var blocks [][]byte
	for _, r := range recs {
		blocks = append(blocks, []byte(r))
	}
	block := record.BlockOf(blocks...)
	h := record.NewHasher()
	h.Add(block)
	return record.Batch{
		Seq: prev.Seq + 1, Checkpoint: prev.Checkpoint + 1, Prev: prev.Chain,
		Records: h.Records(), Bytes: h.Bytes(), Digest: h.Sum(), Position: fmt.Appendf(nil, "p%d", prev.Seq+1),
	}, block
}

// stepOn is the step that puts a batch of recs on m.
func stepOn(m sinks.Mark, recs ...string) *sinks.Step {
	b, block := batch(m.Head(), recs...)
	h := b.Head()
	next := m
	next.Seq, next.Chain, next.Checkpoint, next.Position = h.Seq, h.Chain, h.Checkpoint, h.Position
	next.Records += b.Records
	return &sinks.Step{
		ID: id, Prev: m, Next: next, Batches: []sinks.Audit{{Batch: b}}, Records: int64(b.Records), Bytes: int64(b.Bytes),
		Runs: func(yield func(sinks.Run, error) bool) { yield(sinks.Run{Block: block}, nil) },
	}
}

func acquire(t *testing.T, s sinks.Sink) (sinks.Lane, sinks.Mark) {
	t.Helper()
	l, m, err := s.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return l, m
}

func flush(t *testing.T, l sinks.Lane, step *sinks.Step) sinks.Mark {
	t.Helper()
	if _, err := l.Flush(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	m, err := l.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func shows(t *testing.T, s *memory.Store, want ...string) {
	t.Helper()
	var got []string
	for _, r := range s.Records(id) {
		got = append(got, string(r))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the store shows %q, want %q", got, want)
	}
}

func wantKind(t *testing.T, err error, k sinks.Kind) {
	t.Helper()
	if sinks.KindOf(err) != k {
		t.Fatalf("error %v, want kind %v", err, k)
	}
}

func TestNewLane(t *testing.T) {
	l, m := acquire(t, memory.Open(memory.NewStore(), memory.Options{}))
	if m.Fence != 1 || m.Seq != 0 || m.Chain != id.Genesis() || m.Partial != nil {
		t.Fatalf("mark %+v", m)
	}
	if again, err := l.Mark(t.Context()); err != nil || again.Tip() != m.Tip() {
		t.Fatalf("%+v, %v", again, err)
	}
}

func TestStepAndReplay(t *testing.T) {
	store := memory.NewStore()
	l, m := acquire(t, memory.Open(store, memory.Options{}))
	step := stepOn(m, "a", "", "c")
	m = flush(t, l, step)
	if m.Tip() != step.Next.Tip() || m.Records != 3 || m.UpdatedAt.IsZero() {
		t.Fatalf("mark %+v", m)
	}
	_, err := l.Flush(t.Context(), step)
	wantKind(t, err, sinks.Moved)
	shows(t, store, "a", "", "c")
	flush(t, l, stepOn(m, "d"))
	shows(t, store, "a", "", "c", "d")
}

func TestFence(t *testing.T) {
	store := memory.NewStore()
	sink := memory.Open(store, memory.Options{})
	old, m := acquire(t, sink)
	now, m2 := acquire(t, memory.Open(store, memory.Options{}))
	if m2.Fence != m.Fence+1 {
		t.Fatalf("fence %d after %d", m2.Fence, m.Fence)
	}
	_, err := old.Flush(t.Context(), stepOn(m, "a"))
	wantKind(t, err, sinks.Fenced)
	_, err = old.Mark(t.Context())
	wantKind(t, err, sinks.Fenced)
	m = flush(t, now, stepOn(m2, "b"))
	_, err = old.Flush(t.Context(), stepOn(m2, "a")) // both differ
	wantKind(t, err, sinks.Fenced)
	if err := errors.Join(old.Close(), now.Close(), sink.Close()); err != nil {
		t.Fatal(err)
	}
	if _, again := acquire(t, sink); again.Tip() != m.Tip() {
		t.Fatalf("mark %+v after closing", again)
	}
	shows(t, store, "b")
}

func TestOneOfManyOwnersWins(t *testing.T) {
	store := memory.NewStore()
	sink := memory.Open(store, memory.Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				l, m, err := sink.Acquire(context.Background(), id)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = l.Flush(context.Background(), stepOn(m, fmt.Sprint(m.Seq)))
				if k := sinks.KindOf(err); err != nil && k != sinks.Fenced {
					t.Errorf("round %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	for i, rec := range store.Records(id) {
		if string(rec) != fmt.Sprint(i) {
			t.Fatalf("record %d is %s", i, rec)
		}
	}
}

func TestPartialAndAudit(t *testing.T) {
	store := memory.NewStore()
	sink := memory.Open(store, memory.Options{StepBytes: 1, Chunked: true})
	l, m := acquire(t, sink)
	b, block := batch(m.Head(), "a", "b", "c")
	part := func(m sinks.Mark, from, to int, end bool) *sinks.Step {
		next := m
		next.Records += uint64(to - from)
		if end {
			h := b.Head()
			next.Seq, next.Chain, next.Checkpoint, next.Position, next.Partial = h.Seq, h.Chain, h.Checkpoint, h.Position, nil
		} else {
			next.Partial = &sinks.Partial{Batch: b, Done: uint64(to)}
		}
		piece := block.Slice(from, to)
		return &sinks.Step{
			ID: id, Prev: m, Next: next, Batches: []sinks.Audit{{Batch: b}}, Records: int64(to - from), Bytes: int64(len(piece.Payload())),
			Runs: func(yield func(sinks.Run, error) bool) { yield(sinks.Run{First: uint64(from), Block: piece}, nil) },
		}
	}
	m1 := flush(t, l, part(m, 0, 2, false))
	if m1.Partial == nil || m1.Partial.Done != 2 || m1.Seq != 0 {
		t.Fatalf("mark %+v", m1)
	}
	shows(t, store, "a", "b")
	if rows := audit(t, sink, 0); len(rows) != 0 {
		t.Fatalf("audit rows %v of an unfinished batch", rows)
	}
	_, err := l.Flush(t.Context(), part(m, 0, 2, false))
	wantKind(t, err, sinks.Moved)
	m2 := flush(t, l, part(m1, 2, 3, true))
	shows(t, store, "a", "b", "c")
	flush(t, l, stepOn(m2, "d"))
	if rows := audit(t, sink, 0); len(rows) != 2 || rows[0].Chain() != b.Chain() || rows[0].FlushedAt.IsZero() {
		t.Fatalf("audit rows %+v", rows)
	}
	if rows := audit(t, sink, 1); len(rows) != 1 || rows[0].Seq != 2 {
		t.Fatalf("audit rows %+v", rows)
	}
}

func audit(t *testing.T, s *memory.Sink, after uint64) (rows []sinks.Audit) {
	t.Helper()
	for row, err := range s.Audit(t.Context(), id, after) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	for range s.Audit(t.Context(), id, after) {
		break // may be left early
	}
	return rows
}

func bad(rec []byte) *sinks.Reject {
	if strings.HasPrefix(string(rec), "bad") {
		return &sinks.Reject{Code: "X", Reason: "bad"}
	}
	return nil
}

func TestPoisonWritesNothing(t *testing.T) {
	store := memory.NewStore()
	l, m := acquire(t, memory.Open(store, memory.Options{Reject: bad}))
	_, err := l.Flush(t.Context(), stepOn(m, "a", "bad1", "b", "bad2"))
	wantKind(t, err, sinks.Poison)
	e, _ := errors.AsType[*sinks.Error](err)
	if len(e.Bad) != 2 || e.Bad[0].Number != 1 || e.Bad[1].Number != 3 || e.Bad[0].Code != "X" {
		t.Fatalf("bad %+v", e.Bad)
	}
	shows(t, store)
	if len(store.DeadLetters(id)) != 0 {
		t.Fatal("dead letters were written")
	}
}

func TestTolerate(t *testing.T) {
	store := memory.NewStore()
	l, m := acquire(t, memory.Open(store, memory.Options{Reject: bad, Tolerate: true}))
	step := stepOn(m, "a", "bad1", "b", "bad2")
	step.Tolerate = 1
	_, err := l.Flush(t.Context(), step)
	wantKind(t, err, sinks.Poison)
	shows(t, store)
	step.Tolerate = 2
	res, err := l.Flush(t.Context(), step)
	if err != nil || len(res.Rejected) != 2 || res.Rejected[1].Number != 3 {
		t.Fatalf("%+v, %v", res, err)
	}
	shows(t, store, "a", "b")
	now, err := l.Mark(t.Context())
	if err != nil || now.Records != 2 || now.Dead != 2 || now.Tip() != step.Next.Tip() {
		t.Fatalf("%+v, %v", now, err)
	}
	dead := store.DeadLetters(id)
	if len(dead) != 2 || string(dead[0].Record) != "bad1" || dead[0].Number != 1 || dead[0].Checkpoint != 1 || dead[0].Seq != 1 {
		t.Fatalf("%+v", dead)
	}
}

// The store refuses steps that do not add up.
func TestEngineIsHeldToTheContract(t *testing.T) {
	store := memory.NewStore()
	l, m := acquire(t, memory.Open(store, memory.Options{}))
	broken := map[string]func(*sinks.Step){
		"records":    func(s *sinks.Step) { s.Records++ },
		"bytes":      func(s *sinks.Step) { s.Bytes-- },
		"mark":       func(s *sinks.Step) { s.Next.Records++ },
		"dead":       func(s *sinks.Step) { s.Next.Dead++ },
		"no batches": func(s *sinks.Step) { s.Batches = nil },
		"partial": func(s *sinks.Step) {
			s.Next.Partial = &sinks.Partial{Batch: record.Batch{Seq: 9}, Done: 1}
		},
	}
	for name, f := range broken {
		t.Run(name, func(t *testing.T) {
			step := stepOn(m, "a")
			f(step)
			_, err := l.Flush(t.Context(), step)
			wantKind(t, err, sinks.Permanent)
			shows(t, store)
		})
	}
}

func TestErrorOfRunsIsReturnedAsItIs(t *testing.T) {
	store := memory.NewStore()
	l, m := acquire(t, memory.Open(store, memory.Options{}))
	step, cause := stepOn(m, "a"), errors.New("disk")
	good := step.Runs
	step.Runs = func(yield func(sinks.Run, error) bool) {
		good(func(r sinks.Run, err error) bool { return yield(r, err) && yield(sinks.Run{}, cause) })
	}
	if _, err := l.Flush(t.Context(), step); err != cause {
		t.Fatalf("error %v", err)
	}
	shows(t, store)
}

func TestNothingIsKept(t *testing.T) {
	store := memory.NewStore()
	l, m := acquire(t, memory.Open(store, memory.Options{}))
	step := stepOn(m, "abc")
	flush(t, l, step)
	for run := range step.Runs {
		copy(run.Block.Payload(), "xyz")
	}
	shows(t, store, "abc")
}

func TestSnapshotAndRestore(t *testing.T) {
	store := memory.NewStore()
	sink := memory.Open(store, memory.Options{})
	l, m := acquire(t, sink)
	empty := store.Snapshot()
	m = flush(t, l, stepOn(m, "a"))
	one := store.Snapshot()
	flush(t, l, stepOn(m, "b"))

	store.Restore(one, true) // handles go on
	shows(t, store, "a")
	flush(t, l, stepOn(m, "c"))
	shows(t, store, "a", "c")
	store.Restore(one, false)
	shows(t, store, "a")

	if _, again := acquire(t, sink); again.Tip() != m.Tip() {
		t.Fatalf("mark %+v", again)
	}
	store.Restore(empty, false)
	shows(t, store)
	store.Restore(memory.NewStore().Snapshot(), true)
	if m, err := l.Mark(t.Context()); err != nil || m.Tip() != id.Genesis() {
		t.Fatalf("%+v, %v", m, err)
	}
}

func TestDropLedgerKeepsRecords(t *testing.T) {
	store := memory.NewStore()
	sink := memory.Open(store, memory.Options{})
	l, m := acquire(t, sink)
	flush(t, l, stepOn(m, "a"))
	store.DropLedger()
	shows(t, store, "a")
	if marks, err := sink.Marks(t.Context(), "s"); len(marks) != 0 || err != nil {
		t.Fatal(marks, err)
	}
	if _, m := acquire(t, sink); m.Seq != 0 || m.Chain != id.Genesis() {
		t.Fatalf("mark %+v", m)
	}
}

func TestMarksAreOrdered(t *testing.T) {
	sink := memory.Open(memory.NewStore(), memory.Options{})
	for _, id := range []sinks.LaneID{{Sink: "s", Lane: "b"}, {Sink: "other", Lane: "x"}, {Sink: "s", Lane: "a"}} {
		if _, _, err := sink.Acquire(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	marks, err := sink.Marks(t.Context(), "s")
	if err != nil || len(marks) != 2 || marks[0].Lane != "a" || marks[1].Lane != "b" {
		t.Fatalf("%+v, %v", marks, err)
	}
}

func TestBadNamesAndEndedContexts(t *testing.T) {
	sink := memory.Open(memory.NewStore(), memory.Options{Format: "f"})
	if info := sink.Info(); info.Format != "f" || info.Guarantee != sinks.ExactlyOnce {
		t.Fatalf("%+v", info)
	}
	_, _, err := sink.Acquire(t.Context(), sinks.LaneID{Sink: "s", Lane: "no/lane"})
	wantKind(t, err, sinks.Permanent)
	l, m := acquire(t, sink)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = sink.Acquire(ctx, id)
	wantKind(t, err, sinks.Cancelled)
	_, err = l.Flush(ctx, stepOn(m, "a"))
	wantKind(t, err, sinks.Cancelled)
	_, err = l.Mark(ctx)
	wantKind(t, err, sinks.Cancelled)
}
