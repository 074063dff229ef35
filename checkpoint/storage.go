package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"time"
)

// A Snapshot is what a completed checkpoint leaves: named parts, each the opaque
// state of somebody.
type Snapshot struct {
	// ID is the checkpoint; 0 means that there is none.
	ID uint64
	// Taken is when it was taken, in whole milliseconds. For people.
	Taken time.Time
	// Parts are in the order that Save was given.
	Parts []Part
}

// A Part is the state of one participant.
type Part struct {
	Name string
	Data []byte
}

// Part returns the data of the named part.
func (s Snapshot) Part(name string) ([]byte, bool) {
	for _, p := range s.Parts {
		if p.Name == name {
			return p.Data, true
		}
	}
	return nil, false
}

// Storage keeps the newest checkpoints. Methods are called from one goroutine at
// a time.
type Storage interface {
	// Save stores a snapshot, durable on return, and returns the lowest id that is
	// still kept. It does not keep the bytes. The id is above all saved before.
	Save(ctx context.Context, s Snapshot) (oldest uint64, err error)

	// Load returns the newest snapshot that is whole, and an error for each newer one
	// that is damaged for good. Without any snapshot it returns the zero Snapshot; with
	// damaged ones only, an error. One that cannot be read now, and perhaps can the next
	// time, is an error too: who goes on from the one before cuts the logs there, and
	// then has no use for the newer one.
	Load(ctx context.Context) (s Snapshot, damaged []error, err error)
}

// Errors of reading a stored snapshot.
var (
	// ErrCorrupt says that bytes are not what Save wrote.
	ErrCorrupt = errors.New("corrupt")
	// ErrVersion says that a snapshot was written by a newer format.
	ErrVersion = errors.New("unknown format version")
)

// Memory is Storage that a test can hold: it is as durable as the process. The
// zero value is ready to use and keeps one snapshot. It is safe for concurrent
// use.
type Memory struct {
	// Retain is the number of snapshots to keep; 0 means 1.
	Retain int

	mu    sync.Mutex
	snaps [][]byte
	ids   []uint64
}

// Save keeps a copy of s.
func (m *Memory) Save(_ context.Context, s Snapshot) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snaps, m.ids = append(m.snaps, encode(s)), append(m.ids, s.ID)
	if old := len(m.ids) - max(m.Retain, 1); old > 0 {
		m.snaps, m.ids = slices.Delete(m.snaps, 0, old), slices.Delete(m.ids, 0, old)
	}
	return m.ids[0], nil
}

// Load returns a copy of the newest snapshot.
func (m *Memory) Load(context.Context) (Snapshot, []error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.snaps) == 0 {
		return Snapshot{}, nil, nil
	}
	s, err := decode(slices.Clone(m.snaps[len(m.snaps)-1]))
	return s, nil, err
}

const (
	formatVersion = 1
	magic         = "walsink checkpoint\n"
	maxMillis     = 1 << 48 // far in the future
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes a snapshot, version 1:
//
//	magic | version u8 = 1 | id | taken (ms) | parts | { len name | len data }... | CRC-32C u32
//
// Numbers are uvarints, the checksum is little endian and covers everything
// before it.
func encode(s Snapshot) []byte {
	size := 64
	for _, p := range s.Parts {
		size += len(p.Name) + len(p.Data) + 20
	}
	b := append(make([]byte, 0, size), magic...)
	b = append(b, formatVersion)
	b = binary.AppendUvarint(b, s.ID)
	b = binary.AppendUvarint(b, uint64(max(s.Taken.UnixMilli(), 0)))
	b = binary.AppendUvarint(b, uint64(len(s.Parts)))
	for _, p := range s.Parts {
		b = appendBytes(b, p.Name)
		b = appendBytes(b, p.Data)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func appendBytes[T ~string | ~[]byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decode reads what encode wrote. The parts alias b. A length is believed only
// after it was compared with the bytes that are there.
func decode(b []byte) (Snapshot, error) {
	if len(b) < len(magic)+1+4 || string(b[:len(magic)]) != magic {
		return Snapshot{}, fmt.Errorf("%w: no checkpoint header", ErrCorrupt)
	}
	body, tail := b[:len(b)-4], b[len(b)-4:]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(tail) {
		return Snapshot{}, fmt.Errorf("%w: checksum mismatch", ErrCorrupt)
	}
	if v := body[len(magic)]; v != formatVersion {
		return Snapshot{}, fmt.Errorf("%w: %d, this build reads %d", ErrVersion, v, formatVersion)
	}
	r := reader{b: body[len(magic)+1:]}
	s := Snapshot{ID: r.uvarint()}
	ms := r.uvarint()
	if ms > maxMillis {
		r.fail()
	}
	s.Taken = time.UnixMilli(int64(ms)).UTC()
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		s.Parts = append(s.Parts, Part{Name: string(r.bytes()), Data: r.bytes()})
	}
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%w: %d bytes too many", ErrCorrupt, len(r.b))
	}
	if r.err != nil {
		return Snapshot{}, r.err
	}
	return s, nil
}

// A reader takes values off the front of b until the first error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = fmt.Errorf("%w: cut short or out of range", ErrCorrupt)
	}
	r.b = nil
}
