package sources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// A follower reads files that grow. Its tails are in the order in which they are
// read: of the files that had one path, the older first.
type follower struct {
	files *Files
	tails []*tail
	last  []fileMark // as in filesPosition; for a single path only
	recs  [][]byte
	turn  int       // index of the tail to look at first
	next  time.Time // of the next look at the directory
}

// A tail is a file that is followed.
type tail struct {
	cur    *cursor
	origin string // path that the file had when it was found
	dev    uint64
	ino    uint64
	moved  bool      // origin is not its path any more: it ends when it is quiet
	size   int64     // when last looked at
	since  time.Time // when it last grew
	done   bool
}

// openFollow finds the files of a position, and those that are new.
func (f *Files) openFollow(p filesPosition, resumed bool) error {
	if resumed && !p.follow && (p.done > 0 || len(p.marks) != 1) {
		return fmt.Errorf("%s: the position was taken while files were read one after the other; finish without follow", f.path)
	}
	fo := &follower{files: f, last: p.last}
	f.follow = fo
	for _, m := range p.marks {
		if err := fo.find(m); err != nil {
			return err
		}
	}
	if !resumed || !p.follow {
		if err := fo.begin(); err != nil {
			return err
		}
	} else if err := fo.catchUp(nil); err != nil {
		return err
	}
	return fo.look()
}

// add begins to follow a file at m. The path is where the file is now.
func (fo *follower) add(path string, m fileMark, moved bool) error {
	origin := m.path
	m.path = path
	cur, err := openCursor(fo.files.kind, m.mark, fo.files.opts.MaxRecord, false)
	if err != nil {
		return err
	}
	cur.final = cur.compressed()
	info, err := cur.file.Stat()
	if err != nil {
		cur.close()
		return err
	}
	t := &tail{cur: cur, origin: origin, moved: moved, since: time.Now(), size: -1}
	t.dev, t.ino = fileID(info)
	fo.tails = append(fo.tails, t)
	return nil
}

// read returns the next records of any file that has some.
func (fo *follower) read(ctx context.Context, limit int) ([][]byte, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		recs, err := fo.poll(limit)
		if len(recs) > 0 || err != nil {
			return recs, err
		}
		if wait := time.Until(fo.next); wait > 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(wait):
			}
		}
		if err := fo.look(); err != nil {
			return nil, err
		}
	}
}

// poll asks each file once, beginning after the one that had something last.
func (fo *follower) poll(limit int) ([][]byte, error) {
	for i := range fo.tails {
		n := (fo.turn + i) % len(fo.tails) // the list may grow meanwhile
		t := fo.tails[n]
		if fo.waits(n) {
			continue
		}
		t.cur.dec.begin()
		recs, err := fo.pollOne(t, limit)
		fo.recs = recs
		if err != nil {
			return nil, err
		}
		if len(recs) > 0 {
			fo.turn = n + 1
			return recs, nil
		}
	}
	for _, t := range fo.tails {
		if t.done {
			fo.finished(t)
			t.cur.close()
		}
	}
	fo.tails = slices.DeleteFunc(fo.tails, func(t *tail) bool { return t.done })
	return nil, nil
}

// waits reports whether an older file of the same path is not finished.
func (fo *follower) waits(n int) bool {
	for _, older := range fo.tails[:n] {
		if older.origin == fo.tails[n].origin && !older.done {
			return true
		}
	}
	return false
}

// pollOne reads what a file has. A file that was moved away and is quiet comes to
// its end. Before anything is read, what was read before must still be there.
func (fo *follower) pollOne(t *tail, limit int) ([][]byte, error) {
	for !t.done {
		recs, err := t.cur.take(fo.recs[:0], limit)
		if len(recs) > 0 || err != nil {
			return recs, err
		}
		more, err := fo.grown(t)
		if err != nil || !more {
			return recs, err
		}
		if err := t.cur.fill(); err != nil {
			return recs, err
		}
		if t.cur.eof && t.cur.final {
			recs, err = t.cur.take(recs, limit)
			t.done = len(recs) == 0
			return recs, err
		}
	}
	return fo.recs[:0], nil
}

