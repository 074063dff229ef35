package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/committer"
)

// TestStatefulCrashes: two sources, a running count per key, lanes that change
// from run to run, and a run that ends at a random record, 40 times. Outputs lose
// notices, seals fail now and then.
func TestStatefulCrashes(t *testing.T) {
	a, b := numbers("a", 2000, 11), numbers("b", 1500, 17)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("C045 C046 C059 C060 C069 seed=", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			store, storage := newFakeStore(), &checkpoint.Memory{}
			store.failDone = func(uint64) error { return sometimes(rng, 5) }
			store.failSeal = func(uint64) error { return sometimes(rng, 12) }
			lanes := []int{1, 4, 2}
			for cycle := 0; ; cycle++ {
				left := rng.IntN(300)
				if cycle >= 40 {
					left = 1 << 30
					store.failDone, store.failSeal = nil, nil
				}
				p := &Pipeline{
					Sources: []Input{
						{Name: "a", Source: &brokenSource{Source: input("a", a).Source, left: left}}, input("b", b),
					},
					Stages: []Stage{Keyed("count", MemoryState{}, count)}, Outputs: []Sink{store.sink("out")},
					Lanes: lanes[cycle%3], Route: ByField("key"), Storage: storage,
					Checkpoints: checkpoint.Options{Records: uint64(20 + rng.IntN(200)), MinPause: 0}, Logger: quiet(),
				}
				_, err := p.Run(t.Context())
				if err == nil {
					break
				}
				if !errors.Is(err, errCrash) && !errors.Is(err, errSometimes) {
					t.Fatalf("cycle %d: %v", cycle, err)
				}
			}
			checkCountsByKey(t, store, a, b)
		})
	}
}

// checkCountsByKey is checkCounts over lanes, in which a key may have moved.
func checkCountsByKey(t *testing.T, store *fakeStore, inputs ...[]string) {
	t.Helper()
	checkCounts(t, sortedCounts(store.all()), inputs...)
}

var errSometimes = errors.New("sometimes")

func sometimes(rng *rand.Rand, n int) error {
	if rng.IntN(n) == 0 {
		return errSometimes
	}
	return nil
}

// countPipeline is a running count of one source in one lane.
func countPipeline(store *fakeStore, storage checkpoint.Storage, recs []string) *Pipeline {
	return &Pipeline{
		Sources: []Input{input("a", recs)}, Stages: []Stage{Keyed("count", MemoryState{}, count)},
		Outputs: []Sink{store.sink("out")}, Route: ByField("key"), Storage: storage,
		Checkpoints: checkpoint.Options{Records: 100}, Logger: quiet(),
	}
}

