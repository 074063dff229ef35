package checkpointtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/checkpoint"
)

// Run holds the storage to the contract, one subtest for each case. create makes an
// empty storage and returns a function that opens it, once and again, as another
// process would.
func Run(t *testing.T, create func(t testing.TB) (open func() checkpoint.Storage)) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := c.check(t, create); err != nil {
				t.Error(err)
			}
		})
	}
}

// A testCase is one rule and how to see that it is kept.
type testCase struct {
	name, rule string
	run        func(ctx context.Context, open func() checkpoint.Storage) error
}

func (c testCase) check(t testing.TB, create func(testing.TB) func() checkpoint.Storage) error {
	if err := c.run(t.Context(), create(t)); err != nil {
		return fmt.Errorf("%s: %w\nthe rule: %s", c.name, err, c.rule)
	}
	return nil
}

var cases = []testCase{
	{"Empty", "without any snapshot Load returns the zero Snapshot and no error", empty},
	{"Newest", "Load returns the snapshot with the highest id, as it was saved", newest},
	{"Reopen", "a snapshot is durable when Save returns", reopen},
	{"Oldest", "Save returns the lowest id that is still kept, which never falls and is at most the one saved", oldest},
	{"Fields", "parts keep their order, names and bytes, numbers and times up to their limits", fields},
	{"Borrowed", "Save does not keep the bytes, and what Load returns belongs to the caller", borrowed},
	{"Large", "a snapshot may have thousands of parts, and one of megabytes", large},
}

func snapshot(id uint64) checkpoint.Snapshot {
	return checkpoint.Snapshot{ID: id, Taken: time.UnixMilli(1_700_000_000_123).UTC(), Parts: []checkpoint.Part{
		{Name: "position", Data: fmt.Appendf(nil, "at %d", id)}, {Name: "state", Data: bytes.Repeat([]byte{byte(id)}, 300)},
	}}
}

// stored wants Load to return s.
func stored(ctx context.Context, storage checkpoint.Storage, s checkpoint.Snapshot) error {
	got, damaged, err := storage.Load(ctx)
	if err = errors.Join(append(damaged, err)...); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if why := differs(s, got); why != "" {
		return fmt.Errorf("load: %s", why)
	}
	return nil
}

// differs says in what two snapshots differ.
func differs(want, got checkpoint.Snapshot) string {
	if got.ID != want.ID || !got.Taken.Equal(want.Taken) || len(got.Parts) != len(want.Parts) {
		return fmt.Sprintf("snapshot %d of %v with %d parts, want %d of %v with %d",
			got.ID, got.Taken, len(got.Parts), want.ID, want.Taken, len(want.Parts))
	}
	for i, p := range want.Parts {
		if g := got.Parts[i]; g.Name != p.Name || !bytes.Equal(g.Data, p.Data) {
			return fmt.Sprintf("part %d of snapshot %d is %q with %d bytes, want %q with %d, or other bytes",
				i, want.ID, g.Name, len(g.Data), p.Name, len(p.Data))
		}
	}
	return ""
}

// saved saves s and wants it to be what Load returns.
func saved(ctx context.Context, storage checkpoint.Storage, s checkpoint.Snapshot) error {
	if _, err := storage.Save(ctx, s); err != nil {
		return fmt.Errorf("save %d: %w", s.ID, err)
	}
	return stored(ctx, storage, s)
}

func empty(ctx context.Context, open func() checkpoint.Storage) error {
	for range 2 {
		s, damaged, err := open().Load(ctx)
		if s.ID != 0 || s.Parts != nil || damaged != nil || err != nil {
			return fmt.Errorf("load: %+v, %v, %v", s, damaged, err)
		}
	}
	return nil
}

func newest(ctx context.Context, open func() checkpoint.Storage) error {
	storage := open()
	for _, id := range []uint64{1, 2, 3, 9, 10, 11, 99, 100, 1 << 40} { // their digits do not sort
		if err := saved(ctx, storage, snapshot(id)); err != nil {
			return err
		}
	}
	return nil
}

func reopen(ctx context.Context, open func() checkpoint.Storage) error {
	for id := uint64(8); id < 12; id++ {
		if err := saved(ctx, open(), snapshot(id)); err != nil {
			return err
		}
		if err := stored(ctx, open(), snapshot(id)); err != nil {
			return fmt.Errorf("opened again: %w", err)
		}
	}
	return nil
}

func oldest(ctx context.Context, open func() checkpoint.Storage) error {
	storage, before := open(), uint64(0)
	given := map[uint64]bool{}
	for id := uint64(5); id < 60; id += 3 {
		given[id] = true
		got, err := storage.Save(ctx, snapshot(id))
		switch {
		case err != nil:
			return fmt.Errorf("save %d: %w", id, err)
		case got < before || got > id || !given[got]:
			return fmt.Errorf("save %d returned %d as the oldest, after %d", id, got, before)
		}
		if before = got; id%4 == 0 {
			storage = open()
		}
	}
	return nil
}

func fields(ctx context.Context, open func() checkpoint.Storage) error {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	storage := open()
	for i, s := range []checkpoint.Snapshot{
		{ID: 1, Taken: time.UnixMilli(0).UTC()},
		{ID: 2, Taken: time.UnixMilli(1).UTC(), Parts: []checkpoint.Part{{Name: "z"}, {Name: "a", Data: every}, {Name: "", Data: []byte{0}}}},
		{ID: 3, Taken: time.UnixMilli(1).UTC(), Parts: []checkpoint.Part{{Name: strings.Repeat("x", 1000)}, {Name: string(every)}, {Name: "a/../b\n"}}},
		{ID: 1<<53 + 1, Taken: time.UnixMilli(4_000_000_000_000).UTC()},
		{ID: math.MaxInt64, Taken: time.UnixMilli(1).UTC(), Parts: []checkpoint.Part{{Name: "last", Data: []byte{1}}}},
	} {
		if err := saved(ctx, storage, s); err != nil {
			return fmt.Errorf("snapshot %d: %w", i, err)
		}
	}
	return nil
}

func borrowed(ctx context.Context, open func() checkpoint.Storage) error {
	storage, s := open(), snapshot(1)
	if _, err := storage.Save(ctx, s); err != nil {
		return err
	}
	for _, p := range s.Parts {
		clear(p.Data)
	}
	got, _, err := storage.Load(ctx)
	if err != nil {
		return err
	}
	if why := differs(snapshot(1), got); why != "" {
		return fmt.Errorf("the bytes given to Save were changed afterwards: %s", why)
	}
	for _, p := range got.Parts {
		clear(p.Data)
	}
	if err := stored(ctx, storage, snapshot(1)); err != nil {
		return fmt.Errorf("the bytes that Load returned were changed: %w", err)
	}
	return nil
}

func large(ctx context.Context, open func() checkpoint.Storage) error {
	s := checkpoint.Snapshot{ID: 1, Taken: time.UnixMilli(1).UTC()}
	for i := range 5000 {
		s.Parts = append(s.Parts, checkpoint.Part{Name: fmt.Sprintf("state/%05d", i), Data: []byte{byte(i)}})
	}
	s.Parts = append(s.Parts, checkpoint.Part{Name: "large", Data: bytes.Repeat([]byte("0123456789abcdef"), 1<<18)})
	return saved(ctx, open(), s)
}
