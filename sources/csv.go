package sources

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/walsink/walsink/internal/jsontext"
)

// table is CSV or TSV with a header, quoted as RFC 4180 says. Each row becomes a
// JSON object with the header's names in their order and every value as a string,
// exactly as it is in the file, line breaks in quoted fields included.
type table struct {
	comma byte
	names [][]byte // JSON strings, with the colon
	field []byte   // the field in hand, unquoted
	out   []byte   // records since begin
	stops [256]bool
}

func newTable(comma byte) *table {
	t := &table{comma: comma}
	for _, c := range []byte{comma, '\n', '\r', '"'} {
		t.stops[c] = true
	}
	return t
}

func (t *table) begin()       { t.out = t.out[:0] }
func (t *table) header() bool { return true }

// errMore says that the bytes end within a row.
var errMore = errors.New("row goes on")

func (t *table) next(b []byte, last bool) (rec []byte, size, lines int, err error) {
	if t.names == nil {
		return t.first(b, last)
	}
	if n := blank(b); n > 0 {
		return nil, n, 1, nil
	}
	start := len(t.out)
	sep, count := byte('{'), 0
	size, lines, err = t.row(b, last, func(field []byte) error {
		if count >= len(t.names) {
			return fmt.Errorf("more than the %d fields of the header", len(t.names))
		}
		t.out = append(append(t.out, sep), t.names[count]...)
		t.out = appendString(t.out, field)
		sep = ','
		count++
		return nil
	})
	if err == nil && count < len(t.names) {
		err = fmt.Errorf("%d fields, the header has %d", count, len(t.names))
	}
	if err != nil {
		t.out = t.out[:start]
		return more(err)
	}
	t.out = append(t.out, '}')
	return t.out[start:len(t.out):len(t.out)], size, lines, nil
}

func more(err error) ([]byte, int, int, error) {
	if errors.Is(err, errMore) {
		err = nil
	}
	return nil, 0, 0, err
}

// first reads the header.
func (t *table) first(b []byte, last bool) ([]byte, int, int, error) {
	var names [][]byte
	size, lines, err := t.row(b, last, func(field []byte) error {
		if len(field) == 0 {
			return fmt.Errorf("header: column %d has no name", len(names)+1)
		}
		name := append(appendString(nil, field), ':')
		for i, other := range names {
			if bytes.Equal(name, other) {
				return fmt.Errorf("header: columns %d and %d are both called %q", i+1, len(names)+1, field)
			}
		}
		names = append(names, name)
		return nil
	})
	if err != nil {
		return more(err)
	}
	t.names = names
	return nil, size, lines, nil
}

// blank returns the length of an empty line at the front of b, or 0.
func blank(b []byte) int {
	switch {
	case len(b) > 0 && b[0] == '\n':
		return 1
	case len(b) > 1 && b[0] == '\r' && b[1] == '\n':
		return 2
	}
	return 0
}

// row takes the row at the front of b apart. A field is valid during the call.
func (t *table) row(b []byte, last bool, emit func(field []byte) error) (size, lines int, err error) {
	i, lines := 0, 0
	for {
		var field []byte
		if i < len(b) && b[i] == '"' {
			field, i, err = t.quoted(b, i+1, &lines)
		} else {
			field, i, err = t.bare(b, i)
		}
		if err != nil {
			if last && errors.Is(err, errMore) {
				err = errors.New("quoted field is not closed at the end of the file")
			}
			return 0, 0, err
		}
		end, wrong := t.after(b, i, last)
		if wrong != nil {
			return 0, 0, wrong
		}
		if !utf8.Valid(field) {
			return 0, 0, errors.New("field is not UTF-8")
		}
		if err := emit(field); err != nil {
			return 0, 0, err
		}
		if end > 0 || i >= len(b) {
			return i + end, lines + 1, nil
		}
		i++
	}
}

// after looks at what follows a field: 0 for a separator or the end of the file,
// else the length of the line end.
func (t *table) after(b []byte, i int, last bool) (int, error) {
	switch {
	case i >= len(b) || (b[i] == '\r' && i+1 >= len(b)):
		if !last {
			return 0, errMore
		}
		return len(b) - i, nil
	case b[i] == t.comma:
		return 0, nil
	case blank(b[i:]) > 0:
		return blank(b[i:]), nil
	}
	return 0, fmt.Errorf("column %d: text after the closing quote of a field", i+1)
}

// bare returns the field without quotes at i, and where it ends.
func (t *table) bare(b []byte, i int) ([]byte, int, error) {
	for start := i; ; i++ {
		for i < len(b) && !t.stops[b[i]] {
			i++
		}
		switch {
		case i >= len(b) || b[i] == t.comma || b[i] == '\n':
			return b[start:i], i, nil
		case b[i] == '"':
			return nil, 0, fmt.Errorf("column %d: quote inside a field that does not begin with one", i+1)
		case i+1 >= len(b) || b[i+1] == '\n': // after '\r'
			return b[start:i], i, nil
		}
	}
}

// quoted returns the field whose contents begin at i, and where its closing quote
// ends.
func (t *table) quoted(b []byte, i int, lines *int) ([]byte, int, error) {
	t.field = t.field[:0]
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return nil, 0, errMore
		}
		*lines += bytes.Count(b[i:i+n], []byte{'\n'})
		t.field = append(t.field, b[i:i+n]...)
		i += n + 1
		if i >= len(b) || b[i] != '"' {
			return t.field, i, nil
		}
		t.field = append(t.field, '"')
		i++
	}
}

const hexDigits = "0123456789abcdef"

// plain marks the bytes that stand for themselves in a string.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 256; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendString appends s, which is UTF-8, as a JSON string.
func appendString(dst, s []byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		for i+8 <= len(s) && jsontext.Special(binary.LittleEndian.Uint64(s[i:])) == 0 {
			i += 8
		}
		if i >= len(s) || plain[s[i]] {
			continue
		}
		c := s[i]
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}
