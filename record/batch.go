package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// A Chain is the running hash of a lane: it stands for all records of the lane
// from the start to the end of one batch.
type Chain [32]byte

// String returns the chain value in hexadecimal.
func (c Chain) String() string { return hex.EncodeToString(c[:]) }

// MarshalText writes the chain value in hexadecimal.
func (c Chain) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, c[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Chain) UnmarshalText(text []byte) error { return unhex(c[:], text, "chain") }

// Genesis is the chain value of a lane without batches.
func Genesis(sink, lane string) Chain {
	b := []byte("walsink genesis 1\x00")
	b = appendString(b, sink)
	b = appendString(b, lane)
	return sha256.Sum256(b)
}

// A Batch describes the records of one lane between two checkpoints. It is the
// footer that seals them; the records themselves are elsewhere.
type Batch struct {
	// Seq numbers the batches of a lane, from 1, without gaps.
	Seq uint64 `json:"seq"`
	// Checkpoint is the checkpoint that sealed the batch. It rises along a lane.
	Checkpoint uint64 `json:"checkpoint"`
	// Prev is the chain value of the batch before, or Genesis.
	Prev Chain `json:"prev"`
	// Records, Bytes and Digest are of the records, Bytes without any framing.
	Records uint64 `json:"records"`
	Bytes   uint64 `json:"bytes"`
	Digest  Digest `json:"digest"`
	// Position tells the source where to resume after this batch. Opaque.
	Position []byte `json:"position,omitempty"`
	// Format is the fingerprint of the wire form the records are in. It is not
	// part of the chain: a store keeps its contents when an adapter changes.
	Format string `json:"format,omitempty"`
	// SealedAt is when the batch was sealed, in milliseconds of the Unix epoch
	// by the clock of the machine. For people; nothing depends on it.
	SealedAt int64 `json:"sealed_at,omitempty"`
}

// Chain is the chain value of the lane after this batch: a hash of Prev, the
// checkpoint, the counts, the digest and the end position.
func (b Batch) Chain() Chain {
	buf := make([]byte, 0, 128+len(b.Position))
	buf = append(buf, "walsink chain 1\x00"...)
	buf = append(buf, b.Prev[:]...)
	buf = binary.BigEndian.AppendUint64(buf, b.Checkpoint)
	buf = binary.BigEndian.AppendUint64(buf, b.Records)
	buf = binary.BigEndian.AppendUint64(buf, b.Bytes)
	buf = append(buf, b.Digest[:]...)
	buf = appendString(buf, string(b.Position))
	return sha256.Sum256(buf)
}

// Head is the end of the lane after this batch.
func (b Batch) Head() Head {
	return Head{Seq: b.Seq, Chain: b.Chain(), Checkpoint: b.Checkpoint, Position: b.Position}
}

// A Head is the end of a lane: all that its next batch has to know.
type Head struct {
	Seq        uint64 `json:"seq"`
	Chain      Chain  `json:"chain"`
	Checkpoint uint64 `json:"checkpoint"`
	Position   []byte `json:"position,omitempty"`
}

func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}
