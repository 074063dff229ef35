package committertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// Run holds the ledger to the contract, one subtest for each case. open opens the
// ledger once more on the same marks, as another process would. Each case has a
// sink id that no other run had.
func Run(t *testing.T, open func(t testing.TB) committer.Ledger) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := c.check(t, open); err != nil {
				t.Error(err)
			}
		})
	}
}

// A testCase is one rule and how to see that it is kept.
type testCase struct {
	name, rule string
	run        func(*env) error
}

func (c testCase) check(t testing.TB, open func(t testing.TB) committer.Ledger) error {
	sink := "t-" + strings.ToLower(rand.Text()[:12])
	e := &env{
		ctx: t.Context(), Ledger: open(t), again: func() committer.Ledger { return open(t) },
		id: sinks.LaneID{Sink: sink, Lane: "main"},
	}
	if err := c.run(e); err != nil {
		return fmt.Errorf("%s: %w\nthe rule: %s", c.name, err, c.rule)
	}
	return nil
}

// An env is one run of one case.
type env struct {
	committer.Ledger
	ctx   context.Context
	again func() committer.Ledger
	id    sinks.LaneID
}

var cases = []testCase{
	{"Raise", "Raise raises the fence and returns the mark, which it leaves as it is but for that; a lane never seen has Mark{Chain: id.Genesis()}", raise},
	{"Swap", "Swap stores next if the stored mark has the fence of next and the tip of prev", swap},
	{"Moved", "Swap on another tip is Moved and changes nothing", moved},
	{"Fenced", "Swap under another fence is Fenced, also if the tip differs, and changes nothing", fenced},
	{"Fields", "a mark comes back as it was stored: position bytes up to record.MaxPosition, numbers up to 2^63-1, an unfinished batch", fields},
	{"Reopen", "Raise and Swap are durable on return", reopen},
	{"Lanes", "lanes are apart, whatever their names", lanes},
	{"RaceOfOwners", "of owners that raise at the same time each gets a fence of its own", raceOfOwners},
	{"RaceOfSwaps", "of swaps on the same tip at the same time exactly one takes place", raceOfSwaps},
	{"Cancelled", "a call whose context has ended is Cancelled and changes nothing, or does its work", cancelled},
}

// next is a mark after m.
func next(m sinks.Mark, change ...func(*sinks.Mark)) sinks.Mark {
	b := record.Batch{Seq: m.Seq + 1, Checkpoint: m.Checkpoint + 1, Prev: m.Chain, Records: 3, Position: fmt.Appendf(nil, "at %d", m.Seq+1)}
	h := b.Head()
	m.Seq, m.Chain, m.Checkpoint, m.Position, m.Records, m.Partial = h.Seq, h.Chain, h.Checkpoint, h.Position, m.Records+3, nil
	for _, f := range change {
		f(&m)
	}
	return m
}

// stored wants the ledger, and the ledger opened again, to hold m.
func (e *env) stored(m sinks.Mark) error {
	for what, l := range map[string]committer.Ledger{"the ledger": e.Ledger, "the ledger opened again": e.again()} {
		got, err := l.Load(e.ctx, e.id)
		if err != nil {
			return fmt.Errorf("load: %w", err)
		}
		if why := differs(m, got); why != "" {
			return fmt.Errorf("%s: %s", what, why)
		}
	}
	return nil
}

// differs says in what two marks differ, the time apart.
func differs(want, got sinks.Mark) string {
	show := func(m sinks.Mark) string {
		s := fmt.Sprintf("%d %d %s %d %x %d %d", m.Fence, m.Seq, m.Chain, m.Checkpoint, m.Position, m.Records, m.Dead)
		if m.Partial != nil {
			s += fmt.Sprintf(" %+v %d %d", m.Partial.Batch, m.Partial.Done, m.Partial.Dead)
		}
		return s
	}
	if w, g := show(want), show(got); w != g {
		return fmt.Sprintf("the mark is %.400s, want %.400s", g, w)
	}
	return ""
}

