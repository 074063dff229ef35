package record

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// A Digest stands for a sequence of records: their bytes and where each ends.
// It does not depend on how they were cut into blocks, so that a replayed batch
// has the digest of the first attempt. It finds damage and transforms that are
// not deterministic; it is no defence against somebody who wants a collision.
type Digest [16]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes the digest in hexadecimal.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error { return unhex(d[:], text, "digest") }

func unhex(dst, text []byte, what string) error {
	if len(text) != 2*len(dst) {
		return fmt.Errorf("%w: %s of %d characters, want %d", ErrCorrupt, what, len(text), 2*len(dst))
	}
	if _, err := hex.Decode(dst, text); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrCorrupt, what, err)
	}
	return nil
}

// A Hasher computes the Digest of records added block by block, and counts
// them. The zero value is not ready: use NewHasher or Reset. It is not safe for
// concurrent use.
type Hasher struct {
	payload, lens xxhash.Digest
	records       uint64
	bytes         uint64
	scratch       []byte
}

// NewHasher returns a Hasher of no records.
func NewHasher() *Hasher {
	h := new(Hasher)
	h.Reset()
	return h
}

// Reset forgets all records.
func (h *Hasher) Reset() {
	h.payload.Reset()
	h.lens.Reset()
	h.records, h.bytes = 0, 0
}

func (h *Hasher) add(payload, lens []byte, n int) {
	h.payload.Write(payload) //nolint:errcheck // documented never to fail
	h.lens.Write(lens)       //nolint:errcheck // documented never to fail
	h.records += uint64(n)
	h.bytes += uint64(len(payload))
}

// Add adds the records of b.
func (h *Hasher) Add(b Block) {
	if b.lens != nil {
		h.add(b.payload, b.lens, len(b.ends))
		return
	}
	h.scratch = h.scratch[:0]
	prev := b.base
	for _, end := range b.ends {
		h.scratch = binary.AppendUvarint(h.scratch, uint64(end-prev))
		prev = end
	}
	h.add(b.payload, h.scratch, len(b.ends))
}

// Records is the number of records added.
func (h *Hasher) Records() uint64 { return h.records }

// Bytes is the number of record bytes added.
func (h *Hasher) Bytes() uint64 { return h.bytes }

// Sum returns the digest of all records added so far.
func (h *Hasher) Sum() Digest {
	var d Digest
	binary.BigEndian.PutUint64(d[:8], h.payload.Sum64())
	binary.BigEndian.PutUint64(d[8:], h.lens.Sum64())
	return d
}
