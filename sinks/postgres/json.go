package postgres

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file reads JSON without losing anything of it: numbers stay text, and
// what encoding/json would repair in silence, as bad UTF-8 and half surrogate
// pairs, is found.

// maxDepth is how deep JSON may be nested.
const maxDepth = 512

// A slot is the value of one field, in the line it was read from.
type slot struct {
	raw  []byte // nil if the record does not have the field
	kind byte   // first byte: one of `"{[tfn-` or a digit
}

func (s slot) isNull() bool { return s.raw == nil || s.kind == 'n' }

// A jsonScanner walks over JSON text. A bad offset of -1 means that all is well.
type jsonScanner struct {
	text []byte
	pos  int
}

func (s *jsonScanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte that is no space, or 0 at the end.
func (s *jsonScanner) peek() byte {
	s.space()
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// take consumes c if it is the next byte that is no space.
func (s *jsonScanner) take(c byte) bool {
	if s.peek() != c || c == 0 {
		return false
	}
	s.pos++
	return true
}

// value consumes a value and returns its text. It is false if there is none or
// it is not JSON.
func (s *jsonScanner) value(depth int) ([]byte, bool) {
	c := s.peek()
	start := s.pos
	ok := false
	switch {
	case c == '"':
		ok = s.string()
	case c == '{':
		ok = depth < maxDepth && s.object(depth)
	case c == '[':
		ok = depth < maxDepth && s.array(depth)
	case c == 't':
		ok = s.word("true")
	case c == 'f':
		ok = s.word("false")
	case c == 'n':
		ok = s.word("null")
	case c == '-' || '0' <= c && c <= '9':
		ok = s.number()
	}
	return s.text[start:s.pos], ok
}

func (s *jsonScanner) word(w string) bool {
	if !bytes.HasPrefix(s.text[s.pos:], []byte(w)) {
		return false
	}
	s.pos += len(w)
	return true
}

func (s *jsonScanner) digits() bool {
	start := s.pos
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

func (s *jsonScanner) number() bool {
	if s.text[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.text) && s.text[s.pos] == '0' {
		s.pos++
	} else if !s.digits() {
		return false
	}
	if s.pos < len(s.text) && s.text[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return false
		}
	}
	if s.pos < len(s.text) && s.text[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.text) && (s.text[s.pos] == '+' || s.text[s.pos] == '-') {
			s.pos++
		}
		return s.digits()
	}
	return true
}

// string consumes a string, quotes included.
func (s *jsonScanner) string() bool {
	for s.pos++; s.pos < len(s.text); s.pos++ {
		s.pos += plainLen(s.text[s.pos:])
		if s.pos == len(s.text) {
			return false
		}
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return true
		case c < ' ':
			return false
		case c == '\\':
			s.pos++
			if s.pos == len(s.text) {
				return false
			}
			if s.text[s.pos] == 'u' {
				if _, ok := hex4(s.text[s.pos+1:]); !ok {
					return false
				}
				s.pos += 4
			} else if strings.IndexByte(`"\/bfnrt`, s.text[s.pos]) < 0 {
				return false
			}
		}
	}
	return false
}

// plainLen counts bytes that mean nothing in a string, from the start of text and
// eight at a time: it may stop early.
func plainLen(text []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	zeros := func(x uint64) uint64 { return (x - ones) &^ x } // the top bit of each byte that is zero, and of some above it
	n := 0
	for len(text)-n >= 8 {
		w := binary.LittleEndian.Uint64(text[n:])
		if found := (zeros(w^'"'*ones) | zeros(w^'\\'*ones) | (w-' '*ones)&^w) & tops; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
		n += 8
	}
	return n
}

func (s *jsonScanner) array(depth int) bool {
	s.pos++
	if s.take(']') {
		return true
	}
	for {
		if _, ok := s.value(depth + 1); !ok {
			return false
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *jsonScanner) object(depth int) bool {
	s.pos++
	if s.take('}') {
		return true
	}
	for {
		if s.peek() != '"' || !s.string() || !s.take(':') {
			return false
		}
		if _, ok := s.value(depth + 1); !ok {
			return false
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// hex4 reads the four digits of a \u escape.
func hex4(text []byte) (rune, bool) {
	if len(text) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range text[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape appends the characters of a scanned string, without its quotes. It is
// false if half a surrogate pair is in it, which is no character.
func unescape(dst, quoted []byte) ([]byte, bool) {
	text := quoted[1 : len(quoted)-1]
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(dst, text...), true
		}
		dst = append(dst, text[:i]...)
		c := text[i+1]
		text = text[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, n := escapedRune(text)
			if n == 0 {
				return dst, false
			}
			dst = utf8.AppendRune(dst, r)
			text = text[n:]
		default:
			dst = append(dst, c)
		}
	}
}

// escapedRune reads what follows \u: a character and how many bytes it took, or
// 0 bytes for half a surrogate pair.
func escapedRune(text []byte) (rune, int) {
	r, _ := hex4(text)
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if len(text) >= 10 && text[4] == '\\' && text[5] == 'u' {
		low, _ := hex4(text[6:])
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, 10
		}
	}
	return 0, 0
}

const badSurrogate = "half a surrogate pair in a JSON string"

// checkJSONB says why jsonb cannot hold a scanned value, or returns "": it has no
// place for the NUL character and for half a surrogate pair. An escaped backslash
// before a u is neither.
func checkJSONB(raw []byte) string {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return ""
		}
		c := raw[i+1]
		raw = raw[i+2:]
		if c != 'u' {
			continue
		}
		r, n := escapedRune(raw)
		switch {
		case n == 0:
			return badSurrogate
		case r == 0:
			return "NUL character in a JSON string, which jsonb cannot store"
		}
		raw = raw[n:]
	}
}

// isJSON reports whether text is one JSON value and nothing else.
func isJSON(text []byte) bool {
	s := jsonScanner{text: text}
	_, ok := s.value(0)
	return ok && s.peek() == 0 && s.pos == len(text)
}
