package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Limits of what a Batch may carry, in bytes. They are checked before anything
// is written and before memory is taken for what is read.
const (
	// MaxPosition is the longest Position.
	MaxPosition = 64 << 10
	// MaxFormat is the longest Format.
	MaxFormat = 255
)

// batchFixed is the length of an encoded Batch without position and format.
const batchFixed = 1 + 3*8 + 32 + 8 + 16 + 8 + 4 + 2 + 4

// AppendBinary appends the encoded batch to b. Version 1, integers little
// endian:
//
//	version  seq  checkpoint  records  prev  bytes  digest  sealed at
//	u8 = 1   u64  u64         u64      32    u64    16      i64
//	len  position  len  format  CRC-32C of all before
//	u32  ...       u16  ...     u32
//
// It fails with ErrTooLarge if position or format are over their limits.
func (b Batch) AppendBinary(dst []byte) ([]byte, error) {
	if len(b.Position) > MaxPosition {
		return dst, fmt.Errorf("%w: position of %d bytes, the limit is %d", ErrTooLarge, len(b.Position), MaxPosition)
	}
	if len(b.Format) > MaxFormat {
		return dst, fmt.Errorf("%w: format of %d bytes, the limit is %d", ErrTooLarge, len(b.Format), MaxFormat)
	}
	start := len(dst)
	dst = append(dst, version)
	dst = binary.LittleEndian.AppendUint64(dst, b.Seq)
	dst = binary.LittleEndian.AppendUint64(dst, b.Checkpoint)
	dst = binary.LittleEndian.AppendUint64(dst, b.Records)
	dst = append(dst, b.Prev[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, b.Bytes)
	dst = append(dst, b.Digest[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.SealedAt))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b.Position)))
	dst = append(dst, b.Position...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(b.Format)))
	dst = append(dst, b.Format...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli)), nil
}

// MarshalBinary returns the encoded batch, see AppendBinary.
func (b Batch) MarshalBinary() ([]byte, error) { return b.AppendBinary(nil) }

// UnmarshalBinary reads what AppendBinary wrote; src must hold exactly that. The
// batch keeps no part of src. Errors: ErrCorrupt and ErrVersion; b is unchanged
// then.
func (b *Batch) UnmarshalBinary(src []byte) error {
	if len(src) < batchFixed {
		return fmt.Errorf("%w: batch of %d bytes is shorter than the shortest", ErrCorrupt, len(src))
	}
	body, sum := src[:len(src)-4], binary.LittleEndian.Uint32(src[len(src)-4:])
	if sum != crc32.Checksum(body, castagnoli) {
		return fmt.Errorf("%w: batch checksum mismatch", ErrCorrupt)
	}
	if body[0] != version {
		return fmt.Errorf("%w: batch version %d, this build reads %d", ErrVersion, body[0], version)
	}
	var r Batch
	r.Seq, body = cutUint64(body[1:])
	r.Checkpoint, body = cutUint64(body)
	r.Records, body = cutUint64(body)
	body = body[copy(r.Prev[:], body):]
	r.Bytes, body = cutUint64(body)
	body = body[copy(r.Digest[:], body):]
	sealed, body := cutUint64(body)
	r.SealedAt = int64(sealed)
	position := uint64(binary.LittleEndian.Uint32(body))
	body = body[4:]
	if position > MaxPosition || position+2 > uint64(len(body)) {
		return fmt.Errorf("%w: batch position of %d bytes", ErrCorrupt, position)
	}
	if position > 0 {
		r.Position = append([]byte(nil), body[:position]...)
	}
	body = body[position:]
	format := int(binary.LittleEndian.Uint16(body))
	if body = body[2:]; format > MaxFormat || format != len(body) {
		return fmt.Errorf("%w: batch format of %d bytes", ErrCorrupt, format)
	}
	r.Format = string(body)
	*b = r
	return nil
}

func cutUint64(b []byte) (uint64, []byte) { return binary.LittleEndian.Uint64(b), b[8:] }
