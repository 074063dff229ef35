package sources

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	readSize = 256 << 10
	headSize = 1 << 10 // bytes from the start that identify a file
	tailSize = 256     // bytes before the position that identify it
)

// ErrReplaced says that a file is not the one that a position was taken in: it was
// replaced, shortened or rewritten before the position.
var ErrReplaced = errors.New("file is not the one that was read before")

// A mark is a position in one file. The two hashes stand for the bytes before it,
// so that a file is known by its contents, on this machine or another one.
type mark struct {
	path string
	off  int64 // uncompressed
	line int64 // lines before off
	head uint64
	tail uint64
}

// A cursor reads one file from an offset, forward only.
type cursor struct {
	path  string
	dec   decoder
	limit int // longest record

	file *os.File
	in   io.Reader
	stop func()

	buf   []byte // keeps up to tailSize bytes before start
	start int    // first byte that was not taken yet
	end   int
	off   int64 // offset of buf[start]
	line  int64
	head  []byte // the first bytes of the file, at most headSize
	eof   bool   // nothing more could be read

	final  bool // the file does not grow, so that its end ends a record
	primed bool // the header was read
	any    bool // the position is behind a record of this file
}

// openCursor opens a file and goes to m, which was made by mark, or to the
// beginning if m has nothing but a path. Final says that the file does not grow.
func openCursor(kind string, m mark, limit int, final bool) (*cursor, error) {
	c := &cursor{path: m.path, dec: formats[kind](), limit: limit, final: final, stop: func() {}}
	file, err := os.Open(m.path)
	if err != nil {
		return nil, err
	}
	c.file, c.in = file, file
	if err := c.prepare(m); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cursor) prepare(m mark) error {
	info, err := c.file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a directory", c.path)
	}
	if err := c.decompress(); err != nil {
		return fmt.Errorf("%s: %w", c.path, err)
	}
	if m.off == 0 {
		return nil
	}
	if err := c.primeHeader(); err != nil {
		return err
	}
	if c.compressed() {
		err = c.skip(m.off)
	} else {
		err = c.seek(m.off, info.Size())
	}
	if err != nil {
		return err
	}
	c.line, c.any = m.line, true
	if now := c.mark(); now.head != m.head || now.tail != m.tail {
		return fmt.Errorf("%s: %w: the bytes before offset %d differ", c.path, ErrReplaced, m.off)
	}
	return nil
}

func (c *cursor) compressed() bool { return c.in != io.Reader(c.file) }

