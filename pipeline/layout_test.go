package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/walsink/walsink/committer"
)

func somePlace() place {
	return place{layout: layout{lanes: 4, route: "field a"}, widest: 16, sources: []sourcePlace{
		{name: "a", since: 100, count: 1 << 40, position: []byte{1, 2, 3}}, {name: "b"},
	}}
}

// goldenPlace is somePlace as version 1 writes it. Stores hold such bytes.
const goldenPlace = "010400076669656c6420611002016164808080808020030102030162000000"

func TestPlaceRoundTrip(t *testing.T) {
	want := somePlace()
	b := want.encode()
	if golden := fmt.Sprintf("%x", b); golden != goldenPlace {
		t.Errorf("written as %s, version 1 is %s", golden, goldenPlace)
	}
	got, err := decodePlace(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range b {
		if _, err := decodePlace(b[:n]); !errors.Is(err, committer.ErrForeignPosition) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
	for i := range 8 * len(b) {
		flipped := bytes.Clone(b)
		flipped[i/8] ^= 1 << (i % 8)
		if p, err := decodePlace(flipped); err == nil && !bytes.Equal(p.encode(), flipped) {
			t.Errorf("bit %d flipped: read as something else", i)
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add(somePlace().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePlace(b)
		if err == nil && !bytes.Equal(p.encode(), b) {
			t.Errorf("%x is read, and written as %x", b, p.encode())
		}
	})
}

func TestLanes(t *testing.T) {
	own := layout{lanes: 3, route: "round"}
	shared := layout{lanes: 3, shared: true, route: "round"}
	if own.width(2) != 6 || shared.width(2) != 3 {
		t.Error("width")
	}
	for n := range uint64(9) {
		if got := own.lane(1, n, Route{}, nil); got != 3+int(n%3) {
			t.Errorf("own lane of record %d: %d", n, got)
		}
		if got := shared.lane(1, n, Route{}, nil); got != int(n%3) {
			t.Errorf("shared lane of record %d: %d", n, got)
		}
	}
	// The lane of a key never changes from one version to the next.
	for key, want := range map[string]int{"a": 955, "b": 555, "": 921, "k1": 651} {
		if got := owner([]byte(key), 1000); got != want {
			t.Errorf("owner(%q) = %d, was %d", key, got, want)
		}
	}
	if laneName(7) != "007" {
		t.Error(laneName(7))
	}
}

func TestRouteOf(t *testing.T) {
	byKey := ByKey("first", func(rec []byte) []byte { return rec[:1] })
	for _, c := range []struct {
		name    string
		present Route
		ok      bool
	}{{"round", byKey, true}, {"field a b", Route{}, true}, {"key first", byKey, true}, {"key first", Route{}, false}} {
		r, err := routeOf(c.name, c.present)
		if (err == nil) != c.ok || (c.ok && r.String() != c.name) {
			t.Errorf("%s: %v, %v", c.name, r, err)
		}
	}
}

func TestField(t *testing.T) {
	for _, c := range []struct{ rec, want string }{
		{`{"a":1}`, "1"}, {`{"a":"x y"}`, "x y"}, {` { "b" : [1,{"a":5}] , "a" : true } `, "true"},
		{`{"b":{"a":1},"a":{"c":"}"}}`, `{"c":"}"}`}, {`{"b":"\"a\":1","a":null}`, "null"}, {`{"a":"é\n\u0041"}`, "é\nA"},
		{`{"\u0061":7}`, "7"}, {`{"a":-1.5e3,"a":2}`, "-1.5e3"}, {`{"b":1}`, ""}, {`{}`, ""}, {`[1]`, ""}, {`"a"`, ""}, {``, ""},
		{`{"a"`, ""}, {`{"a":`, ""}, {`{"a":[`, "["},
	} {
		if got := string(field([]byte(c.rec), "a")); got != c.want {
			t.Errorf("field a of %s is %q, want %q", c.rec, got, c.want)
		}
	}
}

func FuzzField(f *testing.F) {
	f.Add([]byte(`{"b":[1,"]"],"a":"x\"y"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := field(b, "a")
		var m map[string]json.RawMessage
		if bytes.Count(b, []byte(`a`)) != 1 || bytes.Contains(b, []byte(`\`)) || json.Unmarshal(b, &m) != nil {
			return
		}
		want := []byte(m["a"])
		if len(want) > 1 && want[0] == '"' {
			want = want[1 : len(want)-1]
		}
		if !bytes.Equal(got, want) {
			t.Errorf("field a of %s is %q, want %q", b, got, want)
		}
	})
}

// TestMemoryState: whatever is put comes back, by the lane that owns it, after the
// number of lanes has changed.
func TestMemoryState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := map[string]string{}
		var parts [][]byte
		for range 3 {
			lanes := rapid.IntRange(1, 5).Draw(rt, "lanes")
			states := make([]LaneState, lanes)
			for i := range states {
				s, err := MemoryState{}.Restore(t.Context(), Owner{Lane: i, Lanes: lanes}, parts)
				if err != nil {
					rt.Fatal(err)
				}
				states[i] = s
			}
			for key, value := range want {
				if got, _ := states[owner([]byte(key), lanes)].Get([]byte(key)); string(got) != value {
					rt.Fatalf("key %q is %q, want %q", key, got, value)
				}
			}
			for range rapid.IntRange(0, 30).Draw(rt, "puts") {
				key := fmt.Sprint("k", rapid.IntRange(0, 9).Draw(rt, "key"))
				s := states[owner([]byte(key), lanes)]
				if rapid.IntRange(0, 3).Draw(rt, "remove") == 0 {
					delete(want, key)
					if err := s.Put([]byte(key), nil); err != nil {
						rt.Fatal(err)
					}
					continue
				}
				want[key] = rapid.StringN(0, 5, 8).Draw(rt, "value")
				if err := s.Put([]byte(key), []byte(want[key])); err != nil {
					rt.Fatal(err)
				}
			}
			parts = nil
			for _, s := range states {
				p, err := s.Snapshot(t.Context(), 1)
				if err != nil {
					rt.Fatal(err)
				}
				parts = append(parts, p)
			}
		}
	})
}

func FuzzMemorySnapshot(f *testing.F) {
	f.Add([]byte{1, 1, 'a', 1, 'b'})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := memoryLane{}
		if err := m.load(b, Owner{Lanes: 1}); err != nil && !errors.Is(err, ErrSnapshot) {
			t.Error(err)
		}
	})
}