// grown reports whether there is something to be read at what was the end of a
// file, and restarts a file that was cut.
func (fo *follower) grown(t *tail) (bool, error) {
	info, err := t.cur.file.Stat()
	if err != nil {
		return false, err
	}
	now := time.Now()
	if info.Size() != t.size {
		t.size, t.since = info.Size(), now
	}
	switch read := t.cur.off + int64(t.cur.end-t.cur.start); {
	case t.cur.compressed():
		return t.moved || !t.cur.eof, nil
	case info.Size() < read || !t.cur.same(read):
		return false, fo.cut(t)
	case info.Size() > read:
		return true, nil
	}
	if t.moved && now.Sub(t.since) >= fo.files.opts.Quiet {
		t.cur.final = true
		return true, nil
	}
	return false, nil
}

// same reports whether the last bytes that were read are still in the file, ahead
// of read.
func (c *cursor) same(read int64) bool {
	have := c.buf[c.end-int(min(tailSize, int64(c.end), read)) : c.end]
	now := make([]byte, len(have))
	n, err := c.file.ReadAt(now, read-int64(len(have)))
	return (err == nil || n == len(now)) && string(now) == string(have)
}

// cut deals with a file that was truncated. A copy that was made before is read
// to its end first.
func (fo *follower) cut(t *tail) error {
	m := fileMark{mark: t.cur.mark()}
	m.path = t.origin
	log := fo.files.opts.Logger
	found := false
	if t.cur.any {
		var err error
		if found, err = fo.findCopy(m, t); err != nil {
			return err
		}
		if err := fo.catchUp(t); err != nil {
			return err
		}
	}
	if !found {
		log.Warn("file was truncated: lines that were added after the offset and before that are gone unless they had been read",
			"file", t.origin, "offset", m.off)
	}
	return t.cur.rewind(fo.files.kind)
}

// position is the marks of all files.
func (fo *follower) position() filesPosition {
	p := filesPosition{spec: fo.files.String(), follow: true, last: fo.last}
	for _, t := range fo.tails {
		p.marks = append(p.marks, t.mark())
	}
	return p
}

func (t *tail) mark() fileMark {
	m := fileMark{mark: mark{path: t.origin}, dev: t.dev, ino: t.ino}
	if t.cur.any {
		m.mark = t.cur.mark()
		m.path = t.origin
	}
	return m
}

func (fo *follower) close() {
	for _, t := range fo.tails {
		t.cur.close()
	}
	fo.tails = nil
}

// look finds files that are new, and files that are no longer where they were.
func (fo *follower) look() error {
	fo.next = time.Now().Add(fo.files.opts.Poll)
	names, err := list(fo.files.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	here := map[*tail]bool{}
	var fresh []string
	for _, name := range names {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if t := fo.tracked(info, name); t != nil {
			here[t] = true
			t.stays(name)
		} else {
			fresh = append(fresh, name)
		}
	}
	for _, t := range fo.tails {
		if !here[t] && !t.moved {
			t.moved, t.since = true, time.Now()
		}
	}
	if len(here) == 0 {
		if err := fo.catchUp(nil); err != nil {
			return err
		}
	}
	for _, name := range fresh {
		if err := fo.welcome(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// welcome follows a new file, unless it was found by other means meanwhile.
func (fo *follower) welcome(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if t := fo.tracked(info, path); t != nil {
		t.stays(path)
		return nil
	}
	return fo.add(path, fileMark{mark: mark{path: path}}, false)
}

// stays says that the file has a path that is followed, perhaps a new one.
func (t *tail) stays(path string) {
	t.origin, t.moved = path, false
}

// tracked returns the tail of the file that a path names now.
func (fo *follower) tracked(info fs.FileInfo, path string) *tail {
	dev, ino := fileID(info)
	for _, t := range fo.tails {
		known := t.ino != 0 && t.dev == dev && t.ino == ino
		if known || (ino == 0 && t.origin == path && !t.moved) {
			return t
		}
	}
	return nil
}
