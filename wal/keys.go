package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/walsink/walsink/record"
)

// Keys. The first byte is the kind; integers are big endian, so that keys sort.
//
//	'A'                           the state of all lanes is in this generation
//	'B' batch id u64, block u32   an encoded record.Block
//	'C'                           the highest completed checkpoint
//	'F' batch id u64              the footer that seals a batch
//	'K' lane                      how far the lane is committed
//	'L' lane                      the state of the lane
//	'N' batch id u64              the note of a batch
//	'S'                           the checkpoints that all lanes have sealed
//	'V' batch id u64              the batch is void
//
// A batch id is unique in the log: the number of the generation in which the
// batch began in the upper half, a counter in the lower. Of several entries for
// one key, the one in the newest generation counts.
const (
	kindAll       = 'A'
	kindBlock     = 'B'
	kindComplete  = 'C'
	kindFooter    = 'F'
	kindCommitted = 'K'
	kindLane      = 'L'
	kindNote      = 'N'
	kindSealed    = 'S'
	kindVoid      = 'V'
)

// entryCost bounds what an entry takes of a generation beyond key and value, in
// the index and, for a value that is not small, in the file of values.
const entryCost = 192

// inline is the length from which a value goes to the file of values.
const inline = 512

func blockKey(dst []byte, id uint64, block uint32) []byte {
	dst = append(dst[:0], kindBlock)
	dst = binary.BigEndian.AppendUint64(dst, id)
	return binary.BigEndian.AppendUint32(dst, block)
}

func idKey(kind byte, id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, id)
}

func keyID(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:]) }

func laneKey(kind byte, lane string) []byte { return append([]byte{kind}, lane...) }

// A footer is what is stored under 'F'.
type footer struct {
	lane     string
	blocks   uint32
	segments []segment
	batch    record.Batch
}

// A segment says that the blocks of a batch from first on are in a generation,
// up to the first block of the next segment.
type segment struct {
	generation uint64
	first      uint32
}

const valueVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// begin starts an encoded value with its version; finish ends it with a
// checksum over everything before.
func begin() []byte { return []byte{valueVersion} }

func finish(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// A decoder reads what begin, the append functions and finish made. After the
// first error it yields zeros.
type decoder struct {
	b   []byte
	err error
}

func decode(b []byte) *decoder {
	d := &decoder{b: b}
	switch {
	case len(b) < 5:
		d.fail("value of %d bytes is shorter than the shortest", len(b))
	case crc32.Checksum(b[:len(b)-4], castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]):
		d.fail("value checksum mismatch")
	case b[0] != valueVersion:
		d.fail("value version %d", b[0])
		d.err = fmt.Errorf("%w: value version %d, this build reads %d", record.ErrVersion, b[0], valueVersion)
	default:
		d.b = b[1 : len(b)-4]
	}
	return d
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{record.ErrCorrupt}, args...)...)
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("integer cut short")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// bytes returns a copy of a byte string of at most limit bytes, nil if empty.
func (d *decoder) bytes(limit uint64) []byte {
	n := d.uint()
	if n > limit || n > uint64(len(d.b)) {
		d.fail("string of %d bytes", n)
		return nil
	}
	s := append([]byte(nil), d.b[:n]...)
	d.b = d.b[n:]
	return s
}

func (d *decoder) chain() (c record.Chain) {
	if len(d.b) < len(c) {
		d.fail("chain cut short")
		return c
	}
	d.b = d.b[copy(c[:], d.b):]
	return c
}

// done returns the first error; bytes left over are one.
func (d *decoder) done() error {
	if d.err == nil && len(d.b) != 0 {
		d.fail("%d bytes left over", len(d.b))
	}
	return d.err
}

