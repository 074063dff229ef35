package sources

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStream(t *testing.T) {
	want := lines("a", 5000)
	got, err := readAll(t, NewStream("in", strings.NewReader(text(want)), Options{}), nil, 64)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d records, %v", len(got), err)
	}
	if ok, reason := NewStream("in", nil, Options{}).Replayable(); ok || !strings.Contains(reason, "lost") {
		t.Errorf("replayable %v: %s", ok, reason)
	}
	_, err = readAll(t, NewStream("standard input", strings.NewReader("1\n\nx\n"), Options{}), nil, 64)
	if err == nil || !strings.HasPrefix(err.Error(), "standard input:3: offset 3: not JSON") {
		t.Errorf("error %v", err)
	}
}

func TestStreamWaitsAndCounts(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := NewStream("pipe", r, Options{})
	if err := s.Open(t.Context(), positionOf(7)); err != nil {
		t.Fatal(err)
	}
	if recs, err := nextWithin(t, s, 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nothing there: %q, %v", recs, err)
	}
	if _, err := w.WriteString("1\n2"); err != nil {
		t.Fatal(err)
	}
	if recs, err := nextWithin(t, s, time.Minute); err != nil || !slices.Equal(recs, []string{"1"}) {
		t.Fatalf("%q, %v", recs, err)
	}
	if recs, err := nextWithin(t, s, 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("half a line: %q, %v", recs, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if recs, err := nextWithin(t, s, time.Minute); err != nil || !slices.Equal(recs, []string{"2"}) {
		t.Fatalf("%q, %v", recs, err)
	}
	if _, err := s.Read(t.Context(), 1); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if !slices.Equal(s.Position(), positionOf(9)) {
		t.Errorf("position %v", s.Position())
	}
	closeSource(t, s)
}

// TestStreamCloseEndsTheRead: the goroutine that reads must not stay, goleak
// looks for it.
func TestStreamCloseEndsTheRead(t *testing.T) {
	r, w := io.Pipe()
	s := NewStream("pipe", r, Options{})
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	closeSource(t, s)
	if _, err := w.Write([]byte("1\n")); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if err := s.Open(t.Context(), nil); err == nil {
		t.Error("opened twice")
	}
}

func positionOf(n uint64) []byte {
	m := NewMemory(make([][]byte, n))
	m.next = int(n)
	return m.Position()
}
