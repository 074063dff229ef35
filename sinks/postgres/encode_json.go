package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendJSON appends the record for one JSON object to dst and returns the
// longer slice; after an error, dst as it was. A field goes to the column of its
// name:
//
//   - a number to a column of a number type as it is written, without a detour
//     over floating point; text columns take it too
//   - a string to every column, if it is the text form of its type. Dates and
//     times are those of RFC 3339, cut after the microsecond; bytes are base64
//     or \x and hexadecimal; special floats are "NaN", "Infinity", "-Infinity"
//   - an array to an array column, element by element
//   - anything to a json or jsonb column
//   - null, or a field that is not there, as null
//
// It refuses, with ErrValue, what the column's type could not hold, NUL
// characters, invalid UTF-8, a field given twice, and a field without a column
// unless Options.Rest names one for it. For types that it does not know, such as
// enums, ranges and composites, the server has the last word, see the package
// comment. It is safe for concurrent use and keeps nothing of line.
func (s *Sink) AppendJSON(dst, line []byte) ([]byte, error) {
	sc := s.scratch.get(len(s.table.columns))
	defer s.scratch.put(sc)
	tombstone, err := s.scanObject(sc, line)
	if err != nil {
		return dst, err
	}
	out, err := s.appendObject(dst, sc, tombstone, s.tuples())
	if errors.Is(err, errLine) {
		out, err = s.appendObject(dst, sc, tombstone, false)
	}
	return out, err
}

// appendObject appends the record of a scanned object. After an error it returns
// dst as it was.
func (s *Sink) appendObject(dst []byte, sc *scratch, tombstone, tuple bool) ([]byte, error) {
	out := s.begin(dst, operationOf(tombstone), tuple)
	for i := range s.table.columns {
		c := &s.table.columns[i]
		v := sc.slots[i]
		if tombstone && !s.isKey(c) {
			v = slot{}
		}
		var err error
		if out, err = s.appendField(s.separate(out, i, tuple), sc, c, v, tombstone, tuple); err != nil {
			return dst, err
		}
	}
	return s.end(out, len(dst), tuple)
}

func operationOf(tombstone bool) byte {
	if tombstone {
		return 'D'
	}
	return 'U'
}

func (s *Sink) isKey(c *column) bool { return slices.Contains(s.opts.Key, c.name) }

// appendField appends one column, or refuses a null that the table does not take.
func (s *Sink) appendField(dst []byte, sc *scratch, c *column, v slot, tombstone, tuple bool) ([]byte, error) {
	if !v.isNull() {
		return sc.appendJSON(dst, c, v, tuple)
	}
	if s.isKey(c) || c.notNull && !tombstone {
		return dst, refuse(c, "null or missing, and the column takes no null")
	}
	return appendNull(dst, tuple), nil
}

// scanObject fills the slots from a JSON object, and says whether it is a
// tombstone.
func (s *Sink) scanObject(sc *scratch, line []byte) (tombstone bool, err error) {
	in := jsonScanner{text: line}
	sc.rest, sc.next = sc.rest[:0], 0
	if !in.take('{') {
		return false, fmt.Errorf("%w: byte %d: not a JSON object", ErrValue, in.pos)
	}
	for more := !in.take('}'); more; {
		dead, err := s.scanField(sc, &in)
		if err != nil {
			return false, err
		}
		tombstone = tombstone || dead
		if in.take('}') {
			break
		}
		if !in.take(',') {
			return false, fmt.Errorf("%w: byte %d: not JSON", ErrValue, in.pos)
		}
	}
	if in.peek() != 0 || in.pos != len(line) {
		return false, fmt.Errorf("%w: byte %d: more after the JSON object", ErrValue, in.pos)
	}
	return tombstone, s.takeRest(sc)
}

// scanField reads one field into its slot. It reports whether the field made the
// record a tombstone.
func (s *Sink) scanField(sc *scratch, in *jsonScanner) (tombstone bool, err error) {
	c := in.peek()
	start := in.pos
	if c != '"' || !in.string() {
		return false, fmt.Errorf("%w: byte %d: not JSON", ErrValue, in.pos)
	}
	quoted := in.text[start:in.pos]
	i := s.expected(sc, quoted)
	if i < 0 {
		var ok bool
		if sc.key, ok = unescape(sc.key[:0], quoted); !ok || !utf8.Valid(sc.key) {
			return false, fmt.Errorf("%w: byte %d: field name is not UTF-8", ErrValue, start)
		}
	}
	if !in.take(':') {
		return false, fmt.Errorf("%w: byte %d: not JSON", ErrValue, in.pos)
	}
	raw, ok := in.value(0)
	if !ok {
		return false, fmt.Errorf("%w: field %q: byte %d: not JSON", ErrValue, clip(quoted[1:len(quoted)-1]), in.pos)
	}
	if !utf8.Valid(raw) {
		return false, fmt.Errorf("%w: field %q: invalid UTF-8", ErrValue, clip(quoted[1:len(quoted)-1]))
	}
	if i >= 0 {
		sc.slots[i], sc.next = slot{raw, raw[0]}, i+1
		return false, nil
	}
	if s.opts.Tombstone != "" && string(sc.key) == s.opts.Tombstone {
		return raw[0] == 't', nil
	}
	return false, s.assign(sc, quoted, raw)
}

