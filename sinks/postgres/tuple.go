package postgres

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// This file writes tuples, the records of COPY's binary format:
//
//	+---------+-------------------------------------------+-----
//	| fields  | length, or 0xffffffff for null | contents | ...
//	| i16 BE  | i32 BE                         |          |
//	+---------+-------------------------------------------+-----
//
// A tuple has at most 255 fields, so that its first byte is zero, which no line of
// text holds: a record tells by its first byte which of the two it is.

// maxTuple is the most columns of a table whose records are tuples: their types
// are listed in the fingerprint of the wire form.
const maxTuple = 200

// letters are the types that a tuple can hold, as the fingerprint of the wire form
// spells them. They are kept in logs: a letter never changes its meaning.
var letters = map[kind]byte{
	kindText: 't', kindBool: 'b', kindInt2: 's', kindInt4: 'i', kindInt8: 'l', kindFloat4: 'f', kindFloat8: 'd',
	kindNumeric: 'n', kindBytea: 'x', kindDate: 'D', kindTime: 'T', kindTimestamp: 'p', kindTimestamptz: 'z',
	kindUUID: 'u', kindJSON: 'j', kindJSONB: 'J',
}

// lettersOf spells the types of the columns. It is "" if the table's records are
// lines of text: the table has too many columns, or one of a type that is not
// written in binary.
func lettersOf(columns []column) string {
	if len(columns) > maxTuple {
		return ""
	}
	out := make([]byte, 0, len(columns))
	for i := range columns {
		l := letters[columns[i].typ.kind]
		if columns[i].typ.enum {
			l = 'e'
		}
		if l == 0 || columns[i].typ.oid == pgtype.NameOID { // a long name is cut if it comes as text, and refused in binary
			return ""
		}
		out = append(out, l)
	}
	return string(out)
}

// A form is the wire form of the records of a sink or of a batch.
type form struct {
	mode    Mode
	columns string // hash of their names
	letters string // types of the columns, or "" if every record is a line of text
}

// String is the fingerprint.
func (f form) String() string {
	if f.letters == "" {
		return fmt.Sprintf("postgres copy text 1 %s %s", f.mode, f.columns)
	}
	return fmt.Sprintf("postgres copy binary 1 %s %s %s", f.mode, f.columns, f.letters)
}

// parseForm reads a fingerprint.
func parseForm(text string) (f form, ok bool) {
	words := strings.Split(text, " ")
	switch {
	case len(words) == 6 && strings.HasPrefix(text, "postgres copy text 1 "):
	case len(words) == 7 && strings.HasPrefix(text, "postgres copy binary 1 "):
		f.letters = words[6]
		if strings.Trim(f.letters, knownLetters) != "" || f.letters == "" {
			return f, false
		}
	default:
		return f, false
	}
	f.columns = words[5]
	for _, f.mode = range []Mode{Insert, Upsert, Statement} {
		if f.mode.String() == words[4] {
			return f, true
		}
	}
	return f, false
}

const knownLetters = "tbsilfdnxDTpzujJe"

// Takes implements [sinks.Taker]: records that have the same columns under the same
// names can be written whatever types they were made for, if need be as text.
func (s *Sink) Takes(format string) bool {
	f, ok := parseForm(format)
	return ok && f.mode == s.form.mode && f.columns == s.form.columns && (f.letters == "" || len(f.letters) == len(s.table.columns))
}

// begin starts a record.
func (s *Sink) begin(dst []byte, op byte, tuple bool) []byte {
	upsert := s.opts.Mode == Upsert
	if tuple {
		n := len(s.table.columns)
		if !upsert {
			return append(dst, 0, byte(n))
		}
		return append(dst, 0, byte(n+1), 0, 0, 0, 1, op)
	}
	if upsert {
		return append(dst, op)
	}
	return dst
}

// separate ends field i-1 of a record.
func (s *Sink) separate(dst []byte, i int, tuple bool) []byte {
	if tuple || i == 0 && s.opts.Mode != Upsert {
		return dst
	}
	return append(dst, '\t')
}

// end ends a record that begins at from, and refuses one that is over the limit.
func (s *Sink) end(dst []byte, from int, tuple bool) ([]byte, error) {
	if !tuple {
		dst = append(dst, '\n')
	}
	if n := len(dst) - from; n > s.opts.MaxRecord {
		return dst[:from], fmt.Errorf("%w: record of %d bytes, the limit is %d", ErrValue, n, s.opts.MaxRecord)
	}
	return dst, nil
}

