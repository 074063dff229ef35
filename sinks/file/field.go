package file

import (
	"bytes"
	"encoding/json"
	"errors"
)

// topField returns the value of the last top-level field of the name in a valid JSON
// document, as it is written, or nil.
func topField(doc []byte, name string) ([]byte, error) {
	i := space(doc, 0)
	if i == len(doc) || doc[i] != '{' {
		return nil, errors.New("the document is not an object")
	}
	var found []byte
	for i = space(doc, i+1); i < len(doc) && doc[i] != '}'; {
		keyEnd := stringEnd(doc, i)
		key := doc[i:keyEnd]
		start := space(doc, space(doc, keyEnd)+1) // after the colon
		end := valueEnd(doc, start)
		if keyIs(key, name) {
			found = doc[start:end]
		}
		if i = space(doc, end); i < len(doc) && doc[i] == ',' {
			i = space(doc, i+1)
		}
	}
	return found, nil
}

// keyIs reports whether a quoted JSON string is name.
func keyIs(key []byte, name string) bool {
	if len(key) >= 2 && bytes.IndexByte(key, '\\') < 0 {
		return string(key[1:len(key)-1]) == name
	}
	s, err := unquote(key)
	return err == nil && string(s) == name
}

// unquote returns the text of a quoted JSON string.
func unquote(quoted []byte) ([]byte, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], nil
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return nil, err
	}
	return []byte(s), nil
}

// space returns the index of the first byte from i on that is not white space.
func space(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\r' || doc[i] == '\n') {
		i++
	}
	return i
}

// stringEnd returns the index after the string that begins at i.
func stringEnd(doc []byte, i int) int {
	for i++; i < len(doc); i++ {
		switch doc[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(doc)
}

// valueEnd returns the index after the value that begins at i.
func valueEnd(doc []byte, i int) int {
	for depth := 0; i < len(doc); {
		switch doc[i] {
		case '"':
			i = stringEnd(doc, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		default:
			i++
			if depth > 0 || i < len(doc) && !endsScalar(doc[i]) {
				continue
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// endsScalar reports whether c comes after a number, true, false or null.
func endsScalar(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}
