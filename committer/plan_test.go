package committer_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// lanes is a store filled by one source for several lanes: at position i*10 of
// checkpoint i each lane named in batches[i-1] had a batch.
func lanes(t *testing.T, batches ...map[string][]string) (*memory.Store, *fakeLog) {
	store, log := memory.NewStore(), newLog()
	c, err := committer.New(memory.Open(store, memory.Options{StepBytes: 8, Chunked: true}), sinkID, log, committer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := c.Open(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range batches {
		for _, name := range slices.Sorted(maps.Keys(b)) {
			log.add(sinkID+"/"+name, uint64(i+1), b[name]...)
		}
		c.Notify()
		if err := c.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return store, log
}

func readPlan(t *testing.T, store *memory.Store) (committer.Plan, error) {
	return committer.ReadPlan(t.Context(), memory.Open(store, memory.Options{}), sinkID)
}

func TestPlan(t *testing.T) {
	store, _ := lanes(t,
		map[string][]string{"a": {"1"}, "b": {"1"}, "c": {"1"}},
		map[string][]string{"a": {"2"}, "c": {"2"}},
		map[string][]string{"c": {"3"}},
		map[string][]string{"a": {"4"}},
	)
	p, err := readPlan(t, store)
	if err != nil {
		t.Fatal(err)
	}
	if string(p.Position) != "p1" || p.Checkpoint != 1 {
		t.Fatalf("resume at %q, checkpoint %d", p.Position, p.Checkpoint)
	}
	if got := fmt.Sprintf("%d", barriers(p)); got != "[2 3 4]" || string(p.Barriers[1].Position) != "p3" {
		t.Fatalf("barriers %v", p.Barriers)
	}
	covered := map[string]string{"a": "[2 4]", "b": "[]", "c": "[2 3]"}
	for _, l := range p.Lanes {
		var got []uint64
		for _, row := range l.Covered {
			got = append(got, row.Checkpoint)
		}
		if fmt.Sprint(got) != covered[l.Lane] {
			t.Errorf("lane %s covers %v, want %s", l.Lane, got, covered[l.Lane])
		}
	}
}

func barriers(p committer.Plan) (out []uint64) {
	for _, b := range p.Barriers {
		out = append(out, b.Checkpoint)
	}
	return out
}

func TestPlanOfNothing(t *testing.T) {
	p, err := readPlan(t, memory.NewStore())
	if err != nil || p.Position != nil || p.Barriers != nil || p.Lanes != nil {
		t.Fatalf("%+v, %v", p, err)
	}
	store, _ := lanes(t)
	if p, err = readPlan(t, store); err != nil || p.Position != nil || p.Barriers != nil || len(p.Lanes) != 3 {
		t.Fatalf("%+v, %v", p, err)
	}
}

func TestPlanEndsPartialBatches(t *testing.T) {
	store, _ := lanes(t, map[string][]string{"a": {"1"}, "b": {"1"}, "c": {"1"}})
	marks, err := memory.Open(store, memory.Options{}).Marks(t.Context(), sinkID)
	if err != nil {
		t.Fatal(err)
	}
	b := build(marks[1].Head(), 7, 3, "x", "y")
	marks[1].Partial = &sinks.Partial{Batch: b.Batch, Done: 1}
	p, err := committer.Recover(marks, nil)
	if err != nil || p.Checkpoint != 1 || len(p.Barriers) != 1 || p.Barriers[0].Checkpoint != 7 || string(p.Barriers[0].Position) != "p7" {
		t.Fatalf("%+v, %v", p, err)
	}
}

// chainOf makes the audit rows of a lane, one at each checkpoint.
func chainOf(lane string, checkpoints ...uint64) (sinks.LaneMark, []sinks.Audit) {
	id := sinks.LaneID{Sink: sinkID, Lane: lane}
	head := record.Head{Chain: id.Genesis()}
	var rows []sinks.Audit
	for _, c := range checkpoints {
		b := build(head, c, 3, lane)
		rows, head = append(rows, sinks.Audit{Batch: b.Batch}), b.Head()
	}
	m := sinks.Mark{Fence: 1, Seq: head.Seq, Chain: head.Chain, Checkpoint: head.Checkpoint, Position: head.Position}
	return sinks.LaneMark{LaneID: id, Mark: m}, rows
}

func TestPlanRefusals(t *testing.T) {
	a, rowsA := chainOf("a", 1, 2, 3, 4)
	b, rowsB := chainOf("b", 1)
	plan := func(rows []sinks.Audit, marks ...sinks.LaneMark) (committer.Plan, error) {
		return committer.Recover(marks, map[string][]sinks.Audit{"a": rows, "b": rowsB})
	}
	t.Run("rows that are pruned", func(t *testing.T) {
		for keep := range rowsA {
			_, err := plan(rowsA[len(rowsA)-keep:], a, b)
			switch {
			case keep < 4:
				wantErr(t, err, committer.ErrLedgerBehind, "orders/a", fmt.Sprintf("batch %d", 5-keep), "checkpoint 1")
			case err != nil:
				t.Fatal(err)
			}
		}
	})
	t.Run("to the start of the lane", func(t *testing.T) {
		empty, _ := chainOf("b")
		p, err := plan(rowsA, a, empty)
		if err != nil || p.Position != nil || len(p.Barriers) != 4 {
			t.Fatalf("%+v, %v", p, err)
		}
		if _, err := plan(rowsA[1:], a, empty); !errors.Is(err, committer.ErrLedgerBehind) {
			t.Fatal(err)
		}
	})
	t.Run("rows that do not lead to the mark", func(t *testing.T) {
		for i := 1; i < len(rowsA); i++ {
			rows := slices.Clone(rowsA)
			rows[i].Records++
			_, err := plan(rows, a, b)
			wantErr(t, err, committer.ErrReplayDiffers, "orders/a", fmt.Sprintf("batch %d", i+1))
			_, err = plan(slices.Delete(slices.Clone(rowsA), i, i+1), a, b)
			wantErr(t, err, committer.ErrReplayDiffers, "orders/a")
		}
	})
	t.Run("two positions", func(t *testing.T) {
		other, rowsC := chainOf("c", 1, 3)
		other.Position = []byte("elsewhere")
		_, err := committer.Recover([]sinks.LaneMark{a, b, other}, map[string][]sinks.Audit{"a": rowsA, "b": rowsB, "c": rowsC})
		wantErr(t, err, committer.ErrReplayDiffers, "checkpoint 3 has two positions")
	})
	t.Run("rows newer than the mark", func(t *testing.T) {
		old, _ := chainOf("a", 1, 2)
		p, err := plan(rowsA, old, b)
		if err != nil || len(p.Lanes[0].Covered) != 1 || len(p.Barriers) != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
	})
}

func TestReplay(t *testing.T) {
	_, rows := chainOf("a", 2, 4)
	feed := func(r *committer.Replay, recs ...string) {
		for _, rec := range recs {
			if err := r.Append([]byte(rec)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("same", func(t *testing.T) {
		r := committer.NewReplay("a", rows)
		for c := uint64(1); c <= 4; c++ {
			if r.Done() {
				t.Fatalf("done before checkpoint %d", c)
			}
			if c%2 == 0 {
				feed(r, "a")
			}
			if err := r.Seal(c, fmt.Appendf(nil, "p%d", c)); err != nil {
				t.Fatal(err)
			}
		}
		if !r.Done() {
			t.Fatal("not done")
		}
	})
	t.Run("an aborted checkpoint between", func(t *testing.T) {
		r := committer.NewReplay("a", rows)
		feed(r, "a")
		for c := uint64(1); c <= 2; c++ {
			if err := r.Seal(c, fmt.Appendf(nil, "p%d", c)); err != nil {
				t.Fatal(err)
			}
		}
	})
	differs := map[string]func(r *committer.Replay) error{
		"another record": func(r *committer.Replay) error { feed(r, "b"); return r.Seal(2, []byte("p2")) },
		"one more":       func(r *committer.Replay) error { feed(r, "a", ""); return r.Seal(2, []byte("p2")) },
		"one less":       func(r *committer.Replay) error { return r.Seal(2, []byte("p2")) },
		"too early": func(r *committer.Replay) error {
			feed(r, "a")
			if err := r.Seal(1, []byte("p1")); err != nil {
				return err
			}
			feed(r, "a")
			return r.Seal(2, []byte("p2"))
		},
		"barrier missed": func(r *committer.Replay) error { feed(r, "a"); return r.Seal(3, []byte("p3")) },
		"elsewhere":      func(r *committer.Replay) error { feed(r, "a"); return r.Seal(2, []byte("p3")) },
	}
	for name, f := range differs {
		t.Run(name, func(t *testing.T) {
			wantErr(t, f(committer.NewReplay("a", rows)), committer.ErrReplayDiffers, "lane a", "checkpoint")
		})
	}
	t.Run("many records", func(t *testing.T) {
		list := recs(1, 200_000)
		b := build(record.Head{}, 1, 1000, list...)
		r := committer.NewReplay("a", []sinks.Audit{{Batch: b.Batch}})
		feed(r, list...)
		if err := r.Seal(1, []byte("p1")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("too large", func(t *testing.T) {
		err := committer.NewReplay("a", rows).Append(make([]byte, record.MaxRecord+1))
		wantErr(t, err, record.ErrTooLarge, "lane a")
	})
}

func TestReplayAllocatesNothing(t *testing.T) {
	r, rec := committer.NewReplay("a", nil), make([]byte, 100)
	for range 10_000 {
		_ = r.Append(rec)
	}
	if n := testing.AllocsPerRun(10_000, func() { _ = r.Append(rec) }); n > 0.01 {
		t.Fatalf("%v allocations per record", n)
	}
}

// Recover by the plan: several lanes, no log, one source, a lane that lags, one that
// is ahead, one within a batch. Every record once.
func TestC059C063RecoverSeveralLanes(t *testing.T) {
	store, log := lanes(t,
		map[string][]string{"a": {"a1"}, "b": {"b1"}, "c": {"c1"}},
		map[string][]string{"a": {"a2"}, "c": {"c2"}},
		map[string][]string{"c": {"c3"}},
	)
	// Checkpoint 4 has all lanes; only two records of a are in when all is lost.
	for _, name := range []string{"a", "b", "c"} {
		log.add(sinkID+"/"+name, 4, name+"4-1", name+"4-2", name+"4-3")
	}
	sink := &faultySink{Sink: memory.Open(store, memory.Options{StepBytes: 10, Chunked: true})}
	sink.flush = func(_ int, s *sinks.Step) fault {
		if s.ID.Lane != "a" || s.Prev.Partial != nil {
			return fault{err: kind(sinks.Permanent)}
		}
		return fault{}
	}
	c, err := committer.New(sink, sinkID, log, committer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := c.Open(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Drain(t.Context()); err == nil {
		t.Fatal("nothing failed")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}

	source := [][]string{{"a1", "b1", "c1"}, {"a2", "c2"}, {"c3"}, {"a4-1", "b4-1", "c4-1", "a4-2", "b4-2", "c4-2", "a4-3", "b4-3", "c4-3"}}
	plan, err := readPlan(t, store)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(plan.Checkpoint, barriers(plan)) != "1 [2 3 4]" {
		t.Fatalf("plan %+v", plan)
	}
	log = newLog()
	sink.flush = nil
	c, err = committer.New(sink, sinkID, log, committer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, l := range plan.Lanes {
		if o, err := c.Open(t.Context(), l.Lane); err != nil || o.Outcome != committer.Resume {
			t.Fatalf("%v, %v", o.Outcome, err)
		}
	}
	for _, l := range plan.Lanes {
		r := committer.NewReplay(l.Lane, l.Covered)
		for _, barrier := range plan.Barriers {
			var mine []string
			for _, rec := range source[barrier.Checkpoint-1] {
				if rec[:1] == l.Lane {
					mine = append(mine, rec)
				}
			}
			if r.Done() {
				if len(mine) > 0 {
					log.add(sinkID+"/"+l.Lane, barrier.Checkpoint, mine...)
				}
				continue
			}
			for _, rec := range mine {
				if err := r.Append([]byte(rec)); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Seal(barrier.Checkpoint, barrier.Position); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, l := range plan.Lanes {
		var want, got []string
		for _, rec := range slices.Concat(source...) {
			if rec[:1] == l.Lane {
				want = append(want, rec)
			}
		}
		for _, rec := range store.Records(sinks.LaneID{Sink: sinkID, Lane: l.Lane}) {
			got = append(got, string(rec))
		}
		if !slices.Equal(got, want) {
			t.Errorf("lane %s shows %q, want %q", l.Lane, got, want)
		}
	}
}
