package sources

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// write makes a file in a fresh directory and returns its path.
func write(t testing.TB, name, contents string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	writeFile(t, path, contents)
	return path
}

func writeFile(t testing.TB, path, contents string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
}

// readAll opens a source at a position and reads it to its end.
func readAll(t testing.TB, s Source, position []byte, limit int) ([]string, error) {
	t.Helper()
	if err := s.Open(t.Context(), position); err != nil {
		return nil, err
	}
	defer closeSource(t, s)
	var all []string
	for {
		recs, err := s.Read(t.Context(), limit)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if len(recs) == 0 || len(recs) > limit {
			t.Fatalf("Read(%d) returned %d records", limit, len(recs))
		}
		for _, r := range recs {
			all = append(all, string(r))
		}
	}
}

func closeSource(t testing.TB, s Source) {
	t.Helper()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error("close:", err)
		}
	}
}

// resumeEverywhere reads one record at a time, and checks at each position that a
// new source resumes right there, and that positions do not depend on how the
// calls cut the records.
func resumeEverywhere(t *testing.T, open func() Source, want []string) {
	t.Helper()
	s := open()
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer closeSource(t, s)
	for i := range want {
		recs, err := s.Read(t.Context(), 1)
		if err != nil || string(recs[0]) != want[i] {
			t.Fatalf("record %d: %q, %v; want %q", i, recs, err, want[i])
		}
		position := s.Position()
		rest, err := readAll(t, open(), position, 7)
		if err != nil || !slices.Equal(rest, want[i+1:]) {
			t.Fatalf("resumed after record %d: %d records, %v; want %d", i, len(rest), err, len(want)-i-1)
		}
		if again := open(); positionAfter(t, again, i+1) != string(position) {
			t.Fatalf("position after record %d depends on how it was read", i)
		}
	}
	if recs, err := s.Read(t.Context(), 1); !errors.Is(err, io.EOF) {
		t.Fatalf("after the last record: %q, %v", recs, err)
	}
}

// positionAfter reads n records in as few calls as possible.
func positionAfter(t *testing.T, s Source, n int) string {
	t.Helper()
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer closeSource(t, s)
	for n > 0 {
		recs, err := s.Read(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		n -= len(recs)
	}
	return string(s.Position())
}

// nextWithin reads until something comes.
func nextWithin(t *testing.T, s Source, d time.Duration) ([]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	recs, err := s.Read(ctx, 100)
	var all []string
	for _, r := range recs {
		all = append(all, string(r))
	}
	return all, err
}
