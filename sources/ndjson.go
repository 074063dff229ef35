package sources

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
)

// ndjson is one JSON value per line. The line end, "\n" or "\r\n", is not part of
// the record; a line of white space only is no record.
type ndjson struct{}

func (ndjson) begin()       {}
func (ndjson) header() bool { return false }

func (ndjson) next(b []byte, last bool) (rec []byte, size, lines int, err error) {
	size = bytes.IndexByte(b, '\n') + 1
	line := b[:max(size-1, 0)]
	if size == 0 {
		if !last {
			return nil, 0, 0, nil
		}
		line, size = b, len(b)
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if valid(line) {
		return line, size, 1, nil
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, size, 1, nil
	}
	return nil, 0, 0, notJSON(line)
}

// notJSON says what is wrong with a line, without its contents.
func notJSON(line []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(line, &v)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON: column %d: %w", syntax.Offset, syntax)
	}
	return fmt.Errorf("not JSON: %w", err)
}

// maxDepth is how deep values may be nested, as in encoding/json.
const maxDepth = 10000

// valid reports whether b is one JSON value. It agrees with json.Valid, and is
// several times as fast.
func valid(b []byte) bool {
	i, ok := value(b, space(b, 0), 0)
	return ok && space(b, i) == len(b)
}

func space(b []byte, i int) int {
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

// plain marks the bytes that stand for themselves in a string.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 256; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// str returns the index after the string whose contents begin at i.
func str(b []byte, i int) (int, bool) {
	for {
		for i+8 <= len(b) {
			found := special(binary.LittleEndian.Uint64(b[i:]))
			if found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
			i += 8
		}
		for i < len(b) && plain[b[i]] {
			i++
		}
		if i >= len(b) || b[i] < 0x20 {
			return i, false
		}
		if b[i] == '"' {
			return i + 1, true
		}
		n := escape(b[i:])
		if n == 0 {
			return i, false
		}
		i += n
	}
}

// special marks, with the highest bit of each byte, which of eight bytes are a
// quote, a backslash or a control character. Only the lowest mark is reliable.
func special(w uint64) uint64 {
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