// expected returns the column after that of the field before if the field is its,
// and has not been seen, or -1. Most records have their fields in the same order.
func (s *Sink) expected(sc *scratch, quoted []byte) int {
	i := sc.next
	if i >= len(s.table.columns) || sc.slots[i].raw != nil {
		return -1
	}
	if name := s.table.columns[i].name; string(quoted[1:len(quoted)-1]) != name || name == s.opts.Tombstone || strings.ContainsRune(name, '\\') {
		return -1
	}
	return i
}

// clip shortens a field's name for a message.
func clip(name []byte) []byte { return name[:min(len(name), 2*maxName)] }

// assign puts a field's value where it belongs.
func (s *Sink) assign(sc *scratch, quoted, raw []byte) error {
	i, ok := s.table.index[string(sc.key)]
	switch {
	case ok && sc.slots[i].raw != nil:
		return fmt.Errorf("%w: field %q: given twice", ErrValue, clip(sc.key))
	case ok:
		sc.slots[i], sc.next = slot{raw, raw[0]}, i+1
		return nil
	case s.opts.Rest == "":
		return s.unknown(sc.key)
	}
	if len(sc.rest) == 0 {
		sc.rest = append(sc.rest, '{')
	} else {
		sc.rest = append(sc.rest, ',')
	}
	sc.rest = append(append(append(sc.rest, quoted...), ':'), raw...)
	return nil
}

// unknown refuses a field without a column and says what to do about it.
func (s *Sink) unknown(key []byte) error {
	if why, ok := s.table.skipped[string(key)]; ok {
		return fmt.Errorf("%w: field %q: the column %s; name it in Columns to write it, or leave the field out", ErrValue, clip(key), why)
	}
	return fmt.Errorf("%w: field %q: %s has no such column; add it, or name a jsonb column in Rest", ErrValue, clip(key), s.table.plain)
}

// takeRest makes the unknown fields the value of the column for them.
func (s *Sink) takeRest(sc *scratch) error {
	if len(sc.rest) == 0 {
		return nil
	}
	i := s.table.index[s.opts.Rest]
	if sc.slots[i].raw != nil {
		return fmt.Errorf("%w: field %q: given, but the column is for fields without a column of their own", ErrValue, s.opts.Rest)
	}
	sc.rest = append(sc.rest, '}')
	sc.slots[i] = slot{sc.rest, '{'}
	return nil
}

// appendJSON appends a value that is not null.
func (sc *scratch) appendJSON(dst []byte, c *column, v slot, tuple bool) ([]byte, error) {
	if tuple {
		return sc.appendJSONTuple(dst, c, v)
	}
	text, reason := sc.jsonText(sc.text[:0], &c.typ, v)
	sc.text = text[:0]
	if reason != "" {
		return dst, refuseFor(c, reason)
	}
	return appendEscaped(dst, text), nil
}

// appendJSONTuple appends a value that is not null as a field of a tuple, the
// common ones without a detour over their text form.
func (sc *scratch) appendJSONTuple(dst []byte, c *column, v slot) ([]byte, error) {
	t := &c.typ
	out := reserve(dst)
	at := len(out)
	var reason string
	switch {
	case v.kind == '"' && t.kind == kindText:
		var ok bool
		if out, ok = unescape(out, v.raw); !ok {
			return dst, refuseFor(c, badSurrogate)
		}
		if t.maxLen > 0 || len(out)-at < len(v.raw)-2 { // else it is what was read, which was checked
			reason = checkText(t, out[at:])
		}
	case v.kind != '"' && intBits(t.kind) > 0:
		var n int64
		if n, reason = parseInt(v.raw); reason == "" {
			reason = checkBits(n, intBits(t.kind))
		}
		out = appendInteger(out, n, t.kind)
		if reason != "" {
			_, reason = sc.jsonText(sc.text[:0], t, v) // which knows what else it is
		}
	case v.kind != '"' && t.kind == kindFloat8 && isPlain(v.raw):
		f, err := strconv.ParseFloat(string(v.raw), 64)
		if err != nil {
			return dst, errLine
		}
		out = binary.BigEndian.AppendUint64(out, math.Float64bits(f))
	case v.kind == '"' && kindDate <= t.kind && t.kind <= kindTimestamptz && bytes.IndexByte(v.raw, '\\') < 0:
		text := v.raw[1 : len(v.raw)-1]
		if v, ok := parseMoment(text, t.kind, out); ok {
			out = appendMoment(out, v, t.kind)
		} else if _, reason = appendText(sc.text[:0], t, text); reason == "" {
			return dst, errLine
		}
	default:
		var text []byte
		if text, reason = sc.jsonText(sc.text[:0], t, v); reason == "" {
			var ok bool
			if out, ok = appendContents(out, t, text); !ok {
				return dst, errLine
			}
		}
		sc.text = text[:0]
	}
	if reason != "" {
		return dst, refuseFor(c, reason)
	}
	return measure(out, at), nil
}

