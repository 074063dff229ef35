// Package jsontext reads JSON text as encoding/json does, several times as fast and
// without making values of it.
package jsontext

import (
	"encoding/binary"
	"math/bits"
)

// maxDepth is how deep values may be nested, as in encoding/json.
const maxDepth = 10000

// Valid reports whether b is one JSON value. It agrees with json.Valid.
func Valid(b []byte) bool {
	i, ok := value(b, space(b, 0), 0)
	return ok && space(b, i) == len(b)
}

// space returns the index of the first byte from i on that is no white space.
func space(b []byte, i int) int {
	if i < len(b) && b[i] > ' ' { // as there mostly is none
		return i
	}
	return moreSpace(b, i)
}

func moreSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// value returns the index after the value that begins at i.
func value(b []byte, i, depth int) (int, bool) {
	if i >= len(b) {
		return i, false
	}
	switch c := b[i]; c {
	case '"':
		return str(b, i+1)
	case '{':
		return object(b, i+1, depth+1)
	case '[':
		return array(b, i+1, depth+1)
	case 't':
		return literal(b, i, "true")
	case 'f':
		return literal(b, i, "false")
	case 'n':
		return literal(b, i, "null")
	default:
		return number(b, i)
	}
}

func literal(b []byte, i int, want string) (int, bool) {
	end := i + len(want)
	return end, end <= len(b) && string(b[i:end]) == want
}

func object(b []byte, i, depth int) (int, bool) {
	i = space(b, i)
	if i < len(b) && b[i] == '}' {
		return i + 1, depth <= maxDepth
	}
	for ok := depth <= maxDepth; ok; {
		if i >= len(b) || b[i] != '"' {
			return i, false
		}
		if i, ok = str(b, i+1); !ok {
			break
		}
		if i = space(b, i); i >= len(b) || b[i] != ':' {
			return i, false
		}
		if i, ok = value(b, space(b, i+1), depth); !ok {
			break
		}
		i = space(b, i)
		if i < len(b) && b[i] == '}' {
			return i + 1, true
		}
		if i >= len(b) || b[i] != ',' {
			return i, false
		}
		i = space(b, i+1)
	}
	return i, false
}

func array(b []byte, i, depth int) (int, bool) {
	i = space(b, i)
	if i < len(b) && b[i] == ']' {
		return i + 1, depth <= maxDepth
	}
	for ok := depth <= maxDepth; ok; {
		if i, ok = value(b, space(b, i), depth); !ok {
			break
		}
		i = space(b, i)
		if i < len(b) && b[i] == ']' {
			return i + 1, true
		}
		if i >= len(b) || b[i] != ',' {
			return i, false
		}
		i++
	}
	return i, false
}

// str returns the index after the string whose contents begin at i.
func str(b []byte, i int) (int, bool) {
	for {
		if i+8 <= len(b) {
			found := Special(binary.LittleEndian.Uint64(b[i:]))
			if found == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(found) / 8
		}
		if i >= len(b) || b[i] < 0x20 {
			return i, false
		}
		switch b[i] {
		case '"':
			return i + 1, true
		case '\\':
			n := escape(b[i:])
			if n == 0 {
				return i, false
			}
			i += n
		default: // one of the last bytes
			i++
		}
	}
}

// Special marks, with the highest bit of each byte, which of eight bytes are a
// quote, a backslash or a control character. Only the lowest mark is reliable.
func Special(w uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return ((w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// escape returns the length of the escape sequence at the front of b, 0 if it is
// none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if !hexDigit(c) {
				return 0
			}
		}
		return 6
	}
	return 0
}

func hexDigit(c byte) bool {
	return digit(c) || ('a' <= c && c <= 'f') || ('A' <= c && c <= 'F')
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func digits(b []byte, i int) (int, bool) {
	start := i
	for i < len(b) && digit(b[i]) {
		i++
	}
	return i, i > start
}

func number(b []byte, i int) (int, bool) {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else {
		var ok bool
		if i, ok = digits(b, i); !ok {
			return i, false
		}
	}
	if i < len(b) && b[i] == '.' {
		var ok bool
		if i, ok = digits(b, i+1); !ok {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return digits(b, i)
	}
	return i, true
}
