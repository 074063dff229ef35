package sources

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Files reads the records of one or several files, one file after the other in
// the order of their names, or as they come with Options.Follow.
type Files struct {
	kind, path string
	opts       Options
	recs       [][]byte

	// Without Follow.
	list  []string
	index int // of the file that cur reads, or is to read next
	cur   *cursor
	at    filesPosition // after the last record returned

	follow *follower
}

// NDJSON returns a source of files with one JSON value per line. The path may be
// a file, a directory or a pattern.
func NDJSON(path string, opts Options) *Files { return newFiles("ndjson", path, opts) }

// CSV returns a source of comma-separated files with a header. Each row becomes a
// JSON object of strings.
func CSV(path string, opts Options) *Files { return newFiles("csv", path, opts) }

// TSV is as CSV, with tabs.
func TSV(path string, opts Options) *Files { return newFiles("tsv", path, opts) }

func newFiles(kind, path string, opts Options) *Files {
	return &Files{kind: kind, path: path, opts: opts.withDefaults()}
}

// String returns the description that Parse takes.
func (f *Files) String() string { return f.kind + ":" + f.path }

// Paths returns the files that the source stands for now, in the order of their names.
func (f *Files) Paths() ([]string, error) { return list(f.path) }

// Endless reports whether the source follows its files.
func (f *Files) Endless() bool { return f.opts.Follow }

// Open finds the files and goes to a position. A file that is missing, shorter
// than the position or different before it is an error: ErrReplaced or that of
// the file system.
func (f *Files) Open(_ context.Context, position []byte) error {
	p := filesPosition{spec: f.String(), follow: f.opts.Follow}
	if position != nil {
		var err error
		if p, err = decodePosition(position, f.String()); err != nil {
			return err
		}
	}
	if f.opts.Follow {
		return f.openFollow(p, position != nil)
	}
	list, err := list(f.path)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("%s: no such file", f.path)
	}
	f.list, f.at = list, p
	return f.resume()
}

// resume opens the file that the position is in.
func (f *Files) resume() error {
	if f.at.follow && (len(f.at.marks) != 1 || f.at.done > 0) {
		return fmt.Errorf("%s: the position was taken while several files were followed; go on with follow", f.path)
	}
	f.at.follow = false
	f.index = int(min(f.at.done, uint64(len(f.list))))
	if len(f.at.marks) == 0 {
		f.index = 0
		return f.openAt(mark{path: f.list[0]})
	}
	m := f.at.marks[0].mark
	same := f.index < len(f.list) && f.list[f.index] == m.path && (f.index == 0 || hashNames(f.list[:f.index]) == f.at.names)
	if !same {
		return fmt.Errorf("%s: %w: %d files came before %s and were read, now they are others", f.path, ErrReplaced, f.at.done, m.path)
	}
	return f.openAt(m)
}

func (f *Files) openAt(m mark) error {
	c, err := openCursor(f.kind, m, f.opts.MaxRecord, true)
	f.cur = c
	return err
}

// Read returns up to limit records, all of one file.
func (f *Files) Read(ctx context.Context, limit int) ([][]byte, error) {
	if f.follow != nil {
		return f.follow.read(ctx, limit)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f.cur == nil {
			return nil, io.EOF
		}
		f.cur.dec.begin()
		recs, err := f.cur.read(f.recs[:0], limit)
		f.recs = recs
		if err != nil {
			return nil, err
		}
		if len(recs) > 0 {
			return recs, nil
		}
		if err := f.advance(); err != nil {
			return nil, err
		}
	}
}

// advance goes to the next file.
func (f *Files) advance() error {
	if f.cur.any {
		f.keep()
	}
	f.cur.close()
	f.cur = nil
	if f.index+1 == len(f.list) {
		return nil
	}
	f.index++
	return f.openAt(mark{path: f.list[f.index]})
}

// Position returns the place after the last record returned by Read.
func (f *Files) Position() []byte {
	if f.follow != nil {
		return f.follow.position().encode()
	}
	if f.cur != nil && f.cur.any {
		f.keep()
	}
	if len(f.at.marks) == 0 {
		return nil
	}
	return f.at.encode()
}

// keep takes the position of the file being read.
func (f *Files) keep() {
	f.at.done, f.at.names = uint64(f.index), hashNames(f.list[:f.index])
	f.at.marks = []fileMark{{mark: f.cur.mark()}}
}

// Close closes the files.
func (f *Files) Close() error {
	if f.cur != nil {
		f.cur.close()
		f.cur = nil
	}
	if f.follow != nil {
		f.follow.close()
	}
	return nil
}

func hashNames(names []string) uint64 { return xxhash.Sum64String(strings.Join(names, "\x00")) }

// list returns the files that a path stands for, in the order of their names:
// the file itself, those in a directory, not below it and without hidden ones, or
// those that match a pattern.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return listDir(path)
	case err == nil:
		return []string{path}, nil
	case !os.IsNotExist(err) || !strings.ContainsAny(path, `*?[`):
		return nil, err
	}
	names, err := filepath.Glob(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.IsDir()
	})
	slices.Sort(names)
	return names, nil
}

func listDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	slices.Sort(names)
	return names, nil
}
