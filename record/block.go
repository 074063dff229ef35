package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
)

// Sizes, in bytes.
const (
	// BlockSize is the payload at which a Builder counts as full.
	BlockSize = 256 << 10
	// MaxRecord is the longest record that a block may hold.
	MaxRecord = 64 << 20
	// maxPayload bounds what Decode believes before it looks further: a full
	// block can be overshot by one record.
	maxPayload = BlockSize + MaxRecord
)

const (
	version     = 1
	trailerSize = 4 + 4 + 4 + 1 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of this package. Details follow after the text; match with errors.Is.
var (
	// ErrCorrupt says that bytes are not what an encoder wrote.
	ErrCorrupt = errors.New("corrupt")
	// ErrVersion says that bytes were written by a format this build does not know.
	ErrVersion = errors.New("unknown format version")
	// ErrTooLarge says that a record is longer than MaxRecord.
	ErrTooLarge = errors.New("record too large")
)

// A Builder packs records into one encoded block. The zero value is ready to
// use; Reset makes it ready again and keeps its memory. It is not safe for
// concurrent use.
type Builder struct {
	buf  []byte // payload so far
	lens []byte // uvarint length of each record
	n    uint32
}

// Append copies rec into the block. The caller may reuse rec at once. An empty
// record is a record. It fails only with ErrTooLarge.
func (b *Builder) Append(rec []byte) error {
	if len(rec) > MaxRecord {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(rec), MaxRecord)
	}
	b.buf = append(b.buf, rec...)
	b.lens = binary.AppendUvarint(b.lens, uint64(len(rec)))
	b.n++
	return nil
}

// Len is the number of records in the block.
func (b *Builder) Len() int { return int(b.n) }

// Size is the number of payload bytes in the block.
func (b *Builder) Size() int { return len(b.buf) }

// Full reports whether the block has reached BlockSize, or so many records
// that its index would outgrow its payload.
func (b *Builder) Full() bool { return len(b.buf) >= BlockSize || len(b.lens) >= BlockSize }

// Reset empties the block and keeps its memory.
func (b *Builder) Reset() { b.buf, b.lens, b.n = b.buf[:0], b.lens[:0], 0 }

// Finish adds the block's records to h and returns the encoded block. The bytes
// belong to the Builder and are valid until the next Append or Reset.
func (b *Builder) Finish(h *Hasher) []byte {
	h.add(b.buf, b.lens, int(b.n))
	size, lens := len(b.buf), len(b.lens)
	out := append(b.buf, b.lens...)
	out = binary.LittleEndian.AppendUint32(out, uint32(size))
	out = binary.LittleEndian.AppendUint32(out, uint32(lens))
	out = binary.LittleEndian.AppendUint32(out, b.n)
	out = append(out, version)
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
	b.buf = out[:size]
	return out
}

// A Block is a run of records over bytes that it does not own: it is valid as
// long as the bytes it was decoded from. A Block is a value; its methods do not
// change it and are safe for concurrent use.
type Block struct {
	payload []byte
	ends    []int  // end of each record, counted from base
	lens    []byte // uvarint length of each record, of a decoded block that is whole
	base    int
}

// Decode reads an encoded block. The result aliases src; ends, the index, reuses
// the memory of old, which may be the zero Block. Errors: ErrCorrupt and
// ErrVersion. It takes no memory on the word of a length it has not checked.
func Decode(src []byte, old Block) (Block, error) {
	if len(src) < trailerSize {
		return Block{}, fmt.Errorf("%w: block of %d bytes is shorter than its trailer", ErrCorrupt, len(src))
	}
	t := src[len(src)-trailerSize:]
	if sum := binary.LittleEndian.Uint32(t[13:]); sum != crc32.Checksum(src[:len(src)-4], castagnoli) {
		return Block{}, fmt.Errorf("%w: block checksum mismatch", ErrCorrupt)
	}
	if t[12] != version {
		return Block{}, fmt.Errorf("%w: block version %d, this build reads %d", ErrVersion, t[12], version)
	}
	size, lens, n := binary.LittleEndian.Uint32(t), binary.LittleEndian.Uint32(t[4:]), binary.LittleEndian.Uint32(t[8:])
	if size > maxPayload || uint64(size)+uint64(lens)+trailerSize != uint64(len(src)) || n > lens {
		return Block{}, fmt.Errorf("%w: block lengths do not add up", ErrCorrupt)
	}
	ends, err := index(src[size:size+lens], size, n, old.ends[:0])
	if err != nil {
		return Block{}, err
	}
	return Block{payload: src[:size:size], ends: ends, lens: src[size : size+lens]}, nil
}

// index turns the encoded record lengths into the end of each record.
func index(lens []byte, size, n uint32, ends []int) ([]int, error) {
	var end uint64
	for range n {
		l, w := binary.Uvarint(lens)
		if w <= 0 || l > MaxRecord {
			return nil, fmt.Errorf("%w: record length in block", ErrCorrupt)
		}
		lens = lens[w:]
		if end += l; end > uint64(size) {
			return nil, fmt.Errorf("%w: records outgrow their block", ErrCorrupt)
		}
		ends = append(ends, int(end))
	}
	if len(lens) != 0 || end != uint64(size) {
		return nil, fmt.Errorf("%w: record lengths do not fill their block", ErrCorrupt)
	}
	return ends, nil
}

// BlockOf builds a Block over a copy of the given records, for tests and for
// adapters that hold records of their own.
func BlockOf(recs ...[]byte) Block {
	var b Block
	for _, r := range recs {
		b.payload = append(b.payload, r...)
		b.ends = append(b.ends, len(b.payload))
	}
	return b
}

// Len is the number of records.
func (b Block) Len() int { return len(b.ends) }

// Payload returns the bytes of all records, one after the other. Do not change
// them.
func (b Block) Payload() []byte { return b.payload }

// Record returns record i, 0 <= i < Len. Do not change it.
func (b Block) Record(i int) []byte {
	start := b.base
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.payload[start-b.base : b.ends[i]-b.base : b.ends[i]-b.base]
}

// All ranges over the records with their index in the block.
func (b Block) All() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for i := range b.ends {
			if !yield(i, b.Record(i)) {
				return
			}
		}
	}
}

// Slice returns records i up to, but not including, j as a Block over the same
// bytes.
func (b Block) Slice(i, j int) Block {
	if i == 0 && j == len(b.ends) {
		return b
	}
	from, to := b.base, b.base
	if i > 0 {
		from = b.ends[i-1]
	}
	if j > 0 {
		to = b.ends[j-1]
	}
	return Block{payload: b.payload[from-b.base : to-b.base : to-b.base], ends: b.ends[i:j:j], base: from}
}