func appendBytes(dst, s []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

const (
	maxLane     = 1 << 10
	maxSegments = 1 << 20
)

func (f *footer) encode() ([]byte, error) {
	batch, err := f.batch.MarshalBinary()
	if err != nil {
		return nil, err
	}
	b := appendBytes(begin(), []byte(f.lane))
	b = binary.AppendUvarint(b, uint64(f.blocks))
	b = binary.AppendUvarint(b, uint64(len(f.segments)))
	for _, s := range f.segments {
		b = binary.AppendUvarint(b, s.generation)
		b = binary.AppendUvarint(b, uint64(s.first))
	}
	return finish(appendBytes(b, batch)), nil
}

func (f *footer) decode(b []byte) error {
	d := decode(b)
	f.lane = string(d.bytes(maxLane))
	f.blocks = uint32(d.uint())
	n := d.uint()
	if n > maxSegments || n > uint64(len(d.b)) {
		d.fail("%d segments", n)
		n = 0
	}
	f.segments = make([]segment, 0, n)
	for range n {
		f.segments = append(f.segments, segment{generation: d.uint(), first: uint32(d.uint())})
	}
	batch := d.bytes(1 << 20)
	if err := d.done(); err != nil {
		return err
	}
	return f.batch.UnmarshalBinary(batch)
}

// A laneState is what is stored under 'L': enough to go on without the batches.
type laneState struct {
	floor     uint64      // batches with a lower id were set aside by Reset
	head      record.Head // end of the last completed batch
	committed uint64
	durable   uint64 // highest Seq that is known to be sealed and synced
	restarted bool   // Reset moved the head, and Rewind was not called since
}

func (s *laneState) encode() []byte {
	b := binary.AppendUvarint(begin(), s.floor)
	b = binary.AppendUvarint(b, s.head.Seq)
	b = append(b, s.head.Chain[:]...)
	b = binary.AppendUvarint(b, s.head.Checkpoint)
	b = appendBytes(b, s.head.Position)
	b = binary.AppendUvarint(b, s.committed)
	b = binary.AppendUvarint(b, s.durable)
	return finish(append(b, flag(s.restarted)))
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func (s *laneState) decode(b []byte) error {
	d := decode(b)
	s.floor = d.uint()
	s.head.Seq = d.uint()
	s.head.Chain = d.chain()
	s.head.Checkpoint = d.uint()
	s.head.Position = d.bytes(record.MaxPosition)
	s.committed = d.uint()
	s.durable = d.uint()
	s.restarted = d.uint() != 0
	return d.done()
}

// A committedState is what is stored under 'K'. It counts only together with a lane
// state of the same floor.
type committedState struct{ floor, seq uint64 }

func (s *committedState) encode() []byte {
	return finish(binary.AppendUvarint(binary.AppendUvarint(begin(), s.floor), s.seq))
}

func (s *committedState) decode(b []byte) error {
	d := decode(b)
	s.floor, s.seq = d.uint(), d.uint()
	return d.done()
}

// A completeState is what is stored under 'C'. Of several, the one with the highest
// era counts, then the one with the highest checkpoint.
type completeState struct {
	era        uint64 // raised by Rewind
	checkpoint uint64
	position   []byte
}

// above reports whether s replaces o.
func (s *completeState) above(o *completeState) bool {
	return s.era > o.era || s.era == o.era && s.checkpoint > o.checkpoint
}

func (s *completeState) encode() []byte {
	b := binary.AppendUvarint(begin(), s.era)
	return finish(appendBytes(binary.AppendUvarint(b, s.checkpoint), s.position))
}

func (s *completeState) decode(b []byte) error {
	d := decode(b)
	s.era, s.checkpoint, s.position = d.uint(), d.uint(), d.bytes(record.MaxPosition)
	return d.done()
}

// A sealedState is what is stored under 'S': the first and the last checkpoint that was
// sealed in an era. In logs of before it was noted, first is 0. Of several, the one with
// the highest era counts, then the one with the highest last.
type sealedState struct{ era, first, last uint64 }

// above reports whether s replaces o.
func (s *sealedState) above(o *sealedState) bool {
	return s.era > o.era || s.era == o.era && s.last > o.last
}

func (s *sealedState) encode() []byte {
	b := binary.AppendUvarint(begin(), s.era)
	return finish(binary.AppendUvarint(binary.AppendUvarint(b, s.last), s.first))
}

func (s *sealedState) decode(b []byte) error {
	d := decode(b)
	s.era, s.last, s.first = d.uint(), d.uint(), d.uint()
	return d.done()
}