func raise(e *env) error {
	want := sinks.Mark{Chain: e.id.Genesis()}
	for i := range 4 {
		m, err := e.Raise(e.ctx, e.id)
		if err != nil {
			return fmt.Errorf("raise: %w", err)
		}
		if m.Fence <= want.Fence {
			return fmt.Errorf("fence %d was raised to %d", want.Fence, m.Fence)
		}
		want.Fence = m.Fence
		if err := e.stored(want); err != nil {
			return fmt.Errorf("after raise %d: %w", i+1, err)
		}
		if why := differs(want, m); why != "" {
			return fmt.Errorf("raise %d: %s", i+1, why)
		}
		prev := want
		want = next(want)
		if err := e.Swap(e.ctx, e.id, prev, want); err != nil {
			return fmt.Errorf("swap: %w", err)
		}
	}
	return nil
}

// held raises the fence and stores n marks.
func (e *env) held(n int) (sinks.Mark, error) {
	m, err := e.Raise(e.ctx, e.id)
	for i := 0; i < n && err == nil; i++ {
		prev := m
		m = next(m)
		err = e.Swap(e.ctx, e.id, prev, m)
	}
	return m, err
}

func swap(e *env) error {
	m, err := e.held(3)
	if err != nil {
		return err
	}
	prev := m
	prev.Fence, prev.Checkpoint, prev.Position, prev.UpdatedAt = 0, 0, nil, prev.UpdatedAt.AddDate(1, 0, 0)
	m = next(m)
	if err := e.Swap(e.ctx, e.id, prev, m); err != nil {
		return fmt.Errorf("only the tip of prev is compared: %w", err)
	}
	return e.stored(m)
}

// refused wants a swap to be refused and to change nothing.
func (e *env) refused(prev, next, stored sinks.Mark, kind sinks.Kind, why string) error {
	err := e.Swap(e.ctx, e.id, prev, next)
	if sinks.KindOf(err) != kind {
		return fmt.Errorf("swap %s: %v, want %s", why, err, kind)
	}
	if err := e.stored(stored); err != nil {
		return fmt.Errorf("after a swap %s that was refused: %w", why, err)
	}
	return nil
}

func moved(e *env) error {
	first, err := e.Raise(e.ctx, e.id)
	if err != nil {
		return err
	}
	m := next(first)
	if err := e.Swap(e.ctx, e.id, first, m); err != nil {
		return err
	}
	other := m
	other.Chain[3] ^= 1
	part := m
	part.Partial = &sinks.Partial{Batch: record.Batch{Seq: 2, Prev: m.Chain, Records: 9}, Done: 4}
	return errors.Join(
		e.refused(first, m, m, sinks.Moved, "that took place"),
		e.refused(other, next(other), m, sinks.Moved, "on other contents"),
		e.refused(part, next(m), m, sinks.Moved, "on a part of the next batch"))
}

func fenced(e *env) error {
	old, err := e.held(1)
	if err != nil {
		return err
	}
	now, err := e.Raise(e.ctx, e.id)
	if err != nil {
		return err
	}
	higher := next(now)
	higher.Fence++
	return errors.Join(
		e.refused(old, next(old), now, sinks.Fenced, "of a former owner"),
		e.refused(next(old), next(next(old)), now, sinks.Fenced, "of a former owner on another tip"),
		e.refused(now, higher, now, sinks.Fenced, "under a fence that nobody has"))
}

