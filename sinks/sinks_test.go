package sinks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want sinks.Kind
	}{
		{nil, 0},
		{&sinks.Error{Kind: sinks.Poison}, sinks.Poison},
		{fmt.Errorf("outer: %w", &sinks.Error{Kind: sinks.Fenced}), sinks.Fenced},
		{errors.Join(errors.New("x"), &sinks.Error{Kind: sinks.Moved}), sinks.Moved},
		{&sinks.Error{Kind: sinks.Transient, Err: context.Canceled}, sinks.Transient},
		{context.Canceled, sinks.Cancelled},
		{fmt.Errorf("call: %w", context.DeadlineExceeded), sinks.Cancelled},
		{errors.New("who knows"), sinks.Ambiguous},
	} {
		if got := sinks.KindOf(c.err); got != c.want {
			t.Errorf("KindOf(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		sinks.Transient.String():                      "transient",
		sinks.Cancelled.String():                      "cancelled",
		sinks.Kind(0).String():                        "unknown",
		sinks.Kind(99).String():                       "kind(99)",
		sinks.ExactlyOnce.String():                    "exactly-once",
		sinks.Idempotent.String():                     "idempotent",
		sinks.AtLeastOnce.String():                    "at-least-once",
		sinks.Guarantee(0).String():                   "guarantee(0)",
		(sinks.LaneID{Sink: "a", Lane: "b"}.String()): "a/b",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("connection reset")
	for _, c := range []struct {
		err  *sinks.Error
		want string
	}{
		{&sinks.Error{Kind: sinks.Transient, Op: "acquire", Err: cause}, "acquire: transient: connection reset"},
		{&sinks.Error{Kind: sinks.Ambiguous, Op: "flush", Lane: sinks.LaneID{Sink: "s", Lane: "3"}, Checkpoint: 42, Err: cause},
			"flush lane s/3 checkpoint 42: ambiguous: connection reset"},
		{&sinks.Error{Kind: sinks.Poison, Op: "flush", Bad: []sinks.Reject{{Number: 57, Field: "amount", Code: "22P02", Reason: "not a number"}, {Number: 58}}},
			`flush: poison: record 57 field "amount" code 22P02: not a number (and 1 more)`},
		{&sinks.Error{Kind: sinks.Poison, Op: "flush", Bad: []sinks.Reject{{}}}, "flush: poison: record 0"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if c.err.Err != nil && !errors.Is(c.err, cause) {
			t.Errorf("%v hides its cause", c.err)
		}
	}
}

func TestValidate(t *testing.T) {
	long := strings.Repeat("x", sinks.MaxName)
	for _, name := range []string{"a", "orders", "A.b_c-9", "0", "a..b", long} {
		if err := (sinks.LaneID{Sink: name, Lane: name}).Validate(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	bad := []string{"", ".", "..", ".a", long + "x", "a/b", "a b", "a\x00", "a\n", "ä", "a\\b", "a:b", "*", " a", "\xff", "a\u202eb"}
	for _, name := range bad {
		if err := (sinks.LaneID{Sink: name, Lane: "a"}).Validate(); err == nil || !strings.Contains(err.Error(), "sink id") {
			t.Errorf("sink id %q: %v", name, err)
		}
		if err := (sinks.LaneID{Sink: "a", Lane: name}).Validate(); err == nil || !strings.Contains(err.Error(), "lane") {
			t.Errorf("lane %q: %v", name, err)
		}
	}
}

// A name that is valid has no character out of the stated set, whatever it is.
func FuzzValidate(f *testing.F) {
	f.Add("a", "b")
	f.Add("../x", "")
	f.Fuzz(func(t *testing.T, sink, lane string) {
		id := sinks.LaneID{Sink: sink, Lane: lane}
		if id.Validate() != nil {
			return
		}
		for _, s := range []string{sink, lane} {
			if s == "" || len(s) > sinks.MaxName || s[0] == '.' {
				t.Fatalf("%q is valid", s)
			}
			for i := range len(s) {
				c := s[i]
				if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0) {
					t.Fatalf("%q is valid", s)
				}
			}
		}
		if a, b, _ := strings.Cut(id.String(), "/"); a != sink || b != lane {
			t.Fatalf("%v is ambiguous", id)
		}
	})
}

func sample() sinks.Mark {
	b := record.Batch{Seq: 3, Checkpoint: 8, Records: 9, Bytes: 90, Position: []byte("to"), Digest: record.Digest{1}}
	return sinks.Mark{
		Fence: 4, Seq: 2, Chain: record.Chain{7}, Checkpoint: 5, Position: []byte("from"), Records: 100, Dead: 3,
		Partial: &sinks.Partial{Batch: b, Done: 4, Dead: []uint64{1, 3}}, UpdatedAt: time.Unix(1, 0).UTC(),
	}
}

// The tip changes with everything that is in, and with nothing else.
func TestTip(t *testing.T) {
	base := sample().Tip()
	changes := map[string]struct {
		f      func(*sinks.Mark)
		differ bool
	}{
		"fence":          {func(m *sinks.Mark) { m.Fence++ }, false},
		"time":           {func(m *sinks.Mark) { m.UpdatedAt = time.Now() }, false},
		"counts":         {func(m *sinks.Mark) { m.Records++; m.Dead++ }, false},
		"dead of a part": {func(m *sinks.Mark) { m.Partial.Dead = nil }, false},
		"chain":          {func(m *sinks.Mark) { m.Chain[31]++ }, true},
		"done":           {func(m *sinks.Mark) { m.Partial.Done++ }, true},
		"another part":   {func(m *sinks.Mark) { m.Partial.Batch.Digest[15]++ }, true},
		"its end":        {func(m *sinks.Mark) { m.Partial.Batch.Position = nil }, true},
		"no part":        {func(m *sinks.Mark) { m.Partial = nil }, true},
		"pinned":         {func(m *sinks.Mark) { m.Partial.Done, m.Partial.Dead = 0, nil }, true},
	}
	for name, c := range changes {
		m := sample()
		c.f(&m)
		if differ := m.Tip() != base; differ != c.differ {
			t.Errorf("%s: the tip differs: %v", name, differ)
		}
	}
	m := sample()
	if m.Partial = nil; m.Tip() != m.Chain {
		t.Error("the tip of whole batches is not the chain")
	}
	pinned := sample()
	if pinned.Partial.Done = 0; pinned.Tip() == m.Tip() {
		t.Error("a mark with a batch pinned has the tip of one without")
	}
}

func TestHead(t *testing.T) {
	h := sample().Head()
	if h.Seq != 2 || h.Chain != (record.Chain{7}) || h.Checkpoint != 5 || string(h.Position) != "from" {
		t.Fatalf("%+v", h)
	}
}

// The JSON form is what stores keep: it does not change.
func TestMarkJSON(t *testing.T) {
	m := sample()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"fence":4,"seq":2,"chain":"07` + strings.Repeat("0", 62) + `","checkpoint":5,"position":"ZnJvbQ==","records":100,"dead":3,` +
		`"partial":{"batch":{"seq":3,"checkpoint":8,"prev":"` + strings.Repeat("0", 64) + `","records":9,"bytes":90,"digest":"01` +
		strings.Repeat("0", 30) + `","position":"dG8="},"done":4,"dead":[1,3]},"updated_at":"1970-01-01T00:00:01Z"}`
	if string(data) != want {
		t.Fatalf("%s\nwant\n%s", data, want)
	}
	var got sinks.Mark
	if err := json.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got, m) || got.Tip() != m.Tip() {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range data {
		if json.Unmarshal(data[:n], &got) == nil {
			t.Fatalf("%s is taken", data[:n])
		}
	}
}

// A stored mark of any bytes is decoded or refused, and keeps its tip.
func FuzzMarkJSON(f *testing.F) {
	data, _ := json.Marshal(sample())
	f.Add(data)
	f.Add([]byte(`{"chain":"00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m, again sinks.Mark
		if json.Unmarshal(data, &m) != nil {
			return
		}
		out, err := json.Marshal(m)
		if err != nil {
			return // a year that RFC 3339 does not have
		}
		if err := json.Unmarshal(out, &again); err != nil || again.Tip() != m.Tip() {
			t.Fatalf("%s became %s, %v", data, out, err)
		}
	})
}

func TestGenesis(t *testing.T) {
	seen := map[record.Chain]sinks.LaneID{}
	for _, id := range []sinks.LaneID{{Sink: "a", Lane: "bc"}, {Sink: "ab", Lane: "c"}, {Sink: "abc"}, {Lane: "abc"}, {Sink: "a", Lane: "b"}, {Sink: "b", Lane: "a"}} {
		if old, ok := seen[id.Genesis()]; ok {
			t.Errorf("%v and %v begin with the same chain", id, old)
		}
		seen[id.Genesis()] = id
	}
}