// appendNull appends a null field.
func appendNull(dst []byte, tuple bool) []byte {
	if tuple {
		return append(dst, 0xff, 0xff, 0xff, 0xff)
	}
	return append(dst, '\\', 'N')
}

// reserve appends room for the length of a field that begins at the end of what
// it returns; measure fills it in.
func reserve(dst []byte) []byte { return append(dst, 0, 0, 0, 0) }

func measure(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at-4:], uint32(len(dst)-at))
	return dst
}

// The server counts days and microseconds from 2000-01-01.
const (
	epochDays   = 10957 // after 1970-01-01
	epochMicros = epochDays * dayMicros
	dayMicros   = 24 * 60 * 60 * 1e6
)

// The last years that the server's types hold.
const maxTimestampYear = 294276

// appendContents appends the contents of a field from the text form of its value,
// which the text encoder has found to be one of type t. It is false for a form
// that has to be left to the server: then the record becomes a line of text.
func appendContents(dst []byte, t *typ, text []byte) ([]byte, bool) {
	switch t.kind {
	case kindOther, kindText, kindJSON: // kindOther: the label of an enum
		return append(dst, text...), true
	case kindJSONB:
		return append(append(dst, 1), text...), true
	case kindBool:
		return append(dst, b2b(text[0] == 't')), len(text) > 0
	case kindInt2, kindInt4, kindInt8:
		n, reason := parseInt(text)
		return appendInteger(dst, n, t.kind), reason == ""
	case kindFloat4:
		f, err := strconv.ParseFloat(string(text), 32)
		return binary.BigEndian.AppendUint32(dst, math.Float32bits(float32(f))), err == nil
	case kindFloat8:
		f, err := strconv.ParseFloat(string(text), 64)
		return binary.BigEndian.AppendUint64(dst, math.Float64bits(f)), err == nil
	case kindNumeric:
		return appendNumeric(dst, text)
	case kindBytea:
		if len(text) < 2 || !isHex(text[2:]) {
			return dst, false
		}
		from := len(dst)
		dst = append(dst, text[2:]...)
		n, err := hex.Decode(dst[from:], dst[from:])
		return dst[:from+n], err == nil
	case kindUUID:
		return appendUUID(dst, text)
	}
	v, ok := parseMoment(text, t.kind, dst)
	return appendMoment(dst, v, t.kind), ok
}

