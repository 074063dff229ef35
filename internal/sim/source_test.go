package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/walsink/walsink/pipeline"
)

// Records and rows are bytes: a record is source, number and key, a row has after
// them which one of its record's rows it is, and the count of its key. A tail whose
// length hangs on the number follows.
const (
	atNumber = 1
	atKey    = 3
	atPart   = 4
	atCount  = 5
	atTail   = 7
)

const keys = 5

func keyOf(source, n int) byte { return byte((source*3 + n*n) % keys) }

// record appends record n of a source.
func appendRecord(dst []byte, source, n int) []byte {
	dst = append(dst, byte(source))
	dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	return append(dst, keyOf(source, n))
}

// appendRow appends a row that is made of a record.
func appendRow(dst, rec []byte, part int, count uint16) []byte {
	dst = append(dst, rec[:atPart]...)
	dst = append(dst, byte(part))
	dst = binary.BigEndian.AppendUint16(dst, count)
	for i := range int(rec[atNumber+1]) % 9 {
		dst = append(dst, rec[atNumber+1]+byte(i))
	}
	return dst
}

// fanOut is the number of rows of a record in a run without state.
func fanOut(n int) int { return []int{1, 1, 2, 0, 1, 3, 1}[n%7] }

// fan makes the rows of a record.
func fan(rec []byte, emit pipeline.Emit) error {
	for part := range fanOut(int(binary.BigEndian.Uint16(rec[atNumber:]))) {
		if err := emit(appendRow(nil, rec, part, 0)); err != nil {
			return err
		}
	}
	return nil
}

// count makes one row of a record, with the number of records of its key so far.
func (p *proc) count(_, rec, state []byte, emit pipeline.Emit) ([]byte, error) {
	var n uint16
	if state != nil {
		n = binary.BigEndian.Uint16(state)
	}
	n++
	p.w.mu.Lock()
	p.underway[rec[0]]--
	p.w.mu.Unlock()
	if err := emit(appendRow(nil, rec, 0, n)); err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint16(nil, n), nil
}

// A source yields records that are a function of their number.
type source struct {
	proc  *proc
	index int
	end   int
	at    int
	buf   []byte
	recs  [][]byte
}

func (s *source) Open(_ context.Context, position []byte) error {
	s.at = 0
	if position != nil {
		s.at = int(binary.BigEndian.Uint16(position))
	}
	return nil
}

func (s *source) Read(ctx context.Context, limit int) ([][]byte, error) {
	v, err := s.proc.waitFor(ctx, "read", fmt.Sprint(s.index), s.ready)
	if err != nil {
		return nil, err
	}
	if v.fault != "" {
		return nil, fmt.Errorf("%s: %w", v.fault, errInjected)
	}
	if s.at >= s.end {
		return nil, io.EOF
	}
	n := min(1+int(v.n%uint64(s.proc.w.cfg.readMax)), limit, s.end-s.at)
	clear(s.buf) // what was returned before is not valid any more
	s.buf, s.recs = s.buf[:0], s.recs[:0]
	for range n {
		from := len(s.buf)
		s.buf = appendRecord(s.buf, s.index, s.at)
		s.recs = append(s.recs, s.buf[from:len(s.buf):len(s.buf)])
		s.at++
	}
	s.proc.w.mu.Lock()
	s.proc.underway[s.index] += n
	s.proc.w.mu.Unlock()
	return s.recs, nil
}

// ready reports whether a read may go on. Lanes that several sources share take
// first what comes first; so only one source at a time is ahead of them.
func (s *source) ready() bool {
	for i, n := range s.proc.underway {
		if s.proc.w.cfg.stateful && i != s.index && n > 0 {
			return false
		}
	}
	return true
}

func (s *source) Position() []byte { return binary.BigEndian.AppendUint16(nil, uint16(s.at)) }

func (s *source) Close() error { return nil }
