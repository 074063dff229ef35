package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/walsink/walsink/committer"
)

func lines(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"%s":%d}`, prefix, i)
	}
	return all
}

func text(lines []string) string { return strings.Join(lines, "\n") + "\n" }

func gzipped(t testing.TB, s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstded(t testing.TB, s string) string {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(s)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompressed(t *testing.T) {
	want := lines("a", 300)
	for name, contents := range map[string]string{"in.ndjson.gz": gzipped(t, text(want)), "in.ndjson.zst": zstded(t, text(want))} {
		path := write(t, name, contents)
		resumeEverywhere(t, func() Source { return NDJSON(path, Options{}) }, want)
		writeFile(t, path, contents[:len(contents)-9])
		if got, err := readAll(t, NDJSON(path, Options{}), nil, 100); err == nil {
			t.Errorf("%s cut short: %d records and no error", name, len(got))
		}
		writeFile(t, path, "plain")
		if _, err := readAll(t, NDJSON(path, Options{}), nil, 100); err == nil {
			t.Errorf("%s that is not compressed: no error", name)
		}
	}
	path := write(t, "in.csv.gz", gzipped(t, "a,b\n1,2\n\"x\n\",4\n"))
	resumeEverywhere(t, func() Source { return CSV(path, Options{}) }, []string{`{"a":"1","b":"2"}`, `{"a":"x\n","b":"4"}`})
}

func TestSeveralFilesInStableOrder(t *testing.T) {
	dir := t.TempDir()
	a, b, c := lines("a", 5), lines("b", 3), lines("c", 4)
	writeFile(t, filepath.Join(dir, "b.ndjson"), text(b))
	writeFile(t, filepath.Join(dir, "c.ndjson"), text(c))
	writeFile(t, filepath.Join(dir, "a.ndjson"), text(a))
	writeFile(t, filepath.Join(dir, "b2.ndjson"), "\n")
	writeFile(t, filepath.Join(dir, ".hidden"), "not JSON")
	if err := os.Mkdir(filepath.Join(dir, "sub.ndjson"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(a, b, c)
	for _, path := range []string{dir, filepath.Join(dir, "*.ndjson"), filepath.Join(dir, "[abc]*.ndjson")} {
		resumeEverywhere(t, func() Source { return NDJSON(path, Options{}) }, want)
	}
}

func TestFileNotThere(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "*.csv"), dir, filepath.Join(dir, "[")} {
		if _, err := readAll(t, NDJSON(path, Options{}), nil, 1); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestChangedFiles: a file that was replaced or shortened before the position is
// an error that says so; a copy of it elsewhere in time is not.
func TestChangedFiles(t *testing.T) {
	want := lines("a", 2000)
	whole := text(want)
	for name, c := range map[string]struct {
		now string
		err error
	}{
		"as it was":           {whole, nil},
		"grown":               {whole + "{}\n", nil},
		"changed after":       {whole[:20000] + "\n[1]\n", nil},
		"shortened":           {whole[:5000], ErrReplaced},
		"emptied":             {"", ErrReplaced},
		"another beginning":   {"[" + whole[1:], ErrReplaced},
		"another end":         {whole[:len(text(want[:1000]))-5] + "]" + whole[len(text(want[:1000]))-4:], ErrReplaced},
		"one line less":       {text(want[1:]), ErrReplaced},
		"another file":        {text(lines("b", 2000)), ErrReplaced},
		"in another line end": {strings.ReplaceAll(whole, "\n", "\r\n"), ErrReplaced},
	} {
		for _, ext := range []string{"", ".gz"} {
			t.Run(name+ext, func(t *testing.T) {
				pack := func(s string) string {
					if ext == "" {
						return s
					}
					return gzipped(t, s)
				}
				path := write(t, "in"+ext, pack(whole))
				position := positionAfter(t, NDJSON(path, Options{}), 1000)
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				writeFile(t, path, pack(c.now))
				err := NDJSON(path, Options{}).Open(t.Context(), []byte(position))
				if !errors.Is(err, c.err) || (err != nil && !strings.Contains(err.Error(), path)) {
					t.Errorf("error %v, want %v", err, c.err)
				}
			})
		}
	}
}

func TestChangedDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "d", "f"} {
		writeFile(t, filepath.Join(dir, name), text(lines(name, 10)))
	}
	position := []byte(positionAfter(t, NDJSON(dir, Options{}), 15))
	writeFile(t, filepath.Join(dir, "e"), text(lines("e", 1)))
	if got, err := readAll(t, NDJSON(dir, Options{}), position, 100); err != nil || len(got) != 5+1+10 {
		t.Errorf("file added behind the position: %d records, %v", len(got), err)
	}
	writeFile(t, filepath.Join(dir, "c"), "1\n")
	if _, err := readAll(t, NDJSON(dir, Options{}), position, 100); !errors.Is(err, ErrReplaced) {
		t.Errorf("file added before the position: %v", err)
	}
	for _, name := range []string{"c", "d"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readAll(t, NDJSON(dir, Options{}), position, 100); !errors.Is(err, ErrReplaced) {
		t.Errorf("file of the position removed: %v", err)
	}
}

func TestVanishedWhileReading(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		writeFile(t, filepath.Join(dir, name), text(lines(name, 10)))
	}
	s := NDJSON(dir, Options{})
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer closeSource(t, s)
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if recs, err := s.Read(t.Context(), 100); len(recs) != 10 || err != nil {
		t.Fatal(len(recs), err)
	}
	if _, err := s.Read(t.Context(), 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestForeignPositions(t *testing.T) {
	path := write(t, "in", text(lines("a", 3)))
	other := write(t, "in", text(lines("a", 3)))
	position := positionAfter(t, NDJSON(path, Options{}), 1)
	memory := positionAfter(t, Lines("1", "2"), 1)
	for name, c := range map[string]struct {
		s        Source
		position string
	}{
		"another path":     {NDJSON(other, Options{}), position},
		"another format":   {CSV(path, Options{}), position},
		"of memory":        {NDJSON(path, Options{}), memory},
		"empty":            {NDJSON(path, Options{}), ""},
		"newer version":    {NDJSON(path, Options{}), "\x02" + position[1:]},
		"memory, too far":  {Lines("1", "2"), "\x07"},
		"memory, of files": {Lines("1", "2"), position},
		"stream, of files": {NewStream("in", bytes.NewReader(nil), Options{}), position},
	} {
		if err := c.s.Open(t.Context(), []byte(c.position)); !errors.Is(err, committer.ErrForeignPosition) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParse(t *testing.T) {
	for spec, want := range map[string]string{
		"ndjson:a.csv": "ndjson:a.csv", "csv:x": "csv:x", "tsv:x": "tsv:x", "a.csv": "csv:a.csv", "a.tsv.gz": "tsv:a.tsv.gz",
		"a.json": "ndjson:a.json", "dir/*.csv.zst": "csv:dir/*.csv.zst", "-": "standard input", "other:x": "ndjson:other:x",
	} {
		s, err := Parse(spec, Options{})
		if err != nil || fmt.Sprint(s) != want {
			t.Errorf("Parse(%q) = %v, %v; want %s", spec, s, err, want)
		}
	}
	for _, spec := range []string{"", "csv:"} {
		if s, err := Parse(spec, Options{}); err == nil {
			t.Errorf("Parse(%q) = %v", spec, s)
		}
	}
}

func TestReadObeysContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, s := range []Source{Lines("1"), NDJSON(write(t, "in", "1\n"), Options{}), NDJSON(write(t, "in", "1\n"), Options{Follow: true, Logger: quiet()})} {
		if err := s.Open(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if recs, err := s.Read(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%T with a context that has ended: %q, %v", s, recs, err)
		}
		if recs, err := s.Read(t.Context(), 1); err != nil || len(recs) != 1 {
			t.Errorf("%T afterwards: %q, %v", s, recs, err)
		}
		closeSource(t, s)
	}
}

func somePosition() filesPosition {
	m := fileMark{mark: mark{path: "dir/a.log", off: 1 << 40, line: 77, head: 1 << 63, tail: 3}, dev: 5, ino: 1 << 60}
	return filesPosition{spec: "ndjson:dir", follow: true, done: 3, names: 1 << 62, marks: []fileMark{m, {mark: mark{path: "b"}}}, last: []fileMark{m}}
}

// goldenPosition is somePosition as version 1 writes it. Stores hold such bytes.
const goldenPosition = "010a6e646a736f6e3a6469720103400000000000000002096469722f612e6c6f678080808080204d80000000000000000000" +
	"000000000003058080808080808080100162000000000000000000000000000000000000000001096469722f612e6c6f678080808080204d8000000000000000000000000000000305808080808080808010"

func TestPositionRoundTrip(t *testing.T) {
	want := somePosition()
	b := want.encode()
	if golden := fmt.Sprintf("%x", b); golden != goldenPosition {
		t.Errorf("written as %s, version 1 is %s", golden, goldenPosition)
	}
	got, err := decodePosition(b, want.spec)
	if err != nil || !bytes.Equal(got.encode(), b) || len(got.marks) != 2 || got.marks[0] != want.marks[0] {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range b {
		if _, err := decodePosition(b[:n], want.spec); !errors.Is(err, committer.ErrForeignPosition) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
	for i := range 8 * len(b) {
		flipped := bytes.Clone(b)
		flipped[i/8] ^= 1 << (i % 8)
		if p, err := decodePosition(flipped, want.spec); err == nil && !bytes.Equal(p.encode(), flipped) {
			t.Errorf("bit %d flipped: read as something else", i)
		}
	}
}

func FuzzPosition(f *testing.F) {
	f.Add(somePosition().encode())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePosition(b, "ndjson:dir")
		if err == nil && !bytes.Equal(p.encode(), b) {
			t.Errorf("%x is read, and written as %x", b, p.encode())
		}
	})
}
