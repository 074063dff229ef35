package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

// ErrValue says that a value cannot go into its column. It is wrapped with the
// column's name and the reason, never with the value.
var ErrValue = errors.New("bad value")

// A scratch is the memory that encoding one record needs.
type scratch struct {
	slots  []slot
	next   int    // column that the next field of a JSON record is likely to be
	text   []byte // text form of a value
	aux    []byte // text form of an array's element
	given  []byte // a value that was given as a string
	key    []byte // unescaped field name
	rest   []byte // unknown fields
	quoted []byte // array element in quotes
	types  *pgtype.Map
}

// A scratchPool hands out scratch memory. The zero value is ready to use.
type scratchPool struct{ pool sync.Pool }

func (p *scratchPool) get(columns int) *scratch {
	s, _ := p.pool.Get().(*scratch)
	if s == nil {
		s = new(scratch)
	}
	if cap(s.slots) < columns {
		s.slots = make([]slot, columns)
	}
	s.slots = s.slots[:columns]
	clear(s.slots)
	return s
}

func (p *scratchPool) put(s *scratch) { p.pool.Put(s) }

// valueError is why a value is refused.
type valueError struct {
	column, reason string
}

func (e *valueError) Error() string {
	return fmt.Sprintf("%v: column %q: %s", ErrValue, e.column, e.reason)
}

func (e *valueError) Unwrap() error { return ErrValue }

// refuse returns the error for a value of column c.
func refuse(c *column, format string, args ...any) error {
	return &valueError{c.name, fmt.Sprintf(format, args...)}
}

// refuseFor returns the error for a value that column c has no room for.
func refuseFor(c *column, reason string) error {
	return refuse(c, "%s (the column is %s)", reason, c.typ.name)
}

// errLine says that a value has a form that only the server reads, so that its
// record has to be a line of text.
var errLine = errors.New("not for a tuple")

// tuples reports whether records are tuples, as a rule.
func (s *Sink) tuples() bool { return s.form.letters != "" }

// appendEscaped appends text as a field of COPY's text format. The four bytes
// that mean something there are escaped; nothing else has to be.
func appendEscaped(dst, text []byte) []byte {
	if len(text) > 16 && isClean(text) { // four vectorized searches beat one loop
		return append(dst, text...)
	}
	start := 0
	for i, c := range text {
		var e byte
		switch c {
		case '\\':
			e = '\\'
		case '\t':
			e = 't'
		case '\n':
			e = 'n'
		case '\r':
			e = 'r'
		default:
			continue
		}
		dst = append(dst, text[start:i]...)
		dst = append(dst, '\\', e)
		start = i + 1
	}
	return append(dst, text[start:]...)
}

func isClean(text []byte) bool {
	return bytes.IndexByte(text, '\\') < 0 && bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\t') < 0 && bytes.IndexByte(text, '\r') < 0
}

// checkText says why the server could not store text in a column of type t, or
// returns "". What the type's input function thinks of it is checked elsewhere.
func checkText(t *typ, text []byte) string {
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return fmt.Sprintf("NUL character at byte %d, which Postgres cannot store", i)
	}
	if !utf8.Valid(text) {
		return "invalid UTF-8"
	}
	if t.maxLen > 0 && len(text) > t.maxLen {
		if n := utf8.RuneCount(bytes.TrimRight(text, " ")); n > t.maxLen {
			return fmt.Sprintf("%d characters, the limit is %d", n, t.maxLen)
		}
	}
	return ""
}