// jsonText appends the text form of a JSON value for a column of type t, or says
// why there is none.
func (sc *scratch) jsonText(dst []byte, t *typ, v slot) ([]byte, string) {
	switch {
	case t.kind == kindJSON:
		return append(dst, v.raw...), ""
	case t.kind == kindJSONB:
		return append(dst, v.raw...), checkJSONB(v.raw)
	case v.kind == '[' && t.kind == kindArray:
		return sc.jsonArray(dst, t, v.raw, 0)
	case v.kind == '[' || v.kind == '{':
		return dst, "a JSON array or object, where a scalar is wanted"
	case v.kind == '"':
		var ok bool
		if sc.aux, ok = unescape(sc.aux[:0], v.raw); !ok {
			return dst, badSurrogate
		}
		return appendText(dst, t, sc.aux)
	case v.kind == 't' || v.kind == 'f':
		if t.kind != kindBool && t.kind != kindText && t.kind != kindOther {
			return dst, "true or false"
		}
		return appendText(dst, t, v.raw)
	case wantsText(t.kind):
		return dst, "a number, where text is wanted"
	}
	return appendText(dst, t, v.raw)
}

// wantsText reports whether a number can be no value of the kind.
func wantsText(k kind) bool {
	switch k {
	case kindBool, kindBytea, kindDate, kindTime, kindTimestamp, kindTimestamptz, kindUUID, kindArray:
		return true
	}
	return false
}

// appendText appends a value that is given as text, in the form the server reads,
// or says why it is none of the type.
func appendText(dst []byte, t *typ, text []byte) ([]byte, string) {
	if reason := checkText(t, text); reason != "" {
		return dst, reason
	}
	reason := ""
	switch t.kind {
	case kindBool:
		if s := string(text); s != "true" && s != "false" && s != "t" && s != "f" {
			reason = "not true or false"
		}
	case kindInt2, kindInt4, kindInt8:
		return appendInt(dst, text, intBits(t.kind))
	case kindFloat4:
		reason = checkFloat(text, 32)
	case kindFloat8:
		reason = checkFloat(text, 64)
	case kindNumeric:
		reason = checkNumeric(text)
	case kindBytea:
		return appendBytea(dst, text)
	case kindDate, kindTime, kindTimestamp, kindTimestamptz:
		return appendDateTime(dst, text, t.kind)
	case kindUUID:
		reason = checkUUID(text)
	case kindJSON, kindJSONB:
		reason = checkJSON(t, text)
	}
	return append(dst, text...), reason
}

// checkJSON is for text that is to be JSON.
func checkJSON(t *typ, text []byte) string {
	if !isJSON(text) {
		return "not JSON"
	}
	if t.kind == kindJSONB {
		return checkJSONB(text)
	}
	return ""
}

// jsonArray appends a JSON array as the text form of an array.
func (sc *scratch) jsonArray(dst []byte, t *typ, raw []byte, depth int) ([]byte, string) {
	const maxDimensions = 6 // the server's
	if depth == maxDimensions {
		return dst, "an array of more than 6 dimensions"
	}
	in := jsonScanner{text: raw, pos: 1}
	dst = append(dst, '{')
	if in.take(']') {
		return append(dst, '}'), ""
	}
	for {
		value, _ := in.value(0) // scanned before
		var reason string
		if dst, reason = sc.jsonElement(dst, t, slot{value, value[0]}, depth); reason != "" {
			return dst, reason
		}
		if !in.take(',') {
			return append(dst, '}'), ""
		}
		dst = append(dst, t.delim)
	}
}

func (sc *scratch) jsonElement(dst []byte, t *typ, v slot, depth int) ([]byte, string) {
	isJSON := t.element.kind == kindJSON || t.element.kind == kindJSONB
	switch {
	case v.kind == 'n':
		return append(dst, "NULL"...), ""
	case v.kind == '[' && !isJSON:
		return sc.jsonArray(dst, t, v.raw, depth+1)
	}
	text, reason := sc.jsonText(sc.quoted[:0], t.element, v)
	sc.quoted = text[:0]
	return appendElement(dst, text), reason
}

// appendElement appends an array's element in quotes.
func appendElement(dst, text []byte) []byte {
	dst = append(dst, '"')
	for {
		i := bytes.IndexAny(text, `"\`)
		if i < 0 {
			return append(append(dst, text...), '"')
		}
		dst = append(append(dst, text[:i]...), '\\', text[i])
		text = text[i+1:]
	}
}
