package sources

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestDirectoryRandom reads directories of random files of all kinds, resuming at
// a random record.
func TestDirectoryRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		var want []string
		for i := range rapid.IntRange(1, 6).Draw(rt, "files") {
			recs := lines(fmt.Sprint("f", i), rapid.IntRange(0, 40).Draw(rt, "lines"))
			want = append(want, recs...)
			contents, name := strings.Join(recs, "\n"), filepath.Join(dir, fmt.Sprintf("%02d", i))
			if rapid.Bool().Draw(rt, "last newline") {
				contents += "\n"
			}
			switch rapid.IntRange(0, 2).Draw(rt, "kind") {
			case 1:
				contents, name = gzipped(t, contents), name+".gz"
			case 2:
				contents, name = zstded(t, contents), name+".zst"
			}
			writeFile(t, name, contents)
		}
		limit := rapid.IntRange(1, 50).Draw(rt, "limit")
		got, err := readAll(t, NDJSON(dir, Options{}), nil, limit)
		if err != nil || !slices.Equal(got, want) {
			rt.Fatalf("%d records, %v; want %d", len(got), err, len(want))
		}
		if len(want) == 0 {
			return
		}
		n := rapid.IntRange(1, len(want)).Draw(rt, "resume")
		position := positionAfter(t, NDJSON(dir, Options{}), n)
		if got, err := readAll(t, NDJSON(dir, Options{}), []byte(position), limit); err != nil || !slices.Equal(got, want[n:]) {
			rt.Fatalf("resumed after %d: %d records, %v", n, len(got), err)
		}
	})
}

// TestStreamRandom hands the bytes over in random pieces.
func TestStreamRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := lines("a", rapid.IntRange(0, 60).Draw(rt, "lines"))
		pieces := &pieceReader{b: []byte(strings.Join(want, "\r\n"))}
		got, err := readAll(t, NewStream("in", pieces, Options{}), nil, rapid.IntRange(1, 9).Draw(rt, "limit"))
		if err != nil || !slices.Equal(got, want) {
			rt.Fatalf("%q, %v", got, err)
		}
	})
}

type pieceReader struct {
	b []byte
	n int
}

func (r *pieceReader) Read(p []byte) (int, error) {
	r.n++
	rng := rand.New(rand.NewPCG(uint64(r.n), uint64(len(r.b))))
	n := copy(p, r.b[:min(1+rng.IntN(20), len(r.b))])
	r.b = r.b[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestGrowingBuffer: records larger than the buffer, among small ones, keep their
// bytes, and the positions hold.
func TestGrowingBuffer(t *testing.T) {
	var want []string
	for i, n := range []int{10, readSize - 2, 20, 3 * readSize, 1, readSize/4*3 - 2, 30, 2*readSize + 5} {
		want = append(want, `"`+strings.Repeat(string(rune('a'+i)), n)+`"`)
	}
	path := write(t, "in", text(want))
	resumeEverywhere(t, func() Source { return NDJSON(path, Options{}) }, want)
}

func TestOlderFirst(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, want := range map[string][]string{
		"counts":           {".10", ".9", ".2", ".1"},
		"counts, zipped":   {".2.gz", ".3.gz"},
		"dates":            {"-20260101", "-20260102", "-20260103"},
		"dates and a time": {".2026-01-01", ".2026-01-02"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "app.log")
			writeFile(t, path, "")
			for _, suffix := range want {
				writeFile(t, path+suffix, "")
				if err := os.Chtimes(path+suffix, day, day); err != nil {
					t.Fatal(err)
				}
			}
			writeFile(t, filepath.Join(dir, "other"), "")
			gens, err := generations(path)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range gens {
				got = append(got, g.suffix)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			first := path + want[0]
			if err := os.Chtimes(first, day, day.Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if gens, _ := generations(path); gens[len(gens)-1].path != first {
				t.Error("the time of the last write does not count first")
			}
		})
	}
}

// TestFollowLossIsSaid: what cannot be read any more is logged with file and
// offset.
func TestFollowLossIsSaid(t *testing.T) {
	for name, lose := range map[string]func(w *logWriter, r *followReader){
		"cut while it is read": func(w *logWriter, r *followReader) {
			w.truncate()
			w.append(1)
			r.drain()
		},
		"cut while nobody looks": func(w *logWriter, r *followReader) {
			w.truncate()
			w.append(1)
			r.kill()
			r.drain()
		},
		"removed while nobody looks": func(w *logWriter, r *followReader) {
			if err := os.Remove(w.path); err != nil {
				w.t.Fatal(err)
			}
			r.kill()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				opts := followOptions
				opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
				w := &logWriter{t: t, path: filepath.Join(t.TempDir(), "app.log")}
				r := &followReader{t: t, open: func() Source { return NDJSON(w.path, opts) }}
				r.start()
				w.append(3)
				r.drain()
				r.checkpoint()
				if log.Len() > 0 {
					t.Errorf("logged: %s", log.String())
				}
				lose(w, r)
				if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), w.path) || !strings.Contains(log.String(), "offset=24") {
					t.Errorf("logged: %s", log.String())
				}
				if err := r.s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestFollowBadLine: a line that is wrong ends the source with its place, again
// and again, and half a line is not wrong yet.
func TestFollowBadLine(t *testing.T) {
	path := write(t, "app.log", "1\n{\"a\"")
	s := NDJSON(path, followOptions)
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer closeSource(t, s)
	if got, err := nextWithin(t, s, time.Minute); err != nil || len(got) != 1 {
		t.Fatalf("%q, %v", got, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("}\n"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := nextWithin(t, s, time.Minute); err == nil || !strings.Contains(err.Error(), path+":2: offset 2: not JSON") {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// TestFollowCompressed: a file that appears whole in a directory is read whole.
func TestFollowCompressed(t *testing.T) {
	dir := t.TempDir()
	want := lines("a", 50)
	writeFile(t, filepath.Join(dir, "a.gz"), gzipped(t, strings.Join(want, "\n")))
	s := NDJSON(dir, followOptions)
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer closeSource(t, s)
	var got []string
	for len(got) < len(want) {
		recs, err := nextWithin(t, s, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, recs...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	again := NDJSON(dir, followOptions)
	if err := again.Open(t.Context(), s.Position()); err != nil {
		t.Fatal(err)
	}
	defer closeSource(t, again)
	if recs, err := nextWithin(t, again, 50*time.Millisecond); err == nil {
		t.Errorf("read again: %q", recs)
	}
}
