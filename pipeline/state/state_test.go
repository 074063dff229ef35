package state

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
)

var quiet = Options{Logger: slog.New(slog.DiscardHandler)}

func open(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func restore(t testing.TB, s *Store, lanes int, parts [][]byte) []pipeline.LaneState {
	t.Helper()
	states := make([]pipeline.LaneState, lanes)
	for i := range states {
		var err error
		if states[i], err = s.Restore(t.Context(), pipeline.Owner{Lane: i, Lanes: lanes}, parts); err != nil {
			t.Fatal(err)
		}
	}
	return states
}

func snapshot(t testing.TB, states []pipeline.LaneState, checkpoint uint64) [][]byte {
	t.Helper()
	parts := make([][]byte, len(states))
	for i, s := range slices.Backward(states) { // the order is chance in a pipeline
		var err error
		if parts[i], err = s.Snapshot(t.Context(), checkpoint); err != nil {
			t.Fatal(err)
		}
	}
	return parts
}

func put(t testing.TB, s pipeline.LaneState, key, value string) {
	t.Helper()
	if err := s.Put([]byte(key), []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, s pipeline.LaneState, key string) string {
	t.Helper()
	v, err := s.Get([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if v == nil {
		return "none"
	}
	return string(v)
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, dir, quiet)
	lane := restore(t, s, 1, nil)
	put(t, lane[0], "a", "1")
	put(t, lane[0], "b", "")
	one := snapshot(t, lane, 1)
	put(t, lane[0], "a", "22")
	if err := lane[0].Put([]byte("b"), nil); err != nil {
		t.Fatal(err)
	}
	put(t, lane[0], "c", "3")
	two := snapshot(t, lane, 2)
	put(t, lane[0], "a", "lost")
	for _, c := range []struct {
		parts   [][]byte
		a, b, c string
	}{{two, "22", "none", "3"}, {one, "1", "", "none"}, {nil, "none", "none", "none"}} {
		lane := restore(t, s, 1, c.parts)
		if a, b, d := get(t, lane[0], "a"), get(t, lane[0], "b"), get(t, lane[0], "c"); a != c.a || b != c.b || d != c.c {
			t.Errorf("restored %q %q %q, want %q %q %q", a, b, d, c.a, c.b, c.c)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Restore(t.Context(), pipeline.Owner{}, nil); err == nil {
		t.Error("restored a closed store")
	}
	if err := s.Retire(1); err != nil {
		t.Error(err)
	}
}

// TestRandom compares with maps: states put, checkpoints taken and retired, the
// process ended at any time, the number of lanes changed, older checkpoints
// restored.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		type saved struct {
			id    uint64
			parts [][]byte
			want  map[string]string
		}
		kept := []saved{{want: map[string]string{}}}
		next := uint64(1)
		for range rapid.IntRange(1, 4).Draw(rt, "runs") {
			s, err := Open(dir, Options{Dirty: rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(rt, "dirty"), Logger: quiet.Logger})
			if err != nil {
				rt.Fatal(err)
			}
			from := rapid.SampledFrom(kept).Draw(rt, "from")
			kept = slices.DeleteFunc(kept, func(k saved) bool { return k.id > from.id })
			lanes := rapid.IntRange(1, 3).Draw(rt, "lanes")
			states := restore(t, s, lanes, from.parts)
			want := maps.Clone(from.want)
			for range rapid.IntRange(0, 40).Draw(rt, "steps") {
				key := fmt.Sprint("key", rapid.IntRange(0, 6).Draw(rt, "key"))
				state := states[int(key[3])%lanes]
				switch rapid.IntRange(0, 7).Draw(rt, "step") {
				case 0:
					if err := state.Put([]byte(key), nil); err != nil {
						rt.Fatal(err)
					}
					delete(want, key)
				case 1:
					kept = append(kept, saved{next, snapshot(t, states, next), maps.Clone(want)})
					next++
				case 2:
					if len(kept) > 3 {
						kept = kept[1:]
						if err := s.Retire(kept[0].id); err != nil {
							rt.Fatal(err)
						}
					}
				default:
					want[key] = rapid.StringN(0, 20, 30).Draw(rt, "value")
					put(t, state, key, want[key])
				}
				for key, value := range want {
					if got := get(t, states[int(key[3])%lanes], key); got != value {
						rt.Fatalf("%s is %q, want %q", key, got, value)
					}
				}
			}
			if err := s.Close(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func TestLostDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, dir, quiet)
	lane := restore(t, s, 1, nil)
	put(t, lane[0], "a", "1")
	parts := snapshot(t, lane, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, quiet)
	lane = restore(t, s, 1, parts)
	put(t, lane[0], "a", "2")
	newer := snapshot(t, lane, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir   string
		parts [][]byte
		want  error
	}{
		"removed":     {filepath.Join(t.TempDir(), "new"), newer, ErrBehind},
		"rolled back": {older, newer, ErrBehind},
		"other kind":  {dir, [][]byte{{1, 2, 3}}, pipeline.ErrSnapshot},
	} {
		s := open(t, c.dir, quiet)
		_, err := s.Restore(t.Context(), pipeline.Owner{Lanes: 1}, c.parts)
		if !errors.Is(err, c.want) || (c.want == ErrBehind && !errors.Is(err, committer.ErrStateBehind)) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLimits(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state"), quiet)
	lane := restore(t, s, 1, nil)
	if err := lane[0].Put([]byte("a"), make([]byte, maxState-1)); err != nil {
		t.Error(err)
	}
	if err := lane[0].Put([]byte("a"), make([]byte, maxState)); err == nil {
		t.Error("a state over the limit")
	}
	snapshot(t, lane, 1)
	if v := get(t, lane[0], "a"); len(v) != maxState-1 {
		t.Errorf("%d bytes", len(v))
	}
}

// TestBeyondMemory: what a lane holds in memory is bounded, however much state
// there is.
func TestBeyondMemory(t *testing.T) {
	keys := 20000
	if testing.Short() {
		keys = 2000
	}
	s := open(t, filepath.Join(t.TempDir(), "state"), Options{Dirty: 64 << 10, Logger: quiet.Logger})
	states := restore(t, s, 1, nil)
	l := states[0].(*lane)
	for i := range keys {
		put(t, l, fmt.Sprintf("key %d", i), fmt.Sprintf("%0500d", i))
		if l.size > 64<<10 {
			t.Fatalf("%d bytes of changes in memory", l.size)
		}
	}
	parts := snapshot(t, states, 1)
	if n := len(parts[0]); n > 64 {
		t.Errorf("the snapshot is a copy: %d bytes", n)
	}
	for i := 0; i < keys; i += 97 {
		if got := get(t, l, fmt.Sprintf("key %d", i)); got != fmt.Sprintf("%0500d", i) {
			t.Fatalf("key %d is %q", i, got)
		}
	}
}

// TestEmptyLog: a process that is killed right after it has created a file leaves
// an empty one, which Badger does not open.
func TestEmptyLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, dir, quiet)
	lane := restore(t, s, 1, nil)
	put(t, lane[0], "a", "1")
	parts := snapshot(t, lane, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00009.mem", "000009.vlog"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir, quiet)
		if got := get(t, restore(t, s, 1, parts)[0], "a"); got != "1" {
			t.Errorf("%s: state %q", name, got)
		}
		if again, err := Open(dir, quiet); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("opened twice: %v, %v", again, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
