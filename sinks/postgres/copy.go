package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"sort"
	"sync"

	"github.com/walsink/walsink/sinks"
)

// A source feeds the records of a step to COPY as one stream of bytes, and
// remembers which line is which record. COPY reads it from a goroutine that may
// outlive the call when a connection breaks, so the lock and Close make sure
// that nothing of the step is touched afterwards.
type source struct {
	mu    sync.Mutex
	liner liner
	tuple bool // tuples go out, and lines otherwise
	next  func() (sinks.Run, error, bool)
	stop  func()
	rest  []byte // of the current block
	text  []byte // lines that were made of tuples
	runs  []span // those that were begun
	lines uint64 // of all of them
	err   error  // what ended the stream, io.EOF included
}

// A span is a run of records with the line of COPY at which it begins, from 0.
type span struct {
	line  uint64
	batch int
	first uint64
}

// copyHead and copyTail enclose tuples: signature, flags, length of an extension;
// and instead of a tuple -1.
const (
	copyHead = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	copyTail = "\xff\xff"
)

// newSource returns the stream of the records in runs, as tuples or as lines. A
// stream of tuples ends with errLine if a record is a line.
func newSource(runs iter.Seq2[sinks.Run, error], l liner, tuple bool) *source {
	s := &source{liner: l, tuple: tuple}
	s.next, s.stop = iter.Pull2(runs)
	if tuple {
		s.rest = []byte(copyHead)
	}
	return s
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(p) {
		if len(s.rest) == 0 && !s.advance() {
			break
		}
		m := copy(p[n:], s.rest)
		s.rest = s.rest[m:]
		n += m
	}
	if n == 0 && s.err != nil {
		return 0, s.err
	}
	return n, nil
}

// advance takes the next run. It is false at the end of the stream.
func (s *source) advance() bool {
	if s.err != nil {
		return false
	}
	run, err, ok := s.next()
	if !ok {
		s.err = io.EOF
		if s.tuple {
			s.rest = []byte(copyTail)
		}
		return s.tuple
	}
	if err == nil {
		err = s.begin(run)
	}
	s.err = err
	return err == nil
}

// begin notes the run and checks that each of its records is one line, or one
// tuple, since otherwise COPY's lines and records would no longer correspond.
func (s *source) begin(run sinks.Run) error {
	check := s.beginLines
	if s.tuple {
		check = s.beginTuples
	}
	bad, err := check(run)
	if err != nil {
		return err
	}
	if len(bad) > 0 {
		return &sinks.Error{Kind: sinks.Poison, Op: "flush", Bad: bad}
	}
	s.runs = append(s.runs, span{s.lines, run.Batch, run.First})
	s.lines += uint64(run.Block.Len())
	return nil
}

func (s *source) beginTuples(run sinks.Run) (bad []sinks.Reject, err error) {
	n, limit := s.liner.fields(run.Batch), s.liner.limit
	for i := range run.Block.Len() {
		rec := run.Block.Record(i)
		if why := badTuple(rec, n, limit); why != "" {
			if !isTuple(rec) && badLine(rec, limit) == "" {
				return nil, errLine
			}
			bad = append(bad, reject(run, i, why))
		}
	}
	s.rest = run.Block.Payload()
	return bad, nil
}

func (s *source) beginLines(run sinks.Run) (bad []sinks.Reject, err error) {
	made := false
	for i, rec := range run.Block.All() {
		line, why := s.liner.line(run.Batch, rec)
		if why != "" {
			bad = append(bad, reject(run, i, why))
		}
		if !made && isTuple(rec) { // what came before is as it was
			made = true
			s.text = append(s.text[:0], run.Block.Slice(0, i).Payload()...)
		}
		if made {
			s.text = append(s.text, line...)
		}
	}
	if s.rest = run.Block.Payload(); made {
		s.rest = s.text
	}
	return bad, nil
}

func reject(run sinks.Run, i int, why string) sinks.Reject {
	return sinks.Reject{Batch: run.Batch, Number: run.First + uint64(i), Reason: why}
}

// badLine says why a record is not one line of COPY data, or returns "".
func badLine(rec []byte, limit int) string {
	n := len(rec) - 1
	switch {
	case n < 0 || bytes.IndexByte(rec, '\n') != n:
		return "not made by an encoder of this sink: not exactly one line"
	case n == 2 && rec[0] == '\\' && rec[1] == '.':
		return "not made by an encoder of this sink: end of data inside the data"
	case n >= limit:
		return tooLong(rec, limit)
	}
	return ""
}

func tooLong(rec []byte, limit int) string {
	return fmt.Sprintf("record of %d bytes, the limit is %d", len(rec), limit)
}

// close ends the stream and waits for a Read that is under way. It returns the
// error that ended the stream early, if it was our side's.
func (s *source) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	err := s.err
	s.rest, s.err = nil, errClosed
	if errors.Is(err, io.EOF) || errors.Is(err, errClosed) {
		return nil
	}
	return err
}

var errClosed = errors.New("source is closed")

// locate returns the record at a line of COPY, from 1.
func (s *source) locate(line uint64) (batch int, number uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line == 0 || line > s.lines {
		return 0, 0, false
	}
	i := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].line >= line }) - 1
	r := s.runs[i]
	return r.batch, r.first + line - 1 - r.line, true
}
