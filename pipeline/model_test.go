package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/walsink/walsink/checkpoint"
)

// TestRandomPipelines draws sources, lanes, routes, transforms and outputs, and a
// series of runs that end in one way or another: at the end, by a crash of a source
// or in an output, by a stop; with seals that fail and notices that are lost. In
// the end every output has the rows of one uninterrupted run.
func TestRandomPipelines(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := drawModel(rt)
		for run := range rapid.IntRange(0, 6).Draw(rt, "runs") {
			m.interrupted(t, rt, run)
		}
		m.quiet()
		if _, err := m.pipeline(rt).Run(t.Context()); err != nil {
			rt.Fatal("last run:", err)
		}
		if sum, err := m.pipeline(rt).Run(t.Context()); err != nil || sum.Records != 0 {
			rt.Fatalf("nothing new: %+v, %v", sum, err)
		}
		m.check(rt)
	})
}

type randomModel struct {
	inputs  [][]string
	stores  []*fakeStore
	storage *checkpoint.Memory
	state   bool
	route   Route
	sources []Source // of the next run
}

func drawModel(rt *rapid.T) *randomModel {
	m := &randomModel{state: rapid.Bool().Draw(rt, "state"), storage: &checkpoint.Memory{}, route: ByField("key")}
	for i := range rapid.IntRange(1, 3).Draw(rt, "sources") {
		n, keys := rapid.IntRange(0, 400).Draw(rt, "records"), rapid.IntRange(1, 12).Draw(rt, "keys")
		m.inputs = append(m.inputs, numbers(fmt.Sprint("s", i), n, keys))
	}
	for range rapid.IntRange(1, 2).Draw(rt, "outputs") {
		m.stores = append(m.stores, newFakeStore())
	}
	if !m.state && rapid.Bool().Draw(rt, "round") {
		m.route = Route{}
	}
	m.renew()
	return m
}

// renew opens the sources anew for the next run.
func (m *randomModel) renew() {
	m.sources = nil
	for i, recs := range m.inputs {
		m.sources = append(m.sources, input(fmt.Sprint("s", i), recs).Source)
	}
}

// quiet makes everything work from here on.
func (m *randomModel) quiet() {
	m.renew()
	for _, s := range m.stores {
		s.failSeal, s.failDone, s.onAppend, s.down = nil, nil, nil, false
	}
}

func (m *randomModel) pipeline(rt *rapid.T) *Pipeline {
	p := &Pipeline{
		Lanes: rapid.IntRange(1, 5).Draw(rt, "lanes"), Route: m.route, Storage: m.storage, Logger: quiet(),
		Checkpoints: checkpoint.Options{Records: uint64(rapid.IntRange(10, 200).Draw(rt, "every"))},
	}
	for i, s := range m.sources {
		p.Sources = append(p.Sources, Input{Name: fmt.Sprint("s", i), Source: s})
	}
	if m.state {
		p.Stages = []Stage{Keyed("count", MemoryState{}, count)}
	}
	for i, s := range m.stores {
		p.Outputs = append(p.Outputs, s.sink(fmt.Sprint("o", i)))
	}
	return p
}

// interrupted is a run in which something goes wrong, perhaps.
func (m *randomModel) interrupted(t *testing.T, rt *rapid.T, run int) {
	m.quiet()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	store := rapid.SampledFrom(m.stores).Draw(rt, "store")
	after := rapid.IntRange(0, 300).Draw(rt, "after")
	switch rapid.SampledFrom([]string{"source", "append", "seal", "notice", "stop", "down"}).Draw(rt, "fault") {
	case "source":
		i := rapid.IntRange(0, len(m.sources)-1).Draw(rt, "source")
		m.sources[i] = &brokenSource{Source: m.sources[i], left: after}
	case "append":
		store.onAppend = countdown(after, func() error { return errCrash })
	case "seal":
		every := rapid.IntRange(2, 4).Draw(rt, "every seal")
		store.failSeal = func(n uint64) error {
			if n%uint64(every) == 0 {
				return errSometimes
			}
			return nil
		}
	case "notice":
		store.failDone = func(uint64) error { return errSometimes }
	case "stop":
		store.onAppend = countdown(after, func() error { cancel(); return nil })
	case "down":
		store.down = true
	}
	_, err := m.pipeline(rt).Run(ctx)
	expected := err == nil || errors.Is(err, errCrash) || errors.Is(err, errSometimes) || strings.Contains(err.Error(), "store is down") ||
		errors.Is(err, context.Canceled)
	if !expected {
		rt.Fatalf("run %d: %v", run, err)
	}
}

// countdown calls f at the n-th record of a lane.
func countdown(n int, f func() error) func(string, []byte) error {
	seen := map[string]int{}
	var mu = make(chan struct{}, 1)
	return func(lane string, _ []byte) error {
		mu <- struct{}{}
		defer func() { <-mu }()
		seen[lane]++
		if seen[lane] == n {
			return f()
		}
		return nil
	}
}

func (m *randomModel) check(rt *rapid.T) {
	want := sorted(slices.Concat(m.inputs...))
	if m.state {
		want = nil
		counts := map[string]int{}
		for _, r := range slices.Concat(m.inputs...) {
			key := string(field([]byte(r), "key"))
			counts[key]++
			want = append(want, fmt.Sprintf(`{"key":%q,"count":%d}`, key, counts[key]))
		}
		slices.Sort(want)
	}
	for i, s := range m.stores {
		if got := sorted(s.all()); !slices.Equal(got, want) {
			rt.Fatalf("output %d has %d rows, want %d: %s", i, len(got), len(want), diff(got, want))
		}
	}
}
