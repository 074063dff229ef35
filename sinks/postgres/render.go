package postgres

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"time"
)

// This file turns tuples into lines of text: for a column whose type has changed
// since the record was made, which the server's input functions then see to, and
// for the search for bad records.

// badTuple says why a record is not one tuple of n fields, or returns "".
func badTuple(rec []byte, n, limit int) string {
	const not = "not made by an encoder of this sink: "
	if len(rec) < 2 || int(binary.BigEndian.Uint16(rec)) != n {
		return not + "wrong number of columns"
	}
	if len(rec) > limit {
		return tooLong(rec, limit)
	}
	rest := rec[2:]
	for range n {
		if len(rest) < 4 {
			return not + "a field without length"
		}
		size := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; size == math.MaxUint32 {
			continue
		}
		if uint64(size) > uint64(len(rest)) {
			return not + "a field that is longer than its record"
		}
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return not + "more after the last field"
	}
	return ""
}

// nextField cuts the first field off a tuple that was checked.
func nextField(tuple []byte) (field, rest []byte, null bool) {
	size := binary.BigEndian.Uint32(tuple)
	if tuple = tuple[4:]; size == math.MaxUint32 {
		return nil, tuple, true
	}
	return tuple[:size], tuple[size:], false
}

// A liner gives the records of a step as lines, whatever form they are in. It is
// not safe for concurrent use.
type liner struct {
	letters []string // of each batch; "" if it has lines only
	upsert  bool
	limit   int
	buf     []byte
	text    []byte
}

// isTuple tells a tuple from a line.
func isTuple(rec []byte) bool { return len(rec) > 0 && rec[0] == 0 }

// fields is how many fields a tuple of the batch has.
func (l *liner) fields(batch int) int {
	n := len(l.letters[batch])
	if l.upsert {
		n++
	}
	return n
}

// line returns a record of a batch as a line that is valid until the next call,
// or says why it is none.
func (l *liner) line(batch int, rec []byte) (line []byte, why string) {
	if !isTuple(rec) {
		return rec, badLine(rec, l.limit)
	}
	if why := badTuple(rec, l.fields(batch), l.limit); why != "" {
		return nil, why
	}
	var ok bool
	if l.buf, ok = l.render(l.buf[:0], l.letters[batch], rec[2:]); !ok {
		return nil, "not made by an encoder of this sink: a field of the wrong length"
	}
	return l.buf, ""
}

// render appends the line for the fields of a tuple that was checked. It is false
// if a field does not hold a value of its type.
func (l *liner) render(dst []byte, letters string, rest []byte) ([]byte, bool) {
	var field []byte
	var null bool
	if l.upsert {
		field, rest, _ = nextField(rest)
		dst = append(dst, field...)
	}
	for i := range len(letters) {
		if i > 0 || l.upsert {
			dst = append(dst, '\t')
		}
		if field, rest, null = nextField(rest); null {
			dst = appendNull(dst, false)
			continue
		}
		text, ok := renderField(l.text[:0], letters[i], field)
		if l.text = text[:0]; !ok {
			return dst, false
		}
		dst = appendEscaped(dst, text)
	}
	return append(dst, '\n'), true
}

// sizes are the lengths of the contents of types of one length.
var sizes = [256]int{'b': 1, 's': 2, 'i': 4, 'l': 8, 'f': 4, 'd': 8, 'D': 4, 'T': 8, 'p': 8, 'z': 8, 'u': 16}

// renderField appends the text form of a field's contents.
func renderField(dst []byte, letter byte, v []byte) ([]byte, bool) {
	if size := sizes[letter]; size > 0 && size != len(v) {
		return dst, false
	}
	switch letter {
	case 't', 'j', 'e':
		return append(dst, v...), true
	case 'J':
		if len(v) == 0 || v[0] != 1 {
			return dst, false
		}
		return append(dst, v[1:]...), true
	case 'b':
		return strconv.AppendBool(dst, v[0] != 0), true
	case 's':
		return strconv.AppendInt(dst, int64(int16(binary.BigEndian.Uint16(v))), 10), true
	case 'i':
		return strconv.AppendInt(dst, int64(int32(binary.BigEndian.Uint32(v))), 10), true
	case 'l':
		return strconv.AppendInt(dst, int64(binary.BigEndian.Uint64(v)), 10), true
	case 'f':
		return appendFloat(dst, float64(math.Float32frombits(binary.BigEndian.Uint32(v))), 32), true
	case 'd':
		return appendFloat(dst, math.Float64frombits(binary.BigEndian.Uint64(v)), 64), true
	case 'n':
		return renderNumeric(dst, v)
	case 'x':
		return hex.AppendEncode(append(dst, '\\', 'x'), v), true
	case 'u':
		for i, part := range [][]byte{v[:4], v[4:6], v[6:8], v[8:10], v[10:]} {
			if i > 0 {
				dst = append(dst, '-')
			}
			dst = hex.AppendEncode(dst, part)
		}
		return dst, true
	}
	return renderMoment(dst, letter, v)
}

