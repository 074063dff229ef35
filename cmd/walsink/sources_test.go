package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sources"
)

func TestKnownScheme(t *testing.T) {
	for _, spec := range []string{"-", "a.ndjson", "dir/a:b", "ndjson:a", "csv:a:b", "tsv:x", "./xml:a", "*.csv", "C.x:y"} {
		if err := knownScheme(spec); err != nil {
			t.Errorf("%q: %v", spec, err)
		}
	}
	for _, spec := range []string{"xml:a", "kafka://b/t", "NDJSON:a", ":a"} {
		if err := knownScheme(spec); classify(err) != codeUsage {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

func TestSourceName(t *testing.T) {
	for spec, want := range map[string]string{"-": "stdin", "ndjson:a/b": "a/b", "a/b": "a/b", "csv:a:b": "a:b"} {
		if got := sourceName(spec); got != want {
			t.Errorf("%q: got %q, want %q", spec, got, want)
		}
	}
}

func TestFirstRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(path, []byte("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &job{from: []string{"ndjson:" + path}, follow: true, maxRecord: 100}
	for n, want := range map[int]int{1: 1, 2: 2, 9: 3} {
		recs, err := firstRecords(t.Context(), f, slog.Default(), n)
		if err != nil || len(recs) != want || string(recs[0]) != `{"a":1}` {
			t.Errorf("n %d: got %d records, %v, want %d", n, len(recs), err, want)
		}
	}
	if recs, err := firstRecords(t.Context(), &job{from: []string{"-"}}, slog.Default(), 1); err != nil || recs != nil {
		t.Errorf("standard input: got %v, %v", recs, err)
	}
	f.from[0] = "ndjson:" + path + ".not"
	if _, err := firstRecords(t.Context(), f, slog.Default(), 1); classify(err) != codeInput {
		t.Errorf("no file: %v", err)
	}
}

// fakeSource fails as it is told.
type fakeSource struct {
	sources.Source
	err error
}

func (s fakeSource) Open(context.Context, []byte) error          { return s.err }
func (s fakeSource) Read(context.Context, int) ([][]byte, error) { return nil, s.err }
func (s fakeSource) Replayable() (bool, string)                  { return false, "gone" }
func (s fakeSource) Endless() bool                               { return true }

func TestCheckedSource(t *testing.T) {
	c := checked{fakeSource{err: errors.New("torn")}}
	if err := c.Open(t.Context(), nil); classify(err) != codeInput {
		t.Errorf("open: %v", err)
	}
	if _, err := c.Read(t.Context(), 1); classify(err) != codeInput {
		t.Errorf("read: %v", err)
	}
	c = checked{fakeSource{err: io.EOF}}
	if _, err := c.Read(t.Context(), 1); err != io.EOF {
		t.Errorf("end: %v", err)
	}
	c = checked{fakeSource{err: committer.ErrForeignPosition}}
	if err := c.Open(t.Context(), nil); classify(err) != codeLedger {
		t.Errorf("foreign: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	c = checked{fakeSource{err: gone.Err()}}
	if _, err := c.Read(gone, 1); classify(err) != codeInterrupted {
		t.Errorf("cancelled: %v", err)
	}
	if ok, reason := c.Replayable(); ok || reason != "gone" || !c.Endless() {
		t.Error("the abilities of the source are lost")
	}
	var _ pipeline.Source = c
}

func TestCheckedEncode(t *testing.T) {
	bad := errors.New("bad")
	encode := checkedEncode(func(dst, rec []byte) ([]byte, error) {
		if len(rec) == 0 {
			return dst, bad
		}
		return append(dst, rec...), nil
	})
	if got, err := encode([]byte("a"), []byte("b")); err != nil || string(got) != "ab" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := encode([]byte("a"), nil); !errors.Is(err, bad) || classify(err) != codeInput || string(got) != "a" {
		t.Errorf("got %q, %v", got, err)
	}
}
