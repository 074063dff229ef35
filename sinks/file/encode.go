package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// The encoders append the wire form of one record to dst and return the extended
// buffer. After an error dst is returned as it came. They are safe for concurrent
// use and keep nothing.

// JSON encodes any Go value as a line of NDJSON.
func JSON[T any](dst []byte, v T) ([]byte, error) {
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return dst, fmt.Errorf("encode %T: %w", v, err)
	}
	return append(dst, b.Bytes()...), nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Raw encodes bytes as they are, for the format "raw".
func Raw(dst, rec []byte) ([]byte, error) { return append(dst, rec...), nil }

// Line encodes a line of text, with or without its newline. It refuses one with a
// newline inside.
func Line(dst, line []byte) ([]byte, error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if bytes.IndexByte(line, '\n') >= 0 {
		return dst, errors.New("encode line: a newline inside")
	}
	return append(append(dst, line...), '\n'), nil
}

// CSV encodes fields as a line of CSV, quoted as RFC 4180 says, with a line feed at
// its end. The header of each part comes from Options.Header.
func CSV(dst []byte, fields []string) ([]byte, error) {
	if len(fields) == 0 {
		return dst, errors.New("encode CSV: no fields")
	}
	if len(fields) == 1 && fields[0] == "" {
		return append(dst, "\"\"\n"...), nil // an empty line would be no record
	}
	for i, field := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendField(dst, field)
	}
	return append(dst, '\n'), nil
}

func appendField(dst []byte, field string) []byte {
	if !strings.ContainsAny(field, "\",\r\n") && strings.TrimSpace(field) == field {
		return append(dst, field...)
	}
	dst = append(dst, '"')
	for {
		i := strings.IndexByte(field, '"')
		if i < 0 {
			break
		}
		dst = append(append(dst, field[:i]...), `""`...)
		field = field[i+1:]
	}
	return append(append(dst, field...), '"')
}

// InBucket makes an encoder for a sink with buckets: name says which sub-directory a
// value goes to, enc encodes the value. It refuses names that are not 1 to 128 of
// A-Z, a-z, 0-9, '.', '_', '-' and '=', that begin or end with a dot, or that are
// devices on some systems.
func InBucket[T any](name func(T) string, enc func(dst []byte, v T) ([]byte, error)) func(dst []byte, v T) ([]byte, error) {
	return func(dst []byte, v T) ([]byte, error) {
		out, err := appendBucket(dst, name(v))
		if err != nil {
			return dst, err
		}
		if out, err = enc(out, v); err != nil {
			return dst, err
		}
		return out, nil
	}
}

// An Encoder encodes lines of NDJSON for a sink. It is safe for concurrent use.
type Encoder struct {
	field string
}

// NewEncoder returns the encoder for a sink with these options. It needs the format
// "ndjson" and, with buckets, a BucketField.
func NewEncoder(opts Options) (*Encoder, error) {
	opts, err := opts.resolve()
	switch {
	case err != nil:
		return nil, err
	case opts.Format != "ndjson":
		return nil, fmt.Errorf("encoder: the format is %s, want ndjson", opts.Format)
	case opts.Buckets && opts.BucketField == "":
		return nil, errors.New("encoder: buckets without a bucket field")
	}
	return &Encoder{field: opts.BucketField}, nil
}

// Append encodes one line, with or without its newline. The line must be one JSON
// document; its bytes stay as they are. With a BucketField it must be an object
// whose field is a string, a number, true or false, and makes a bucket name; of
// several fields of one name the last one counts. Unless it fails, Append takes
// memory only if dst is too short.
func (e *Encoder) Append(dst, line []byte) ([]byte, error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if !json.Valid(line) {
		return dst, errors.New("not one JSON document")
	}
	if bytes.IndexByte(line, '\n') >= 0 {
		return dst, errors.New("a newline inside the JSON document")
	}
	if e.field == "" {
		return append(append(dst, line...), '\n'), nil
	}
	name, err := bucketOf(line, e.field)
	if err != nil {
		return dst, fmt.Errorf("bucket field %q: %w", e.field, err)
	}
	out := append(append(dst, byte(len(name))), name...)
	return append(append(out, line...), '\n'), nil
}

// bucketOf returns the bucket that a field of a valid JSON document names. The
// result aliases doc, or is new.
func bucketOf(doc []byte, field string) ([]byte, error) {
	value, err := topField(doc, field)
	if err != nil {
		return nil, err
	}
	switch {
	case value == nil:
		return nil, errors.New("missing")
	case value[0] == '{' || value[0] == '[' || value[0] == 'n':
		return nil, errors.New("want a string, a number, true or false")
	case value[0] == '"':
		if value, err = unquote(value); err != nil {
			return nil, err
		}
	}
	return value, checkBucket(value)
}
