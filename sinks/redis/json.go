package redis

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
)

// errDocument says that a line is not one JSON object.
var errDocument = errors.New("want one JSON object")

// members ranges over the members of an object in text that is valid: names as they
// are written, in quotes, and values. There are none if it is not an object.
func members(text []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		rest := skip(text, 0)
		if len(rest) == 0 || rest[0] != '{' {
			return
		}
		rest = skip(rest[1:], 0)
		for len(rest) > 0 && rest[0] == '"' {
			n := skipString(rest)
			name := rest[:n]
			rest = skip(rest[n:], ':')
			n = skipValue(rest)
			if !yield(name, rest[:n]) {
				return
			}
			rest = skip(rest[n:], ',')
		}
	}
}

// skip returns b without the white space and the separator at its front.
func skip(b []byte, separator byte) []byte {
	for i, c := range b {
		switch c {
		case separator, ' ', '\t', '\r', '\n':
		default:
			return b[i:]
		}
	}
	return nil
}

// skipString returns the length of the string at the start of b.
func skipString(b []byte) int {
	end := bytes.IndexByte(b[1:], '"') + 1
	if end > 0 && bytes.IndexByte(b[1:end], '\\') < 0 {
		return end + 1
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// skipValue returns the length of the value at the start of b.
func skipValue(b []byte) int {
	if len(b) > 0 && b[0] == '"' {
		return skipString(b)
	}
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += skipString(b[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return i + 1 + depth // a closing one that is not ours stays
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}

// text is a value as it goes to the store: a string without its quotes and
// escapes, anything else as it is written.
func text(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return value
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1]
	}
	var s string
	if json.Unmarshal(value, &s) != nil { // it is valid: this cannot be
		return value[1 : len(value)-1]
	}
	return []byte(s)
}

// isNull reports whether a value is absent or null.
func isNull(value []byte) bool { return len(value) == 0 || string(value) == "null" }

// find returns the member at a path of names, or nil. The last of several with
// one name counts.
func find(doc []byte, path []string) []byte {
	for _, name := range path {
		var found []byte
		for n, v := range members(doc) {
			if string(text(n)) == name {
				found = v
			}
		}
		if doc = found; doc == nil {
			return nil
		}
	}
	return doc
}
