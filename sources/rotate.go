package sources

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// find goes on with a file of a position: under its path, under another name in
// the same directory, or in a copy of it.
func (fo *follower) find(m fileMark) error {
	info, err := os.Stat(m.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	here := err == nil && fo.tracked(info, m.path) == nil
	if here && sameFile(info, m) {
		if err := fo.add(m.path, m, false); !elsewhere(err) {
			return err
		}
	}
	if found, err := fo.findMoved(m); found || err != nil || m.off == 0 {
		return err
	}
	if here && !sameFile(info, m) {
		if err := fo.add(m.path, m, false); !elsewhere(err) {
			return err
		}
	}
	if found, err := fo.findCopy(m, nil); found || err != nil {
		return err
	}
	fo.files.opts.Logger.Warn("file is gone or was rewritten: lines behind the offset are lost unless they had been read",
		"file", m.path, "offset", m.off)
	return nil
}

// elsewhere reports whether the file under a path is not the one that is looked for, or
// was renamed between the look at it and its opening.
func elsewhere(err error) bool { return errors.Is(err, ErrReplaced) || errors.Is(err, fs.ErrNotExist) }

func sameFile(info fs.FileInfo, m fileMark) bool {
	dev, ino := fileID(info)
	return ino != 0 && dev == m.dev && ino == m.ino
}

// findMoved looks for the file itself under another name.
func (fo *follower) findMoved(m fileMark) (bool, error) {
	entries, err := os.ReadDir(filepath.Dir(m.path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !sameFile(info, m) || e.Name() == filepath.Base(m.path) {
			continue
		}
		path := filepath.Join(filepath.Dir(m.path), e.Name())
		if err := fo.add(path, m, true); elsewhere(err) {
			continue
		} else if err != nil {
			return false, err
		}
		return true, nil
	}
	return false, nil
}

// findCopy looks for a file with the same contents up to the mark, which is what
// rotation by copying leaves. What it has behind the mark is read, before the tail
// that is given.
func (fo *follower) findCopy(m fileMark, before *tail) (bool, error) {
	gens, err := generations(m.path)
	if err != nil {
		return false, err
	}
	for _, g := range gens {
		if fo.tracked(g.info, g.path) != nil {
			continue
		}
		err := fo.add(g.path, m, true)
		if elsewhere(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if before == nil {
			return true, nil
		}
		added := fo.tails[len(fo.tails)-1]
		fo.tails = slices.Insert(fo.tails[:len(fo.tails)-1], slices.Index(fo.tails, before), added)
		return true, nil
	}
	return false, nil
}

// single reports whether the source is of one path, so that it is clear what the
// name of a moved file looks like.
func (fo *follower) single() bool {
	info, err := os.Stat(fo.files.path)
	if err == nil {
		return !info.IsDir()
	}
	return !strings.ContainsAny(fo.files.path, `*?[`)
}

// begin notes what was moved away before the first start. It is not read.
func (fo *follower) begin() error {
	path := fo.files.path
	if !fo.single() {
		return nil
	}
	gens, err := generations(path)
	if err != nil || len(gens) == 0 {
		return err
	}
	fo.last, err = endOf(fo.files.kind, gens[len(gens)-1], path)
	return err
}

// catchUp follows the files that had the path and were moved away while nobody
// looked. Files are finished in the order in which they were moved, so they are
// those behind the newest that is known. With a tail given they are those older
// than it.
func (fo *follower) catchUp(than *tail) error {
	path := fo.files.path
	if !fo.single() {
		return nil
	}
	gens, err := generations(path)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(fo.tails, func(t *tail) bool { return !t.moved })
	if than != nil {
		at = slices.Index(fo.tails, than)
		if i := slices.IndexFunc(gens, func(g generation) bool { return fo.tracked(g.info, g.path) == than }); i >= 0 {
			gens = gens[:i]
		}
	}
	p, first := fo.position(), len(gens)
	for first > 0 && !fo.knows(gens[first-1], p) {
		first--
	}
	for _, g := range gens[first:] {
		if err := fo.add(g.path, fileMark{mark: mark{path: path}}, true); err != nil {
			return err
		}
		if n := len(fo.tails) - 1; at >= 0 {
			fo.tails = slices.Insert(fo.tails[:n], at, fo.tails[n])
			at++
		}
	}
	return nil
}

// knows reports whether a moved file is one of the position, itself or a copy.
func (fo *follower) knows(g generation, p filesPosition) bool {
	if fo.tracked(g.info, g.path) != nil {
		return true
	}
	for _, m := range slices.Concat(p.last, p.marks) {
		if m.off == 0 && sameFile(g.info, m) {
			return true
		}
		if m.off == 0 {
			continue
		}
		m.path = g.path
		if c, err := openCursor(fo.files.kind, m.mark, fo.files.opts.MaxRecord, true); err == nil {
			c.close()
			return true
		}
	}
	return false
}

// finished remembers the newest file that was moved away and read to its end.
func (fo *follower) finished(t *tail) { fo.last = []fileMark{t.mark()} }

// endOf is the mark at the end of a file that was moved away.
func endOf(kind string, g generation, origin string) ([]fileMark, error) {
	c, err := openCursor(kind, mark{path: g.path}, maxInt, true)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if !c.compressed() && g.info.Size() > 0 {
		err = c.seek(g.info.Size(), g.info.Size())
	}
	for err == nil && !c.eof {
		c.off += int64(c.end - c.start)
		c.start = c.end
		err = c.fill()
	}
	if err != nil {
		return nil, err
	}
	c.off += int64(c.end - c.start)
	c.start = c.end
	m := fileMark{mark: c.mark()}
	m.path = origin
	m.dev, m.ino = fileID(g.info)
	return []fileMark{m}, nil
}

// A generation is a file that was moved away from a path by rotation.
type generation struct {
	path   string
	info   fs.FileInfo
	suffix string
}

// generations returns the files whose names begin with that of the path, oldest
// first.
func generations(path string) ([]generation, error) {
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var gens []generation
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), base)
		info, err := e.Info()
		if !ok || suffix == "" || err != nil || !info.Mode().IsRegular() {
			continue
		}
		gens = append(gens, generation{path: dir + e.Name(), info: info, suffix: suffix})
	}
	slices.SortFunc(gens, olderFirst)
	return gens, nil
}

// olderFirst orders by the time of the last write. For equal times it goes by the
// name: of two numbers the higher is older, of two dates the lower.
func olderFirst(a, b generation) int {
	if c := a.info.ModTime().Compare(b.info.ModTime()); c != 0 {
		return c
	}
	x, errX := strconv.Atoi(strings.TrimLeft(a.suffix, ".-"))
	y, errY := strconv.Atoi(strings.TrimLeft(b.suffix, ".-"))
	if errX == nil && errY == nil && max(x, y) < firstDate {
		return cmp.Compare(y, x)
	}
	return strings.Compare(a.suffix, b.suffix)
}

// firstDate is where numbers in names are dates rather than counts.
const firstDate = 10_000_000