func fields(e *env) error {
	m, err := e.Raise(e.ctx, e.id)
	if err != nil {
		return err
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	part := record.Batch{
		Seq: 1, Checkpoint: math.MaxInt64, Records: 1 << 60, Bytes: math.MaxInt64, Digest: record.Digest{1, 0xff},
		Position: every, Format: "a\x00b", SealedAt: math.MinInt64,
	}
	for i, change := range []func(*sinks.Mark){
		func(m *sinks.Mark) { m.Position = every },
		func(m *sinks.Mark) { m.Position = nil },
		func(m *sinks.Mark) { m.Position = bytes.Repeat([]byte{0xff, 0}, record.MaxPosition/2) },
		func(m *sinks.Mark) { m.Checkpoint, m.Records, m.Dead = 1<<53+1, math.MaxInt64, 1<<62+1 },
		func(m *sinks.Mark) {
			m.Partial = &sinks.Partial{Batch: part, Done: 1<<59 + 1, Dead: []uint64{0, 1<<53 + 1}}
		},
		func(m *sinks.Mark) { m.Partial = nil },
	} {
		prev := m
		m = next(m, change)
		if err := e.Swap(e.ctx, e.id, prev, m); err != nil {
			return fmt.Errorf("swap %d: %w", i, err)
		}
		if err := e.stored(m); err != nil {
			return fmt.Errorf("swap %d: %w", i, err)
		}
	}
	return nil
}

func reopen(e *env) error {
	last := uint64(0)
	for range 3 {
		e.Ledger = e.again()
		m, err := e.held(2)
		if err != nil {
			return err
		}
		if m.Fence <= last {
			return fmt.Errorf("fence %d was raised to %d by the ledger opened again", last, m.Fence)
		}
		last = m.Fence
		if err := e.stored(m); err != nil {
			return err
		}
	}
	return nil
}

func lanes(e *env) error {
	sink := e.id.Sink
	var ids []sinks.LaneID
	for _, lane := range []string{"a", "A", "a.b", "a-b", "a-", "0", "00", "a.json", strings.Repeat("x", sinks.MaxName), strings.Repeat("x", sinks.MaxName-1)} {
		ids = append(ids, sinks.LaneID{Sink: sink, Lane: lane})
	}
	ids = append(ids, sinks.LaneID{Sink: sink + "-a", Lane: "a"}, sinks.LaneID{Sink: sink + "-a", Lane: "b"})
	want := map[sinks.LaneID]sinks.Mark{}
	for i, id := range ids {
		e.id = id
		m, err := e.held(i)
		if err != nil {
			return fmt.Errorf("lane %s: %w", id, err)
		}
		want[id] = m
	}
	for _, e.id = range ids {
		if err := e.stored(want[e.id]); err != nil {
			return fmt.Errorf("lane %s: %w", e.id, err)
		}
	}
	return nil
}

// rivals is how many there are in a race.
const rivals = 8

// race calls f at the same time, each on a ledger opened for it, and returns what
// went wrong; a refusal because somebody else was faster is not.
func (e *env) race(f func(l committer.Ledger, i int) error) error {
	errs := make([]error, rivals)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range rivals {
		l := e.again()
		wg.Go(func() {
			<-start
			switch err := f(l, i); sinks.KindOf(err) {
			case 0, sinks.Transient, sinks.Ambiguous, sinks.Moved:
			default:
				errs[i] = err
			}
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

func raceOfOwners(e *env) error {
	fences := make([]uint64, rivals)
	err := e.race(func(l committer.Ledger, i int) error {
		m, err := l.Raise(e.ctx, e.id)
		if err == nil {
			fences[i] = m.Fence
		}
		return err
	})
	seen := map[uint64]bool{0: true}
	for _, fence := range fences {
		if fence != 0 && seen[fence] {
			return fmt.Errorf("two owners got fence %d", fence)
		}
		seen[fence] = true
	}
	return err
}

func raceOfSwaps(e *env) error {
	for range 10 {
		m, err := e.held(0)
		if err != nil {
			return err
		}
		done := make([]bool, rivals)
		nexts := make([]sinks.Mark, rivals)
		for i := range nexts {
			nexts[i] = next(m, func(n *sinks.Mark) { n.Position, n.Chain[0] = []byte{byte(i)}, byte(i) })
		}
		err = e.race(func(l committer.Ledger, i int) error {
			err := l.Swap(e.ctx, e.id, m, nexts[i])
			done[i] = err == nil
			return err
		})
		if err != nil {
			return err
		}
		winners := 0
		for i := range done {
			if done[i] {
				winners++
				if err := e.stored(nexts[i]); err != nil {
					return fmt.Errorf("a swap took place: %w", err)
				}
			}
		}
		if winners > 1 {
			return fmt.Errorf("%d swaps on the same tip took place", winners)
		}
	}
	return nil
}

func cancelled(e *env) error {
	m, err := e.held(1)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	n := next(m)
	switch err := e.Swap(ctx, e.id, m, n); sinks.KindOf(err) {
	case 0:
		m = n
	case sinks.Cancelled:
	default:
		return fmt.Errorf("swap with an ended context: %w", err)
	}
	if err := e.stored(m); err != nil {
		return fmt.Errorf("after a swap with an ended context: %w", err)
	}
	if _, err := e.Load(ctx, e.id); err != nil && sinks.KindOf(err) != sinks.Cancelled {
		return fmt.Errorf("load with an ended context: %w", err)
	}
	if _, err := e.Raise(ctx, e.id); err != nil && sinks.KindOf(err) != sinks.Cancelled {
		return fmt.Errorf("raise with an ended context: %w", err)
	}
	return nil
}