// decompress puts a decompressor before the file if its name asks for one.
func (c *cursor) decompress() error {
	switch {
	case strings.HasSuffix(c.path, ".gz"):
		z, err := gzip.NewReader(c.file)
		if err != nil {
			return noEOF(err)
		}
		c.in, c.stop = z, func() { _ = z.Close() }
	case strings.HasSuffix(c.path, ".zst"):
		z, err := zstd.NewReader(c.file, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		c.in, c.stop = z, z.Close
	}
	return nil
}

// noEOF is for places where the end of a file is one too early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// primeHeader reads on until the decoder knows what the file begins with.
func (c *cursor) primeHeader() error {
	for c.dec.header() && !c.primed {
		if _, err := c.next(); err != nil {
			return err
		}
		if c.primed {
			return nil
		}
		if c.eof {
			return c.shortened(0)
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cursor) shortened(size int64) error {
	return fmt.Errorf("%s: %w: it has only %d bytes", c.path, ErrReplaced, size)
}

// skip reads up to off. What was read before may already be beyond it.
func (c *cursor) skip(off int64) error {
	for c.off+int64(c.end-c.start) < off {
		c.off += int64(c.end - c.start)
		c.start = c.end
		if c.eof {
			return c.shortened(c.off)
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
	if off >= c.off {
		c.start += int(off - c.off)
		c.off = off
		return nil
	}
	back := int(c.off - off)
	if back > c.start {
		return fmt.Errorf("%s: %w: offset %d is inside the header", c.path, ErrReplaced, off)
	}
	c.start -= back
	c.off = off
	return nil
}

// seek goes to off in a plain file of that size.
func (c *cursor) seek(off, size int64) error {
	if off > size {
		return c.shortened(size)
	}
	head := make([]byte, min(headSize, off))
	if _, err := c.file.ReadAt(head, 0); err != nil {
		return err
	}
	tail := min(tailSize, off)
	if _, err := c.file.Seek(off-tail, io.SeekStart); err != nil {
		return err
	}
	c.buf = make([]byte, readSize)
	if _, err := io.ReadFull(c.file, c.buf[:tail]); err != nil {
		return err
	}
	c.head, c.off, c.start, c.end, c.eof = head, off, int(tail), int(tail), false
	return nil
}

// rewind goes back to the beginning of a plain file that was rewritten.
func (c *cursor) rewind(kind string) error {
	if _, err := c.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	c.dec, c.primed, c.any, c.eof = formats[kind](), false, false, false
	c.start, c.end, c.off, c.line, c.head = 0, 0, 0, 0, nil
	return nil
}

// mark is the present position.
func (c *cursor) mark() mark {
	head := c.head[:min(int64(len(c.head)), c.off)]
	tail := c.buf[c.start-min(c.start, tailSize, int(min(c.off, tailSize))) : c.start]
	return mark{path: c.path, off: c.off, line: c.line, head: xxhash.Sum64(head), tail: xxhash.Sum64(tail)}
}

// next returns the next record that is wholly in the buffer, or nil. What is no
// record is taken together with the record behind it, so that the position is
// always right behind a record.
func (c *cursor) next() ([]byte, error) {
	skip, ok := c.skipBOM()
	lines := 0
	for ok {
		b := c.buf[c.start+skip : c.end]
		if len(b) == 0 {
			return nil, nil
		}
		rec, size, n, err := c.dec.next(b, c.eof && c.final)
		if long := size == 0 && len(b) > c.limit; err == nil && (long || len(rec) > c.limit) {
			err = fmt.Errorf("record over the limit of %d bytes", c.limit)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: offset %d: %w", c.path, c.line+int64(lines)+1, c.off+int64(skip), err)
		}
		if size == 0 {
			return nil, nil
		}
		skip += size
		lines += n
		if rec != nil {
			c.move(skip, lines)
			return rec, nil
		}
		if c.dec.header() && !c.primed {
			c.move(skip, lines)
			c.primed, skip, lines = true, 0, 0
		}
	}
	return nil, nil
}

// move moves the position.
func (c *cursor) move(size, lines int) {
	c.start += size
	c.off += int64(size)
	c.line += int64(lines)
}

var bom = []byte("\xef\xbb\xbf")

// skipBOM returns the length of a byte order mark at the beginning of the file. It
// is false if more bytes are needed to tell.
func (c *cursor) skipBOM() (size int, ok bool) {
	if c.off > 0 {
		return 0, true
	}
	b := c.buf[c.start:c.end]
	if bytes.HasPrefix(b, bom) {
		return len(bom), true
	}
	return 0, c.eof || !bytes.HasPrefix(bom, b)
}

// fill reads more bytes behind those in the buffer, and moves those to the front
// first. Records returned before are no longer valid.
func (c *cursor) fill() error {
	keep := min(c.start, tailSize)
	copy(c.buf, c.buf[c.start-keep:c.end])
	c.end -= c.start - keep
	c.start = keep
	if c.buf == nil {
		c.buf = make([]byte, readSize)
	}
	if len(c.buf)-c.end < readSize/4 {
		c.buf = append(c.buf, make([]byte, len(c.buf))...)
	}
	n, err := c.in.Read(c.buf[c.end:])
	if room := headSize - len(c.head); room > 0 {
		c.head = append(c.head, c.buf[c.end:c.end+min(n, room)]...)
	}
	c.end += n
	c.eof = errors.Is(err, io.EOF)
	if err != nil && !c.eof {
		return fmt.Errorf("%s: read at offset %d: %w", c.path, c.off+int64(c.end-c.start), err)
	}
	return nil
}

// take appends up to limit records to recs, of those that are in the buffer. It
// fails only if it has none.
func (c *cursor) take(recs [][]byte, limit int) ([][]byte, error) {
	for len(recs) < limit {
		rec, err := c.next()
		if err != nil && len(recs) == 0 {
			return recs, err
		}
		if rec == nil {
			return recs, nil
		}
		c.any = true
		recs = append(recs, rec)
	}
	return recs, nil
}

// read is as take, but reads from the file while it has none. At the end of the
// file it returns recs as they are.
func (c *cursor) read(recs [][]byte, limit int) ([][]byte, error) {
	for {
		recs, err := c.take(recs, limit)
		if len(recs) > 0 || err != nil || c.eof {
			return recs, err
		}
		if err := c.fill(); err != nil {
			return recs, err
		}
	}
}

func (c *cursor) close() {
	c.stop()
	_ = c.file.Close() // opened for reading only
}
