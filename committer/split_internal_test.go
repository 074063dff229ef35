package committer

import (
	"bytes"
	"errors"
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

func TestNoteRoundTrip(t *testing.T) {
	b := record.Batch{Records: 10}
	for _, s := range []split{nil, {{Number: 0}}, {{Number: 3, Field: "a", Code: "b", Reason: "c"}, {Number: 9}}} {
		data, err := note{Dead: s}.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := splitOf(data, b)
		if err != nil || !slices.Equal(got, s) {
			t.Fatalf("%s: %v, %v", data, got, err)
		}
	}
	if s, err := splitOf(nil, b); s != nil || err != nil {
		t.Fatal(s, err)
	}
}

func TestNoteEveryPrefix(t *testing.T) {
	b := record.Batch{Records: 10}
	data, _ := note{Dead: split{{Number: 3, Reason: "x"}, {Number: 4}}}.encode()
	for n := 1; n < len(data); n++ {
		if _, err := splitOf(data[:n], b); err == nil {
			t.Fatalf("%s is taken", data[:n])
		}
	}
}

func TestNoteRefusals(t *testing.T) {
	for text, want := range map[string]error{
		`{"version":2,"dead":[]}`:              record.ErrVersion,
		`{}`:                                   record.ErrVersion,
		`{"version":1,"dead":[{"number":10}]}`: record.ErrCorrupt,
		`{"version":1,"dead":[{"number":4},{"number":4}]}`:       record.ErrCorrupt,
		`{"version":1,"dead":[{"number":4},{"number":3}]}`:       record.ErrCorrupt,
		`{"version":1,"dead":[{"number":-1}]}`:                   record.ErrCorrupt,
		`{"version":1,"dead":[{"number":18446744073709551616}]}`: record.ErrCorrupt,
		`{"version":1,"dead":[{"number":18446744073709551615}]}`: record.ErrCorrupt,
	} {
		if _, err := splitOf([]byte(text), record.Batch{Records: 10}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// What is decoded is a valid split, and comes out as it went in.
func FuzzDecodeSplit(f *testing.F) {
	f.Add([]byte(`{"version":1,"dead":[{"number":4,"field":"a"},{"number":7}]}`), uint64(10))
	f.Add([]byte(`{"version":1}`), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, records uint64) {
		b := record.Batch{Records: records}
		s, err := splitOf(data, b)
		if err != nil {
			return
		}
		for i, r := range s {
			if r.Number >= records || i > 0 && r.Number <= s[i-1].Number {
				t.Fatalf("%v of %d records", s, records)
			}
		}
		again, err := note{Dead: s}.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := splitOf(again, b); err != nil || !slices.Equal(got, s) {
			t.Fatalf("%v became %v, %v", s, got, err)
		}
	})
}

// What is decoded was encoded with this checksum.
func FuzzDecodeMark(f *testing.F) {
	data, _ := encodeMark(sinks.Mark{Fence: 1, Seq: 2, Position: []byte("p"), UpdatedAt: time.Unix(1, 0)})
	f.Add(data)
	f.Add([]byte("{}\n00000000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMark(data, nil)
		if err != nil {
			return
		}
		again, err := encodeMark(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeMark(again, nil); err != nil || got.Tip() != m.Tip() || !bytes.Equal(got.Position, m.Position) {
			t.Fatalf("%+v became %+v, %v", m, got, err)
		}
	})
}

func TestSplitWithinAndAdopt(t *testing.T) {
	s := split{{Number: 2, Reason: "a"}, {Number: 5, Reason: "b"}, {Number: 8, Reason: "c"}}
	for i := range uint64(10) {
		for j := i; j < 10; j++ {
			var want []uint64
			for _, r := range s {
				if i <= r.Number && r.Number < j {
					want = append(want, r.Number)
				}
			}
			if got := s.within(i, j).numbers(); !slices.Equal(got, want) {
				t.Fatalf("within %d, %d: %v, want %v", i, j, got, want)
			}
		}
	}
	// Of the first six records the mark knows better.
	got := s.adopt(&sinks.Partial{Done: 6, Dead: []uint64{1, 5}})
	if want := (split{{Number: 1}, {Number: 5, Reason: "b"}, {Number: 8, Reason: "c"}}); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	if got := s.adopt(nil); !slices.Equal(got, s) {
		t.Fatalf("%v", got)
	}
}

func TestBackoffBounds(t *testing.T) {
	for attempt := 1; attempt < 200; attempt++ {
		top := time.Hour
		if attempt < bits.Len64(uint64(time.Hour)) {
			top = min(top, time.Millisecond<<(attempt-1))
		}
		for range 20 {
			if d := backoff(time.Millisecond, time.Hour, attempt); d <= 0 || d > top {
				t.Fatalf("attempt %d: %v, limit %v", attempt, d, top)
			}
		}
	}
}

// splitOf is the split that a note holds.
func splitOf(data []byte, b record.Batch) (split, error) {
	n, err := decodeNote(data, b)
	return n.Dead, err
}
