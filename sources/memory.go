package sources

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/walsink/walsink/committer"
)

// Memory is a source of records in memory, for tests and examples. The position
// is the number of records before it.
type Memory struct {
	recs [][]byte
	next int
}

// NewMemory returns a source of the records. It keeps the slice and does not
// change it.
func NewMemory(recs [][]byte) *Memory { return &Memory{recs: recs} }

// Lines returns a source with a record for each string.
func Lines(lines ...string) *Memory {
	recs := make([][]byte, len(lines))
	for i, s := range lines {
		recs[i] = []byte(s)
	}
	return NewMemory(recs)
}

// Open goes to a position.
func (m *Memory) Open(_ context.Context, position []byte) error {
	m.next = 0
	if position == nil {
		return nil
	}
	n, size := binary.Uvarint(position)
	if size <= 0 || size != len(position) || n > uint64(len(m.recs)) {
		return fmt.Errorf("%w: not a position in %d records in memory", committer.ErrForeignPosition, len(m.recs))
	}
	m.next = int(n)
	return nil
}

// Read returns up to limit records.
func (m *Memory) Read(ctx context.Context, limit int) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.next == len(m.recs) {
		return nil, io.EOF
	}
	end := min(m.next+limit, len(m.recs))
	recs := m.recs[m.next:end]
	m.next = end
	return recs, nil
}

// Position returns the number of records read.
func (m *Memory) Position() []byte { return binary.AppendUvarint(nil, uint64(m.next)) }

// Close does nothing.
func (m *Memory) Close() error { return nil }