// TestStateLost: what follows when the parts of the state are lost, one by one.
func TestStateLost(t *testing.T) {
	recs := numbers("a", 1000, 5)
	stateful := func(t *testing.T) (*fakeStore, *checkpoint.Memory) {
		t.Helper()
		store, storage := newFakeStore(), &checkpoint.Memory{}
		if _, err := countPipeline(store, storage, recs[:600]).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return store, storage
	}
	t.Run("stateful, checkpoints deleted", func(t *testing.T) {
		store, _ := stateful(t)
		_, err := countPipeline(store, &checkpoint.Memory{}, recs).Run(t.Context())
		if !errors.Is(err, committer.ErrStateBehind) || !strings.Contains(err.Error(), "output out is at checkpoint 6, the stored checkpoint is 0") {
			t.Error(err)
		}
	})
	t.Run("stateful, older checkpoints", func(t *testing.T) {
		store, storage := stateful(t)
		older := &checkpoint.Memory{}
		snap, _, _ := storage.Load(t.Context())
		if _, err := countPipeline(store, storage, recs).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := older.Save(t.Context(), snap); err != nil {
			t.Fatal(err)
		}
		if _, err := countPipeline(store, older, recs).Run(t.Context()); !errors.Is(err, committer.ErrStateBehind) {
			t.Error(err)
		}
	})
	t.Run("stateful, log deleted, everything flushed", func(t *testing.T) {
		store, storage := stateful(t)
		store.wipe()
		if _, err := countPipeline(store, storage, recs).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkCounts(t, sortedCounts(store.all()), recs)
	})
	t.Run("stateful, log deleted before the flush", func(t *testing.T) {
		store, storage := newFakeStore(), &checkpoint.Memory{}
		if _, err := countPipeline(store, storage, recs[:300]).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.down = true
		if _, err := countPipeline(store, storage, recs[:600]).Run(t.Context()); err == nil {
			t.Fatal("drained a store that is down")
		}
		store.down = false
		store.wipe()
		if _, err := countPipeline(store, storage, recs).Run(t.Context()); !errors.Is(err, committer.ErrStateBehind) {
			t.Error(err)
		}
	})
	t.Run("stateful, checkpoint behind by a replay that matches", func(t *testing.T) {
		store, storage := stateful(t)
		snap, _, _ := storage.Load(t.Context())
		older := &checkpoint.Memory{}
		if _, err := older.Save(t.Context(), snap); err != nil {
			t.Fatal(err)
		}
		if _, err := countPipeline(store, storage, recs).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.wipe()
		store.lanes["001"] = &fakeLedger{audit: []fakeBatch{{n: snap.ID, pos: mustPart(t, snap)}}} // an idle lane that is behind
		sum, err := countPipeline(store, older, recs).Run(t.Context())
		if err != nil || sum.Repeated != 4 {
			t.Fatalf("%+v, %v", sum, err)
		}
		checkCounts(t, sortedCounts(store.all()), recs)
	})
	t.Run("stateless, checkpoints deleted", func(t *testing.T) {
		store := newFakeStore()
		for _, storage := range []checkpoint.Storage{&checkpoint.Memory{}, &checkpoint.Memory{}, nil} {
			if _, err := statelessPipeline(store, storage, recs, 1).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(store.all(), recs) {
			t.Error("not exactly once")
		}
	})
}

func mustPart(t *testing.T, s checkpoint.Snapshot) []byte {
	t.Helper()
	b, ok := s.Part(positionPart)
	if !ok {
		t.Fatal("no position")
	}
	return b
}

func sortedCounts(recs []string) []string {
	slices.SortFunc(recs, func(x, y string) int {
		kx, ky := string(field([]byte(x), "key")), string(field([]byte(y), "key"))
		if kx != ky {
			return strings.Compare(kx, ky)
		}
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		return strings.Compare(x, y)
	})
	return recs
}

func statelessPipeline(store *fakeStore, storage checkpoint.Storage, recs []string, lanes int) *Pipeline {
	return &Pipeline{
		Sources: []Input{input("a", recs)}, Outputs: []Sink{store.sink("out")}, Storage: storage, Lanes: lanes, Route: ByField("key"),
		Checkpoints: checkpoint.Options{Records: 100}, Logger: quiet(),
	}
}

// TestStatelessLogLost: lanes whose marks differ are brought together by repeating
// what the ledger remembers, under the layouts of that time.
func TestStatelessLogLost(t *testing.T) {
	recs := numbers("a", 3000, 9)
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("C063 seed=", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 4))
			store := newFakeStore()
			lanes := []int{1, 4, 2}
			repeated := uint64(0)
			for cycle := range 12 {
				p := statelessPipeline(store, nil, recs, lanes[cycle%3])
				if seed%2 == 0 {
					p.Route = Route{}
				}
				if cycle < 11 {
					p.Sources[0].Source = &brokenSource{Source: p.Sources[0].Source, left: rng.IntN(800 + 300*cycle)}
				}
				sum, err := p.Run(t.Context())
				if err != nil && !errors.Is(err, errCrash) {
					t.Fatalf("cycle %d: %v", cycle, err)
				}
				repeated += sum.Repeated
				if rng.IntN(2) == 0 {
					store.wipe()
				}
			}
			if got := store.all(); !slices.Equal(sorted(got), sorted(recs)) {
				t.Fatalf("%d records of %d: %s", len(got), len(recs), diff(got, recs))
			}
			t.Log("repeated", repeated)
		})
	}
}

