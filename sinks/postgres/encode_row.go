package postgres

import (
	"database/sql/driver"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// AppendRow appends the record for one row to dst and returns the longer slice;
// after an error, dst as it was. values are in the order of [Sink.Columns]; nil
// and nil pointers are null. Beside strings, numbers, bool, []byte and time.Time
// it takes whatever pgx can write for the column's type, slices for array
// columns, and a string in the type's text form for any column. A string or
// []byte for a json or jsonb column is JSON text; other values are marshalled.
// A time is cut after the microsecond. It refuses with ErrValue what
// [Sink.AppendJSON] refuses. It is safe for concurrent use and keeps none of the
// values.
func (s *Sink) AppendRow(dst []byte, values []any) ([]byte, error) {
	if len(values) != len(s.table.columns) {
		return dst, fmt.Errorf("%w: %d values for %d columns", ErrValue, len(values), len(s.table.columns))
	}
	sc := s.scratch.get(0)
	defer s.scratch.put(sc)
	out, err := s.appendRow(dst, sc, values, s.tuples())
	if errors.Is(err, errLine) {
		out, err = s.appendRow(dst, sc, values, false)
	}
	return out, err
}

// appendRow appends the record of a row. After an error it returns dst as it was.
func (s *Sink) appendRow(dst []byte, sc *scratch, values []any, tuple bool) ([]byte, error) {
	out := s.begin(dst, 'U', tuple)
	for i, v := range values {
		var err error
		if out, err = s.appendValue(s.separate(out, i, tuple), sc, &s.table.columns[i], v, tuple); err != nil {
			return dst, err
		}
	}
	return s.end(out, len(dst), tuple)
}

// AppendDelete appends the record that deletes the row with the given key, whose
// values are in the order of Options.Key. It is for mode Upsert; otherwise as
// [Sink.AppendRow].
func (s *Sink) AppendDelete(dst []byte, key ...any) ([]byte, error) {
	if s.opts.Mode != Upsert || len(key) != len(s.opts.Key) {
		return dst, fmt.Errorf("%w: %d key values in mode %s with %d key columns", ErrValue, len(key), s.opts.Mode, len(s.opts.Key))
	}
	sc := s.scratch.get(0)
	defer s.scratch.put(sc)
	out, err := s.appendDelete(dst, sc, key, s.tuples())
	if errors.Is(err, errLine) {
		out, err = s.appendDelete(dst, sc, key, false)
	}
	return out, err
}

func (s *Sink) appendDelete(dst []byte, sc *scratch, key []any, tuple bool) ([]byte, error) {
	out := s.begin(dst, 'D', tuple)
	for i := range s.table.columns {
		c := &s.table.columns[i]
		out = s.separate(out, i, tuple)
		if !s.isKey(c) {
			out = appendNull(out, tuple)
			continue
		}
		var err error
		if out, err = s.appendValue(out, sc, c, key[slices.Index(s.opts.Key, c.name)], tuple); err != nil {
			return dst, err
		}
	}
	return s.end(out, len(dst), tuple)
}

// appendValue appends one column.
func (s *Sink) appendValue(dst []byte, sc *scratch, c *column, v any, tuple bool) ([]byte, error) {
	if tuple {
		if out, ok := appendPlain(dst, &c.typ, v); ok {
			return out, nil
		}
	}
	text, null, reason := sc.goText(sc.text[:0], &c.typ, v)
	sc.text = text[:0]
	switch {
	case reason != "":
		return dst, refuseFor(c, reason)
	case !null && tuple:
		out := reserve(dst)
		at := len(out)
		var ok bool
		if out, ok = appendContents(out, &c.typ, text); !ok {
			return dst, errLine
		}
		return measure(out, at), nil
	case !null:
		return appendEscaped(dst, text), nil
	case c.notNull || s.isKey(c):
		return dst, refuse(c, "null, and the column takes no null")
	}
	return appendNull(dst, tuple), nil
}

// appendPlain appends the values that are most common as a field of a tuple,
// without a detour over their text form. It is false for all others, and for bad
// ones.
func appendPlain(dst []byte, t *typ, v any) ([]byte, bool) {
	out := reserve(dst)
	at := len(out)
	switch v := v.(type) {
	case string:
		if t.kind != kindText {
			return dst, false
		}
		out = append(out, v...)
		if checkText(t, out[at:]) != "" {
			return dst, false
		}
	case int64:
		return appendWhole(dst, t, v)
	case int:
		return appendWhole(dst, t, int64(v))
	case int32:
		return appendWhole(dst, t, int64(v))
	case float64:
		if t.kind != kindFloat8 {
			return dst, false
		}
		out = binary.BigEndian.AppendUint64(out, math.Float64bits(v))
	case bool:
		if t.kind != kindBool {
			return dst, false
		}
		out = append(out, b2b(v))
	case []byte:
		if t.kind != kindBytea || v == nil {
			return dst, false
		}
		out = append(out, v...)
	case time.Time:
		var ok bool
		if out, ok = appendTime(out, v, t.kind); !ok {
			return dst, false
		}
	default:
		return dst, false
	}
	return measure(out, at), true
}

// appendWhole appends a whole number if the column is of an integer type that
// holds it.
func appendWhole(dst []byte, t *typ, n int64) ([]byte, bool) {
	bits := intBits(t.kind)
	if bits == 0 || checkBits(n, bits) != "" {
		return dst, false
	}
	out := reserve(dst)
	at := len(out)
	return measure(appendInteger(out, n, t.kind), at), true
}

// goText appends the text form of a Go value for a column of type t, or says
// that it is null, or why there is none.
func (sc *scratch) goText(dst []byte, t *typ, v any) (text []byte, null bool, reason string) {
	isJSON := t.kind == kindJSON || t.kind == kindJSONB
	switch v := v.(type) {
	case nil:
		return dst, true, ""
	case string:
		sc.given = append(sc.given[:0], v...)
		dst, reason = appendText(dst, t, sc.given)
	case []byte:
		switch {
		case v == nil:
			return dst, true, ""
		case t.kind == kindBytea:
			return hex.AppendEncode(append(dst, '\\', 'x'), v), false, ""
		}
		dst, reason = appendText(dst, t, v)
	case json.RawMessage:
		dst, reason = appendText(dst, t, v)
	case bool:
		dst, reason = sc.scalar(dst, t, strconv.AppendBool(sc.aux[:0], v), isJSON, t.kind == kindBool || t.kind == kindText)
	case int:
		dst, reason = sc.goInt(dst, t, int64(v))
	case int64:
		dst, reason = sc.goInt(dst, t, v)
	case int32:
		dst, reason = sc.goInt(dst, t, int64(v))
	case float64:
		dst, reason = sc.goFloat(dst, t, v, 64)
	case float32:
		dst, reason = sc.goFloat(dst, t, float64(v), 32)
	case time.Time:
		return sc.goTime(dst, t, v)
	default:
		return sc.goOther(dst, t, v)
	}
	return dst, false, reason
}

// scalar appends text that is right for a column if fits says so, and also as a
// JSON scalar.
func (sc *scratch) scalar(dst []byte, t *typ, text []byte, isJSON, fits bool) ([]byte, string) {
	sc.aux = text
	switch {
	case isJSON:
		return append(dst, text...), ""
	case fits || t.kind == kindOther:
		return appendText(dst, t, text)
	}
	return dst, "a value of another type"
}

// intBits is the size of an integer column, or 0.
func intBits(k kind) int {
	switch k {
	case kindInt2:
		return 16
	case kindInt4:
		return 32
	case kindInt8:
		return 64
	}
	return 0
}

func isNumber(k kind) bool { return kindInt2 <= k && k <= kindNumeric }

func (sc *scratch) goInt(dst []byte, t *typ, n int64) ([]byte, string) {
	if bits := intBits(t.kind); bits > 0 {
		return strconv.AppendInt(dst, n, 10), checkBits(n, bits)
	}
	return sc.scalar(dst, t, strconv.AppendInt(sc.aux[:0], n, 10), t.kind == kindJSON || t.kind == kindJSONB, isNumber(t.kind) || t.kind == kindText)
}

func (sc *scratch) goFloat(dst []byte, t *typ, f float64, bits int) ([]byte, string) {
	finite := !math.IsNaN(f) && !math.IsInf(f, 0)
	text := strconv.AppendFloat(sc.aux[:0], f, 'g', -1, bits)
	switch {
	case math.IsNaN(f):
	case math.IsInf(f, 1):
		text = append(text[:0], "Infinity"...)
	case math.IsInf(f, -1):
		text = append(text[:0], "-Infinity"...)
	}
	isJSON := finite && (t.kind == kindJSON || t.kind == kindJSONB)
	return sc.scalar(dst, t, text, isJSON, isNumber(t.kind) || t.kind == kindText)
}

// goTime writes a time the way the server reads it. A timestamp or date without
// zone gets what the clock on the wall shows in the time's own zone.
func (sc *scratch) goTime(dst []byte, t *typ, v time.Time) ([]byte, bool, string) {
	if v.Year() < 1 || v.Year() > 9999 {
		return sc.goOther(dst, t, v)
	}
	switch t.kind {
	case kindTimestamptz:
		return v.UTC().AppendFormat(dst, "2006-01-02 15:04:05.999999Z"), false, ""
	case kindTimestamp:
		return v.AppendFormat(dst, "2006-01-02 15:04:05.999999"), false, ""
	case kindDate:
		return v.AppendFormat(dst, time.DateOnly), false, ""
	case kindTime:
		return v.AppendFormat(dst, "15:04:05.999999"), false, ""
	case kindText:
		return v.AppendFormat(dst, time.RFC3339Nano), false, ""
	case kindJSON, kindJSONB:
		return v.AppendFormat(dst, `"`+time.RFC3339Nano+`"`), false, ""
	}
	return dst, false, "a time"
}

// goOther is for everything that is not common.
func (sc *scratch) goOther(dst []byte, t *typ, v any) ([]byte, bool, string) {
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.Pointer && r.IsNil() {
		return dst, true, ""
	}
	switch t.kind {
	case kindJSON, kindJSONB:
		return marshalled(dst, t, v)
	case kindArray:
		if r.Kind() == reflect.Slice || r.Kind() == reflect.Array {
			if r.Kind() == reflect.Slice && r.IsNil() {
				return dst, true, ""
			}
			out, reason := sc.goArray(dst, t, r)
			return out, false, reason
		}
	}
	if text, null, ok := sc.viaPgx(t, v); ok {
		if null {
			return dst, true, ""
		}
		if isNumber(t.kind) || t.kind == kindText {
			out, reason := appendText(dst, t, text)
			return out, false, reason
		}
		return append(dst, text...), false, ""
	}
	return sc.byKind(dst, t, v, r)
}

func marshalled(dst []byte, t *typ, v any) ([]byte, bool, string) {
	text, err := json.Marshal(v)
	if err != nil {
		return dst, false, "cannot be marshalled to JSON"
	}
	out, reason := appendText(dst, t, text)
	return out, false, reason
}

// goArray writes a slice as the text form of an array.
func (sc *scratch) goArray(dst []byte, t *typ, r reflect.Value) ([]byte, string) {
	dst = append(dst, '{')
	for i := range r.Len() {
		if i > 0 {
			dst = append(dst, t.delim)
		}
		e := r.Index(i)
		for e.Kind() == reflect.Interface && !e.IsNil() {
			e = e.Elem()
		}
		if e.Kind() == reflect.Slice && e.Type().Elem().Kind() != reflect.Uint8 && t.element.kind != kindJSON && t.element.kind != kindJSONB {
			var reason string
			if dst, reason = sc.goArray(dst, t, e); reason != "" {
				return dst, reason
			}
			continue
		}
		text, null, reason := sc.goText(nil, t.element, e.Interface())
		switch {
		case reason != "":
			return dst, fmt.Sprintf("element %d: %s", i, reason)
		case null:
			dst = append(dst, "NULL"...)
		default:
			dst = appendElement(dst, text)
		}
	}
	return append(dst, '}'), ""
}

// viaPgx lets pgx write a value of one of the types it knows.
func (sc *scratch) viaPgx(t *typ, v any) (text []byte, null, ok bool) {
	if sc.types == nil {
		sc.types = pgtype.NewMap()
	}
	if _, known := sc.types.TypeForOID(t.oid); !known {
		return nil, false, false
	}
	text, err := sc.types.Encode(t.oid, pgtype.TextFormatCode, v, make([]byte, 0, 64))
	return text, text == nil && err == nil, err == nil
}

// byKind takes what is left: values that know their text, and named types of a
// simple kind.
func (sc *scratch) byKind(dst []byte, t *typ, v any, r reflect.Value) ([]byte, bool, string) {
	switch v := v.(type) {
	case driver.Valuer:
		inner, err := v.Value()
		if err != nil {
			return dst, false, "its Value method fails"
		}
		return sc.goText(dst, t, inner)
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			return dst, false, "its MarshalText method fails"
		}
		return sc.goText(dst, t, string(text))
	}
	switch r.Kind() {
	case reflect.Pointer:
		return sc.goText(dst, t, r.Elem().Interface())
	case reflect.String:
		return sc.goText(dst, t, r.String())
	case reflect.Bool:
		return sc.goText(dst, t, r.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return sc.goText(dst, t, r.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		out, reason := sc.scalar(dst, t, strconv.AppendUint(sc.aux[:0], r.Uint(), 10), false, isNumber(t.kind) || t.kind == kindText)
		return out, false, reason
	case reflect.Float32:
		out, reason := sc.goFloat(dst, t, r.Float(), 32)
		return out, false, reason
	case reflect.Float64:
		return sc.goText(dst, t, r.Float())
	}
	return dst, false, fmt.Sprintf("a value of type %T", v)
}
