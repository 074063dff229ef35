// Package oracle says whether an output is what the input asks for. It knows
// nothing of walsink but how parts are named: it reads the files as any reader
// would, and shares no code with what it judges.
package oracle

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// A Record is one line of an output with the part it was found in.
type Record struct {
	Text string
	Part string
}

// Lanes are the records of an output by lane, in the order of the part names.
type Lanes map[string][]Record

// Len is the number of records in all lanes.
func (l Lanes) Len() int {
	n := 0
	for _, records := range l {
		n += len(records)
	}
	return n
}

// Read reads every visible file below dir, line by line. lane tells the lane from
// a part's path below dir; files and directories that begin with a dot are not part
// of an output.
func Read(dir string, lane func(part string) (string, error)) (Lanes, error) {
	paths, err := parts(dir)
	if err != nil {
		return nil, err
	}
	lanes := Lanes{}
	for _, path := range paths {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return nil, err
		}
		name, err := lane(rel)
		if err != nil {
			return nil, err
		}
		if lanes[name], err = readPart(path, rel, lanes[name]); err != nil {
			return nil, err
		}
	}
	return lanes, nil
}

// parts lists the visible files below dir, sorted by base name.
func parts(dir string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == dir:
			return filepath.SkipAll
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return filepath.SkipDir
			}
		case !d.IsDir():
			paths = append(paths, path)
		}
		return nil
	})
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return paths, err
}

func readPart(path, part string, records []Record) ([]Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := plain(path, f)
	if err != nil {
		return nil, fmt.Errorf("part %s: %w", part, err)
	}
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadString('\n')
		switch {
		case err == nil:
			records = append(records, Record{Text: line, Part: part})
		case errors.Is(err, io.EOF) && line == "":
			return records, nil
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("part %s ends in the middle of a line: %q", part, line)
		default:
			return nil, fmt.Errorf("part %s: %w", part, err)
		}
	}
}

// plain undoes the compression that the name of a part speaks of.
func plain(path string, r io.Reader) (io.Reader, error) {
	switch filepath.Ext(path) {
	case ".gz":
		return gzip.NewReader(r)
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return r, nil
}

// Exact checks that the lanes hold every line of want once, byte for byte, each
// lane in the order of want, and nothing else. The lines of want differ.
func (l Lanes) Exact(want []string) error {
	if err := l.Sound(want); err != nil {
		return err
	}
	if n := l.Len(); n != len(want) {
		return fmt.Errorf("%d of %d records are there; missing first: %q", n, len(want), l.missing(want))
	}
	return nil
}

// Sound checks that the lanes hold lines of want only, none twice, each lane in
// the order of want. Lines may be missing.
func (l Lanes) Sound(want []string) error {
	index := make(map[string]int, len(want))
	for i, line := range want {
		index[line] = i
	}
	seen := make(map[int]string, len(want))
	for _, lane := range slices.Sorted(maps.Keys(l)) {
		last := -1
		for _, r := range l[lane] {
			i, ok := index[r.Text]
			if !ok {
				return fmt.Errorf("part %s: a record that is not in the input: %q", r.Part, r.Text)
			}
			if first, twice := seen[i]; twice {
				return fmt.Errorf("input line %d is there twice: in part %s and in part %s", i+1, first, r.Part)
			}
			if i < last {
				return fmt.Errorf("lane %s: input line %d comes after line %d, in part %s", lane, i+1, last+1, r.Part)
			}
			seen[i], last = r.Part, i
		}
	}
	return nil
}

// Count returns how many lines of want are in no lane, and how many records are
// there again. The lines of want differ.
func (l Lanes) Count(want []string) (lost, again int) {
	seen := make(map[string]int, len(want))
	for _, records := range l {
		for _, r := range records {
			if seen[r.Text]++; seen[r.Text] > 1 {
				again++
			}
		}
	}
	for _, line := range want {
		if seen[line] == 0 {
			lost++
		}
	}
	return lost, again
}

// missing is the first line of want that is in no lane.
func (l Lanes) missing(want []string) string {
	have := map[string]bool{}
	for _, records := range l {
		for _, r := range records {
			have[r.Text] = true
		}
	}
	for _, line := range want {
		if !have[line] {
			return line
		}
	}
	return ""
}
