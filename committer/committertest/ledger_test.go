package committertest

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

func TestLedgers(t *testing.T) {
	memory := committer.NewMemoryLedger()
	t.Run("memory", func(t *testing.T) {
		Run(t, func(testing.TB) committer.Ledger { return memory })
	})
	dir := t.TempDir()
	t.Run("file", func(t *testing.T) {
		Run(t, func(t testing.TB) committer.Ledger {
			l, err := committer.NewFileLedger(dir)
			if err != nil {
				t.Fatal(err)
			}
			return l
		})
	})
}

// A book is a ledger in few lines, with a place for every mistake.
type book struct {
	mu    *sync.Mutex
	marks map[sinks.LaneID]sinks.Mark
	mistake
}

type mistake struct {
	raise func(m *sinks.Mark, id sinks.LaneID)
	check func(now, prev, next sinks.Mark) sinks.Kind
	store func(m *sinks.Mark)
	key   func(sinks.LaneID) sinks.LaneID
	fail  func(sinks.Kind) sinks.Kind
	// looseRaise and looseSwap look at the mark and store it in two steps.
	looseRaise, looseSwap bool
	// forgets begins anew when it is opened again.
	forgets bool
}

func (b *book) get(id sinks.LaneID) (sinks.LaneID, sinks.Mark) {
	if b.key != nil {
		id = b.key(id)
	}
	if m, ok := b.marks[id]; ok {
		return id, m
	}
	return id, sinks.Mark{Chain: id.Genesis()}
}

func (b *book) wrong(k sinks.Kind, id sinks.LaneID) error {
	if b.fail != nil {
		k = b.fail(k)
	}
	return &sinks.Error{Kind: k, Op: "ledger", Lane: id}
}

func (b *book) Raise(ctx context.Context, id sinks.LaneID) (sinks.Mark, error) {
	if ctx.Err() != nil {
		return sinks.Mark{}, b.wrong(sinks.Cancelled, id)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key, m := b.get(id)
	m.Fence++
	if b.looseRaise {
		b.pause()
	}
	if b.raise != nil {
		b.raise(&m, id)
	}
	b.marks[key] = m
	return m, nil
}

func (b *book) Load(_ context.Context, id sinks.LaneID) (sinks.Mark, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, m := b.get(id)
	return m, nil
}

func (b *book) Swap(ctx context.Context, id sinks.LaneID, prev, next sinks.Mark) error {
	if ctx.Err() != nil {
		return b.wrong(sinks.Cancelled, id)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key, now := b.get(id)
	check := verdict
	if b.check != nil {
		check = b.check
	}
	k := check(now, prev, next)
	if b.looseSwap {
		b.pause()
	}
	if k != 0 {
		return b.wrong(k, id)
	}
	if b.store != nil {
		b.store(&next)
	}
	b.marks[key] = next
	return nil
}

// pause lets others come in between.
func (b *book) pause() {
	b.mu.Unlock()
	for range 1000 {
		runtime.Gosched()
	}
	b.mu.Lock()
}

func verdict(now, prev, next sinks.Mark) sinks.Kind {
	switch {
	case now.Fence != next.Fence:
		return sinks.Fenced
	case now.Tip() != prev.Tip():
		return sinks.Moved
	}
	return 0
}

var mistakes = []struct {
	name, rejectedBy string
	mistake
}{
	{"Raise does not raise", "Raise", mistake{raise: func(m *sinks.Mark, _ sinks.LaneID) { m.Fence = 1 }}},
	{"Raise begins anew", "Raise", mistake{raise: func(m *sinks.Mark, id sinks.LaneID) { *m = sinks.Mark{Fence: m.Fence, Chain: id.Genesis()} }}},
	{"more than the tip is compared", "Swap", mistake{check: func(now, prev, next sinks.Mark) sinks.Kind {
		if now.Checkpoint != prev.Checkpoint {
			return sinks.Moved
		}
		return verdict(now, prev, next)
	}}},
	{"the tip is not compared", "Moved", mistake{check: func(now, _, next sinks.Mark) sinks.Kind { return verdict(now, now, next) }}},
	{"an unfinished batch is not part of the tip", "Moved", mistake{check: func(now, prev, next sinks.Mark) sinks.Kind {
		prev.Partial = nil
		return verdict(now, prev, next)
	}}},
	{"the fence is not compared", "Fenced", mistake{check: func(now, prev, next sinks.Mark) sinks.Kind {
		next.Fence = now.Fence
		return verdict(now, prev, next)
	}}},
	{"a higher fence is taken", "Fenced", mistake{check: func(now, prev, next sinks.Mark) sinks.Kind {
		if next.Fence > now.Fence {
			next.Fence = now.Fence
		}
		return verdict(now, prev, next)
	}}},
	{"the tip is looked at before the fence", "Fenced", mistake{check: func(now, prev, next sinks.Mark) sinks.Kind {
		if now.Tip() != prev.Tip() {
			return sinks.Moved
		}
		return verdict(now, prev, next)
	}}},
	{"numbers are stored as doubles", "Fields", mistake{store: func(m *sinks.Mark) { m.Checkpoint = uint64(float64(m.Checkpoint)) }}},
	{"positions are stored as text", "Fields", mistake{store: func(m *sinks.Mark) { m.Position = []byte(strings.ToValidUTF8(string(m.Position), "?")) }}},
	{"nothing is durable", "Reopen", mistake{forgets: true}},
	{"lanes are not told apart by case", "Lanes", mistake{key: func(id sinks.LaneID) sinks.LaneID {
		id.Lane = strings.ToLower(id.Lane)
		return id
	}}},
	{"comparing and swapping are two steps", "RaceOfSwaps", mistake{looseSwap: true}},
	{"reading and raising are two steps", "RaceOfOwners", mistake{looseRaise: true}},
	{"the end of a context is permanent", "Cancelled", mistake{fail: func(k sinks.Kind) sinks.Kind {
		if k == sinks.Cancelled {
			return sinks.Permanent
		}
		return k
	}}},
}

func (m mistake) open() func(testing.TB) committer.Ledger {
	b := &book{mu: new(sync.Mutex), marks: map[sinks.LaneID]sinks.Mark{}, mistake: m}
	return func(testing.TB) committer.Ledger {
		if m.forgets {
			b = &book{mu: new(sync.Mutex), marks: map[sinks.LaneID]sinks.Mark{}, mistake: m}
		}
		return b
	}
}

// TestMistakes runs each broken ledger through the case that is to find it.
func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			i := slices.IndexFunc(cases, func(c testCase) bool { return c.name == m.rejectedBy })
			if err := cases[i].check(t, m.open()); err == nil || !strings.Contains(err.Error(), cases[i].rule) {
				t.Errorf("%s says %v", m.rejectedBy, err)
			}
		})
	}
	found := map[string]bool{}
	for _, m := range mistakes {
		found[m.rejectedBy] = true
	}
	for _, c := range cases {
		if !found[c.name] {
			t.Errorf("no broken ledger is for the case %s", c.name)
		}
		if err := c.check(t, mistake{}.open()); err != nil {
			t.Errorf("a ledger without a mistake: %v", err)
		}
	}
}
