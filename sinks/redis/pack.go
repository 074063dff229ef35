package redis

import "encoding/binary"

// A pack is the items of a chunk as one argument: values in MessagePack, one behind
// the other, which the script reads from the front. For short items that is less work,
// here and in the server, than an argument each. A long item is an argument of its own,
// and true takes its place: what is part of the pack the server hashes twice.
type pack struct{ buf []byte }

const (
	// shortItem is the longest item that is worth packing.
	shortItem = 128
	// packBytes bounds the short items of a pack: a server may be set to take no
	// argument beyond 1 MiB.
	packBytes = 512 << 10
)

// First bytes of the forms of MessagePack that are used.
const (
	packTrue = 0xc3
	packUint = 0xce // and 4 bytes
	packStr  = 0xa0 // or the length, if below 32
	packStr8 = 0xd9 // and 1 byte of length
)

// numberSize is what a number takes in the pack.
const numberSize = 5

func (p *pack) reset() { p.buf = p.buf[:0] }

// text adds a string, or returns false if that is not worth while.
func (p *pack) text(s string) bool {
	switch {
	case len(s) > shortItem || len(p.buf) > packBytes:
		return false
	case len(s) < 32:
		p.buf = append(p.buf, packStr|byte(len(s)))
	default:
		p.buf = append(p.buf, packStr8, byte(len(s)))
	}
	p.buf = append(p.buf, s...)
	return true
}

// op adds what the script is to do with the items that follow: always here, since the
// script looks for it nowhere else.
func (p *pack) op(s string) {
	p.buf = append(p.buf, packStr|byte(len(s)))
	p.buf = append(p.buf, s...)
}

// long adds what stands for a long item.
func (p *pack) long() { p.buf = append(p.buf, packTrue) }

// number adds a number and returns its place, for set.
func (p *pack) number(n int) int {
	p.buf = append(p.buf, packUint, 0, 0, 0, 0)
	p.set(len(p.buf)-4, n)
	return len(p.buf) - 4
}

// set changes a number.
func (p *pack) set(place, n int) { binary.BigEndian.PutUint32(p.buf[place:], uint32(n)) }
