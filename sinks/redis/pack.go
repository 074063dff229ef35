package redis

import "encoding/binary"

// A pack is the items of a chunk as one argument: an array in MessagePack, which the
// script takes apart in one go. For short items that is less work, here and in the
// server, than an argument each. A long item is an argument of its own, and a flag
// takes its place: what is part of the pack the server hashes twice.
type pack struct {
	buf   []byte
	items uint32
}

const (
	// shortItem is the longest item that is worth packing.
	shortItem = 128
	// packBytes bounds the short items of a pack: a server may be set to take no
	// argument beyond 1 MiB.
	packBytes = 512 << 10
)

// First bytes of the forms of MessagePack that are used.
const (
	packFalse = 0xc2
	packTrue  = 0xc3
	packUint  = 0xce // and 4 bytes
	packStr   = 0xa0 // or the length, if below 32
	packStr8  = 0xd9 // and 1 byte of length
	packArray = 0xdd // and 4 bytes of length
)

func (p *pack) reset() { p.buf, p.items = append(p.buf[:0], packArray, 0, 0, 0, 0), 0 }

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
	p.items++
	return true
}

// flag adds a boolean.
func (p *pack) flag(v bool) {
	b := byte(packFalse)
	if v {
		b = packTrue
	}
	p.buf = append(p.buf, b)
	p.items++
}

// number adds a number and returns its place, for set.
func (p *pack) number(n int) int {
	p.buf = append(p.buf, packUint, 0, 0, 0, 0)
	p.items++
	p.set(len(p.buf)-4, n)
	return len(p.buf) - 4
}

// set changes a number.
func (p *pack) set(place, n int) { binary.BigEndian.PutUint32(p.buf[place:], uint32(n)) }

// bytes ends the pack.
func (p *pack) bytes() []byte {
	binary.BigEndian.PutUint32(p.buf[1:], p.items)
	return p.buf
}