func b2b(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// appendInteger appends n, which is in range.
func appendInteger(dst []byte, n int64, k kind) []byte {
	switch k {
	case kindInt2:
		return binary.BigEndian.AppendUint16(dst, uint16(n))
	case kindInt4:
		return binary.BigEndian.AppendUint32(dst, uint32(n))
	}
	return binary.BigEndian.AppendUint64(dst, uint64(n))
}

func appendUUID(dst, text []byte) ([]byte, bool) {
	from := len(dst)
	for _, c := range text {
		if c != '-' {
			dst = append(dst, c)
		}
	}
	n, err := hex.Decode(dst[from:], dst[from:])
	return dst[:from+n], err == nil && n == 16
}

// parseMoment reads a date, time, timestamp or timestamptz as the server counts it.
// It is false for what appendDateTime refuses, and what is beyond the server's
// years. It may write behind scratch.
func parseMoment(text []byte, k kind, scratch []byte) (v int64, ok bool) {
	switch s := string(text); {
	case s == "infinity" && k == kindDate:
		return math.MaxInt32, true
	case s == "-infinity" && k == kindDate:
		return math.MinInt32, true
	case s == "infinity" && k != kindTime:
		return math.MaxInt64, true
	case s == "-infinity" && k != kindTime:
		return math.MinInt64, true
	}
	c := clock{text: text}
	if k != kindTime {
		c.date()
	}
	var zoned, utc bool
	if k == kindTime {
		c.time(scratch)
	} else if k != kindDate && (len(c.text) > 0 || k == kindTimestamptz) {
		c.want("Tt ")
		c.time(scratch)
		_, zoned, utc = c.zone(scratch)
	}
	switch {
	case c.bad || len(c.text) > 0 || c.year > maxTimestampYear:
		return 0, false
	case k == kindTimestamptz && !zoned || k == kindTimestamp && zoned && !utc:
		return 0, false
	case k == kindDate:
		return c.days, true
	}
	return c.days*dayMicros + c.micros - c.offset, true
}

// appendMoment appends what parseMoment read.
func appendMoment(dst []byte, v int64, k kind) []byte {
	if k == kindDate {
		return binary.BigEndian.AppendUint32(dst, uint32(v))
	}
	return binary.BigEndian.AppendUint64(dst, uint64(v))
}

// Seconds from 1970 within which the year is 1 to 9999 in every zone.
const (
	leastSecond = -62_135_596_800 + 2*24*60*60
	mostSecond  = 253_402_300_800 - 2*24*60*60
)

// appendTime appends a time as goTime writes it. It is false if the column is of no
// type for it, and for years that goTime leaves to others.
func appendTime(dst []byte, v time.Time, k kind) ([]byte, bool) {
	if s := v.Unix(); s < leastSecond || s > mostSecond {
		return dst, false
	}
	at := v.UnixMicro() - epochMicros
	if k == kindTimestamptz {
		return binary.BigEndian.AppendUint64(dst, uint64(at)), true
	}
	_, offset := v.Zone()
	at += int64(offset) * 1e6
	days := floorDiv(at, dayMicros)
	switch k {
	case kindTimestamp:
		return binary.BigEndian.AppendUint64(dst, uint64(at)), true
	case kindDate:
		return binary.BigEndian.AppendUint32(dst, uint32(days)), true
	case kindTime:
		return binary.BigEndian.AppendUint64(dst, uint64(at-days*dayMicros)), true
	}
	return dst, false
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// The numeric type's signs.
const (
	numericMinus    = 0x4000
	numericNaN      = 0xc000
	numericInfinity = 0xd000
	numericMinusInf = 0xf000
)

// maxNumericDigits is how many digits of base 10,000 the server reads.
const maxNumericDigits = 3000

// appendNumeric appends a numeric: the number of its digits of base 10,000, the
// weight of the first, the sign, the number of decimals to show, and the digits.
func appendNumeric(dst, text []byte) ([]byte, bool) {
	switch string(text) {
	case "NaN":
		return appendWords(dst, 0, 0, numericNaN, 0), true
	case "Infinity":
		return appendWords(dst, 0, 0, numericInfinity, 0), true
	case "-Infinity":
		return appendWords(dst, 0, 0, numericMinusInf, 0), true
	}
	sign, from := uint16(0), len(dst)
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		if text[0] == '-' {
			sign = numericMinus
		}
		text = text[1:]
	}
	exp := 0
	if i := slices.IndexFunc(text, func(c byte) bool { return c|0x20 == 'e' }); i >= 0 {
		var err error
		if exp, err = strconv.Atoi(string(text[i+1:])); err != nil {
			return dst, false
		}
		text = text[:i]
	}
	whole, fraction := text, []byte(nil)
	if i := slices.Index(text, '.'); i >= 0 {
		whole, fraction = text[:i], text[i+1:]
	}
	point := len(whole) + exp // of the digits, those of the fraction included
	decimals := max(len(fraction)-exp, 0)
	digit := func(i int) uint16 {
		switch {
		case i < 0 || i >= len(whole)+len(fraction):
			return 0
		case i < len(whole):
			return uint16(whole[i] - '0')
		}
		return uint16(fraction[i-len(whole)] - '0')
	}
	first, end := 0, len(whole)+len(fraction)
	for first < end && digit(first) == 0 {
		first++
	}
	for end > first && digit(end-1) == 0 {
		end--
	}
	if first == end {
		return appendWords(dst, 0, 0, 0, uint16(decimals)), decimals <= maxNumericAfter
	}
	weight := int(floorDiv(int64(point-first-1), 4))
	at := point - 4*(weight+1) // the digit at which the first group begins, perhaps before first
	n := (end - at + 3) / 4
	if n > maxNumericDigits || weight > math.MaxInt16 || decimals > maxNumericAfter {
		return dst[:from], false
	}
	dst = appendWords(dst, uint16(n), uint16(weight), sign, uint16(decimals))
	for ; at < end; at += 4 {
		dst = appendWords(dst, digit(at)*1000+digit(at+1)*100+digit(at+2)*10+digit(at+3))
	}
	return dst, true
}

func appendWords(dst []byte, words ...uint16) []byte {
	for _, w := range words {
		dst = binary.BigEndian.AppendUint16(dst, w)
	}
	return dst
}
