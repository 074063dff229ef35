package sources

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/walsink/walsink/committer"
)

// Stream reads NDJSON from something that cannot be read again, as standard
// input. What can be promised is at-most-once: records that were read and are not
// in a completed checkpoint when the process dies are lost, since nobody has them
// any more. It resumes by going on with whatever comes.
type Stream struct {
	name  string
	opts  Options
	in    *chunks
	cur   *cursor
	recs  [][]byte
	count uint64
}

// NewStream returns a source of what r yields. The name is for messages. Reading
// begins with Open. If r is an io.Closer, Close closes it, so that a read that
// waits ends; where closing does not end it, as with a terminal, one goroutine
// waits until the read returns.
func NewStream(name string, r io.Reader, opts Options) *Stream {
	return &Stream{name: name, opts: opts.withDefaults(), in: newChunks(r)}
}

// String returns the name.
func (s *Stream) String() string { return s.name }

// Replayable says that the stream is not, and why.
func (s *Stream) Replayable() (bool, string) {
	return false, s.name + " cannot be read again: what was read and is not in a checkpoint is lost with the process"
}

// Endless says that nobody knows when the stream ends.
func (s *Stream) Endless() bool { return true }

// Open starts reading. Of a position only the number of records is used, to go
// on counting. A Stream opens once.
func (s *Stream) Open(_ context.Context, position []byte) error {
	if s.cur != nil {
		return fmt.Errorf("%s: opened twice", s.name)
	}
	if position != nil {
		n, size := binary.Uvarint(position)
		if size <= 0 || size != len(position) {
			return fmt.Errorf("%w: not a position of %s", committer.ErrForeignPosition, s.name)
		}
		s.count = n
	}
	s.cur = &cursor{path: s.name, dec: ndjson{}, limit: s.opts.MaxRecord, in: s.in, final: true}
	go s.in.run()
	return nil
}

// Read returns up to limit records.
func (s *Stream) Read(ctx context.Context, limit int) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.in.ctx = ctx
	recs, err := s.cur.read(s.recs[:0], limit)
	s.recs = recs
	if err != nil {
		return nil, err
	}
	if len(recs) == 0 {
		return nil, io.EOF
	}
	s.count += uint64(len(recs))
	return recs, nil
}

// Position returns the number of records read.
func (s *Stream) Position() []byte { return binary.AppendUvarint(nil, s.count) }

// Close closes the reader if it can.
func (s *Stream) Close() error { return s.in.close() }

const chunkSize = 64 << 10

// chunks reads ahead, so that waiting for r can be given up.
type chunks struct {
	r    io.Reader
	free chan []byte
	full chan chunk
	stop chan struct{}

	ctx    context.Context // of the Read in progress
	rest   chunk           // not handed out yet
	closed bool
}

type chunk struct {
	b, mem []byte
	err    error
}

func newChunks(r io.Reader) *chunks {
	c := &chunks{r: r, free: make(chan []byte, 2), full: make(chan chunk, 2), stop: make(chan struct{})}
	for range cap(c.free) {
		c.free <- make([]byte, chunkSize)
	}
	return c
}

// run reads until the first error, which it hands over, or until stop is closed.
func (c *chunks) run() {
	for {
		select {
		case <-c.stop:
			return
		case mem := <-c.free:
			n, err := c.r.Read(mem)
			c.full <- chunk{b: mem[:n], mem: mem, err: err} // has room for all there are
			if err != nil {
				return
			}
		}
	}
}

// Read implements io.Reader. It fails with the context's error when ctx ends, and
// can then be called again.
func (c *chunks) Read(p []byte) (int, error) {
	for len(c.rest.b) == 0 {
		if c.rest.err != nil {
			return 0, c.rest.err
		}
		if c.rest.mem != nil {
			c.free <- c.rest.mem
			c.rest.mem = nil
		}
		select {
		case c.rest = <-c.full:
		case <-c.ctx.Done():
			return 0, c.ctx.Err()
		}
	}
	n := copy(p, c.rest.b)
	c.rest.b = c.rest.b[n:]
	return n, nil
}

func (c *chunks) close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	close(c.stop)
	if closer, ok := c.r.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
