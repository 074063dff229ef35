package postgres

import (
	"fmt"
	"iter"
	"strconv"
)

// Infer proposes the columns of a table for JSON objects, one per line, for
// Options.Define. A column gets the narrowest type that holds all samples:
// boolean, bigint, double precision if every number survives it and numeric
// otherwise, date, timestamptz, timestamp, uuid, jsonb for arrays and objects,
// and else text. Columns are in the order in which fields first appear, and all
// take null.
func Infer(lines iter.Seq[[]byte]) ([]Column, error) {
	var found []inferred
	index := make(map[string]int)
	n := 0
	for line := range lines {
		n++
		if err := inferLine(line, &found, index); err != nil {
			return nil, fmt.Errorf("infer: line %d: %w", n, err)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("infer: no field in %d lines", n)
	}
	columns := make([]Column, len(found))
	for i, f := range found {
		columns[i] = Column{Name: f.name, Type: f.sqlType()}
	}
	return columns, nil
}

// A shape is a type that Infer knows; wider ones come later.
type shape uint8

const (
	shapeNull shape = iota
	shapeBool
	shapeInt
	shapeFloat
	shapeNumeric
	shapeDate
	shapeTimestamptz
	shapeTimestamp
	shapeUUID
	shapeText
	shapeJSON
)

type inferred struct {
	name  string
	shape shape
}

func (f inferred) sqlType() string {
	return [...]string{
		shapeNull: "text", shapeBool: "boolean", shapeInt: "bigint", shapeFloat: "double precision",
		shapeNumeric: "numeric", shapeDate: "date", shapeTimestamptz: "timestamptz", shapeTimestamp: "timestamp",
		shapeUUID: "uuid", shapeText: "text", shapeJSON: "jsonb",
	}[f.shape]
}

func inferLine(line []byte, found *[]inferred, index map[string]int) error {
	in := jsonScanner{text: line}
	if !in.take('{') {
		return fmt.Errorf("%w: not a JSON object", ErrValue)
	}
	if in.take('}') {
		return nil
	}
	for {
		in.space()
		start := in.pos
		if in.peek() != '"' || !in.string() {
			return fmt.Errorf("%w: byte %d: not JSON", ErrValue, in.pos)
		}
		name, ok := unescape(nil, line[start:in.pos])
		if err := checkName(string(name)); !ok || err != nil {
			return fmt.Errorf("%w: byte %d: field name cannot be a column name", ErrValue, start)
		}
		if !in.take(':') {
			return fmt.Errorf("%w: byte %d: not JSON", ErrValue, in.pos)
		}
		raw, ok := in.value(0)
		if !ok {
			return fmt.Errorf("%w: field %q: not JSON", ErrValue, clip(name))
		}
		i, known := index[string(name)]
		if !known {
			i = len(*found)
			index[string(name)] = i
			*found = append(*found, inferred{name: string(name)})
		}
		(*found)[i].shape = widen((*found)[i].shape, shapeOf(raw))
		if in.take('}') {
			return nil
		}
		if !in.take(',') {
			return fmt.Errorf("%w: byte %d: not JSON", ErrValue, in.pos)
		}
	}
}

// shapeOf returns the narrowest type of a JSON value.
func shapeOf(raw []byte) shape {
	switch raw[0] {
	case 'n':
		return shapeNull
	case 't', 'f':
		return shapeBool
	case '{', '[':
		return shapeJSON
	case '"':
		text, _ := unescape(nil, raw)
		return shapeOfText(text)
	}
	if _, reason := parseInt(raw); reason == "" && isDigits(raw) {
		return shapeInt
	}
	if survivesFloat(raw) {
		return shapeFloat
	}
	return shapeNumeric
}

func isDigits(raw []byte) bool {
	for i, c := range raw {
		if (c < '0' || c > '9') && (i > 0 || c != '-') {
			return false
		}
	}
	return true
}

// survivesFloat reports whether a number has no more digits than a float64 keeps.
func survivesFloat(raw []byte) bool {
	d, ok := parseDecimal(raw)
	for d.n > 0 && d.digits[d.n-1] == '0' {
		d.n--
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return ok && err == nil && d.n <= 15 && (f != 0 || d.n == 0)
}

func shapeOfText(text []byte) shape {
	if _, reason := appendDateTime(nil, text, kindDate); reason == "" && len(text) == 10 {
		return shapeDate
	}
	if len(text) > 10 && text[4] == '-' {
		if _, reason := appendDateTime(nil, text, kindTimestamptz); reason == "" {
			return shapeTimestamptz
		}
		if _, reason := appendDateTime(nil, text, kindTimestamp); reason == "" {
			return shapeTimestamp
		}
	}
	if len(text) == 36 && checkUUID(text) == "" {
		return shapeUUID
	}
	return shapeText
}

// widen returns a type for values of both.
func widen(a, b shape) shape {
	if a > b {
		a, b = b, a
	}
	switch {
	case a == shapeNull || a == b:
		return b
	case shapeInt <= a && b <= shapeNumeric:
		return b
	case b == shapeJSON:
		return shapeJSON
	}
	return shapeText
}