// TestReplayDiffers: a transform that is not deterministic is found out.
func TestReplayDiffers(t *testing.T) {
	recs := numbers("a", 1000, 9)
	store := newFakeStore()
	if _, err := statelessPipeline(store, nil, recs, 2).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.wipe()
	l := store.lanes["001"]
	l.audit, l.recs = l.audit[:4], l.recs[:0]
	for _, b := range l.audit {
		l.recs = append(l.recs, b.recs...)
	}
	p := statelessPipeline(store, nil, recs, 2)
	p.Stages = []Stage{{Name: "dice", Func: func(rec []byte, emit Emit) error { return emit(append(rec, ' ')) }}}
	_, err := p.Run(t.Context())
	if !errors.Is(err, committer.ErrReplayDiffers) || !strings.Contains(err.Error(), "repeat checkpoint 5") {
		t.Error(err)
	}
}

func TestForeignPosition(t *testing.T) {
	recs := numbers("a", 100, 2)
	store := newFakeStore()
	if _, err := statelessPipeline(store, nil, recs, 1).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := statelessPipeline(store, nil, recs, 1)
	other.Sources[0].Name = "b"
	if _, err := other.Run(t.Context()); !errors.Is(err, committer.ErrForeignPosition) {
		t.Error(err)
	}
	more := statelessPipeline(store, nil, recs, 1)
	more.Sources = append(more.Sources, input("b", recs))
	if _, err := more.Run(t.Context()); !errors.Is(err, committer.ErrForeignPosition) {
		t.Error(err)
	}
	short := statelessPipeline(store, nil, recs[:50], 1)
	if _, err := short.Run(t.Context()); !errors.Is(err, committer.ErrForeignPosition) {
		t.Error(err)
	}
}

// TestOutputBehindIsRefusedFirst: an output that cannot go on from the stored checkpoint is
// refused before another one completes that checkpoint, and so can no longer go on from the
// one before.
func TestOutputBehindIsRefusedFirst(t *testing.T) {
	recs := numbers("a", 600, 5)
	behind, other, storage := newFakeStore(), newFakeStore(), &checkpoint.Memory{}
	opened := 0
	run := func(recs []string) error {
		p := countPipeline(behind, storage, recs)
		p.Outputs = append(p.Outputs, Sink{Name: "other", Open: func(_ context.Context, r Restored) (Output, error) {
			opened++
			return other.open(r)
		}})
		_, err := p.Run(t.Context())
		return err
	}
	if err := run(recs[:300]); err != nil {
		t.Fatal(err)
	}
	behind.down = true
	if err := run(recs); err == nil {
		t.Fatal("drained a store that is down")
	}
	behind.down = false
	behind.wipe()
	before := opened
	if err := run(recs); !errors.Is(err, committer.ErrStateBehind) || opened != before {
		t.Fatalf("got %v, and the other output was opened %d times", err, opened-before)
	}
}

// A heldOutput is an output whose lanes another process takes over when asked.
type heldOutput struct {
	*fakeOutput
	held func() error
}

func (o heldOutput) Held(context.Context) error { return o.held() }

var errTaken = errors.New("taken over")

// TestOutputsHaveOneOwner: a pipeline with state and several outputs reads nothing if
// another process has one of them.
func TestOutputsHaveOneOwner(t *testing.T) {
	recs := numbers("a", 100, 5)
	for _, taken := range []string{"", "out", "other"} {
		t.Run(taken, func(t *testing.T) {
			stores := map[string]*fakeStore{"out": newFakeStore(), "other": newFakeStore()}
			p := countPipeline(stores["out"], &checkpoint.Memory{}, recs)
			p.Outputs = nil
			for _, name := range []string{"out", "other"} {
				p.Outputs = append(p.Outputs, Sink{Name: name, Open: func(_ context.Context, r Restored) (Output, error) {
					o, err := stores[name].open(r)
					return heldOutput{o, func() error {
						if len(o.lanes) == 0 {
							t.Error("asked before the lanes were open")
						}
						if name == taken {
							return errTaken
						}
						return nil
					}}, err
				}})
			}
			_, err := p.Run(t.Context())
			if taken == "" {
				if err != nil {
					t.Fatal(err)
				}
				checkCounts(t, sortedCounts(stores["other"].all()), recs)
				return
			}
			if !errors.Is(err, errTaken) || !strings.Contains(err.Error(), "output "+taken) {
				t.Fatalf("got %v", err)
			}
			for name, s := range stores {
				if n := len(s.all()); n > 0 {
					t.Errorf("output %s has %d records", name, n)
				}
			}
		})
	}
}