// appendFloat appends a float as the server reads it.
func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits)
}

// renderMoment appends a date, time, timestamp or timestamptz.
func renderMoment(dst []byte, letter byte, v []byte) ([]byte, bool) {
	if letter == 'D' {
		days := int32(binary.BigEndian.Uint32(v))
		switch days {
		case math.MaxInt32:
			return append(dst, "infinity"...), true
		case math.MinInt32:
			return append(dst, "-infinity"...), true
		}
		return renderDate(dst, int64(days))
	}
	n := int64(binary.BigEndian.Uint64(v))
	switch {
	case letter == 'T':
		return renderTime(dst, n), 0 <= n && n <= dayMicros
	case n == math.MaxInt64:
		return append(dst, "infinity"...), true
	case n == math.MinInt64:
		return append(dst, "-infinity"...), true
	}
	days := floorDiv(n, dayMicros)
	dst, ok := renderDate(dst, days)
	dst = renderTime(append(dst, ' '), n-days*dayMicros)
	if letter == 'z' {
		dst = append(dst, 'Z')
	}
	return dst, ok
}

// renderDate appends a date. It is false before the year 1, which our encoders
// leave as text.
func renderDate(dst []byte, days int64) ([]byte, bool) {
	year, month, day := time.Unix((days+epochDays)*24*60*60, 0).UTC().Date()
	dst = appendPadded(dst, int64(year), 4)
	dst = appendPadded(append(dst, '-'), int64(month), 2)
	return appendPadded(append(dst, '-'), int64(day), 2), year >= 1
}

func renderTime(dst []byte, micros int64) []byte {
	seconds := micros / 1e6
	dst = appendPadded(dst, seconds/3600, 2)
	dst = appendPadded(append(dst, ':'), seconds/60%60, 2)
	dst = appendPadded(append(dst, ':'), seconds%60, 2)
	return appendPadded(append(dst, '.'), micros%1e6, 6)
}

// appendPadded appends n, which is not negative, with at least the given number
// of digits.
func appendPadded(dst []byte, n int64, digits int) []byte {
	for limit := int64(10); digits > 1; digits-- {
		if n < limit {
			dst = append(dst, '0')
		}
		limit *= 10
	}
	return strconv.AppendInt(dst, n, 10)
}

// renderNumeric appends what appendNumeric wrote.
func renderNumeric(dst, v []byte) ([]byte, bool) {
	if len(v) < 8 || len(v) != 8+2*int(binary.BigEndian.Uint16(v)) {
		return dst, false
	}
	weight := int(int16(binary.BigEndian.Uint16(v[2:])))
	decimals := int(binary.BigEndian.Uint16(v[6:]))
	switch binary.BigEndian.Uint16(v[4:]) {
	case 0:
	case numericMinus:
		dst = append(dst, '-')
	case numericNaN:
		return append(dst, "NaN"...), true
	case numericInfinity:
		return append(dst, "Infinity"...), true
	case numericMinusInf:
		return append(dst, "-Infinity"...), true
	default:
		return dst, false
	}
	group := func(i int) int64 { // the digits that count 10000 to the power of i
		if at := 8 + 2*(weight-i); i <= weight && at < len(v) {
			return int64(binary.BigEndian.Uint16(v[at:]))
		}
		return 0
	}
	dst = strconv.AppendInt(dst, group(max(weight, 0)), 10)
	for i := weight - 1; i >= 0; i-- {
		dst = appendPadded(dst, group(i), 4)
	}
	if decimals == 0 {
		return dst, true
	}
	dst = append(dst, '.')
	end := len(dst) + decimals
	for i := -1; len(dst) < end; i-- {
		dst = appendPadded(dst, group(i), 4)
	}
	return dst[:end], true
}
