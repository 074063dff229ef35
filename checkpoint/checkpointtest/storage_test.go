package checkpointtest

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/checkpoint"
)

func TestStorages(t *testing.T) {
	for _, retain := range []int{1, 3} {
		t.Run(fmt.Sprint("memory, retain ", retain), func(t *testing.T) {
			Run(t, func(testing.TB) func() checkpoint.Storage {
				m := &checkpoint.Memory{Retain: retain}
				return func() checkpoint.Storage { return m }
			})
		})
		t.Run(fmt.Sprint("directory, retain ", retain), func(t *testing.T) {
			Run(t, func(t testing.TB) func() checkpoint.Storage {
				dir := filepath.Join(t.TempDir(), "checkpoints")
				return func() checkpoint.Storage {
					d, err := checkpoint.OpenDir(dir, retain)
					if err != nil {
						t.Fatal(err)
					}
					return d
				}
			})
		})
	}
}

// A heap is a storage in few lines, with a place for every mistake.
type heap struct {
	snaps []checkpoint.Snapshot
	mistake
}

type mistake struct {
	save   func(h *heap, s *checkpoint.Snapshot)
	oldest func(h *heap) uint64
	load   func(h *heap) checkpoint.Snapshot
	keeps  bool // the bytes
	errs   bool // if there is nothing
	forget bool // when opened again
}

func clone(s checkpoint.Snapshot) checkpoint.Snapshot {
	s.Parts = slices.Clone(s.Parts)
	for i, p := range s.Parts {
		s.Parts[i].Data = bytes.Clone(p.Data)
	}
	return s
}

func (h *heap) Save(_ context.Context, s checkpoint.Snapshot) (uint64, error) {
	if !h.keeps {
		s = clone(s)
	}
	if h.save != nil {
		h.save(h, &s)
	}
	h.snaps = append(h.snaps, s)
	if h.oldest != nil {
		return h.oldest(h), nil
	}
	return h.snaps[0].ID, nil
}

func (h *heap) Load(context.Context) (checkpoint.Snapshot, []error, error) {
	if len(h.snaps) == 0 {
		if h.errs {
			return checkpoint.Snapshot{}, nil, checkpoint.ErrCorrupt
		}
		return checkpoint.Snapshot{}, nil, nil
	}
	s := h.snaps[len(h.snaps)-1]
	if h.load != nil {
		s = h.load(h)
	}
	if h.keeps {
		return s, nil, nil
	}
	return clone(s), nil, nil
}

var mistakes = []struct {
	name, rejectedBy string
	mistake
}{
	{"nothing is an error", "Empty", mistake{errs: true}},
	{"names are sorted as text", "Newest", mistake{load: func(h *heap) checkpoint.Snapshot {
		return slices.MaxFunc(h.snaps, func(a, b checkpoint.Snapshot) int { return strings.Compare(fmt.Sprint(a.ID), fmt.Sprint(b.ID)) })
	}}},
	{"the first one is returned", "Newest", mistake{load: func(h *heap) checkpoint.Snapshot { return h.snaps[0] }}},
	{"nothing is durable", "Reopen", mistake{forget: true}},
	{"the oldest is one that is no longer kept", "Oldest", mistake{oldest: func(h *heap) uint64 { return h.snaps[0].ID - 1 }}},
	{"the oldest is the one that comes next", "Oldest", mistake{oldest: func(h *heap) uint64 { return h.snaps[len(h.snaps)-1].ID + 3 }}},
	{"ids are doubles", "Fields", mistake{save: func(_ *heap, s *checkpoint.Snapshot) { s.ID = uint64(float64(s.ID)) }}},
	{"times are seconds", "Fields", mistake{save: func(_ *heap, s *checkpoint.Snapshot) { s.Taken = s.Taken.Truncate(time.Second) }}},
	{"parts are sorted", "Fields", mistake{save: func(_ *heap, s *checkpoint.Snapshot) {
		slices.SortFunc(s.Parts, func(a, b checkpoint.Part) int { return strings.Compare(a.Name, b.Name) })
	}}},
	{"bytes are kept", "Borrowed", mistake{keeps: true}},
	{"parts are limited", "Large", mistake{save: func(_ *heap, s *checkpoint.Snapshot) { s.Parts = s.Parts[:min(len(s.Parts), 1000)] }}},
}

func (m mistake) create(testing.TB) func() checkpoint.Storage {
	h := &heap{mistake: m}
	return func() checkpoint.Storage {
		if m.forget {
			h = &heap{mistake: m}
		}
		return h
	}
}

// TestMistakes runs each broken storage through the case that is to find it.
func TestMistakes(t *testing.T) {
	found := map[string]bool{}
	for _, m := range mistakes {
		found[m.rejectedBy] = true
		t.Run(m.name, func(t *testing.T) {
			i := slices.IndexFunc(cases, func(c testCase) bool { return c.name == m.rejectedBy })
			if err := cases[i].check(t, m.create); err == nil || !strings.Contains(err.Error(), cases[i].rule) {
				t.Errorf("%s says %v", m.rejectedBy, err)
			}
		})
	}
	for _, c := range cases {
		if !found[c.name] {
			t.Errorf("no broken storage is for the case %s", c.name)
		}
		if err := c.check(t, mistake{}.create); err != nil {
			t.Errorf("a storage without a mistake: %v", err)
		}
	}
}
