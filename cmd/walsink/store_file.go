package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/file"
)

// openFile opens file:DIR.
func openFile(ctx context.Context, e endpoint, sample sampler) (opened, error) {
	dir, opts, columns, err := fileOptions(e)
	if err != nil {
		return opened{}, err
	}
	encode, err := fileEncoder(ctx, &opts, columns, sample)
	if err != nil {
		return opened{}, err
	}
	sink, err := file.Open(dir, opts)
	if err != nil {
		return opened{}, err
	}
	return opened{sink, encode}, nil
}

// checkFile is what can be said of a DST without opening it.
func checkFile(e endpoint) error {
	_, opts, columns, err := fileOptions(e)
	if err != nil {
		return err
	}
	_, err = fileEncoder(context.Background(), &opts, columns, nil)
	return err
}

func probeFile(ctx context.Context, e endpoint) ([]sinks.Finding, error) {
	dir, opts, _, err := fileOptions(e)
	if err != nil {
		return nil, err
	}
	return file.Probe(ctx, dir, opts)
}

func fileOptions(e endpoint) (dir string, opts file.Options, columns []string, err error) {
	if dir, err = e.filePath(); err != nil {
		return dir, opts, nil, err
	}
	q := e.options()
	opts = file.Options{
		Format:       q.choice("format", "ndjson", "csv", "raw"),
		Compress:     q.choice("compress", "", "gzip", "zstd"),
		BucketField:  q.field("bucket"),
		MaxBuckets:   q.count("max-buckets"),
		MaxPartBytes: q.size("part-bytes", 0),
		StepBytes:    q.size("step-bytes", 0),
		Mode:         q.mode("mode"),
	}
	columns = q.list("columns")
	return dir, opts, columns, q.done()
}

// fileEncoder returns the encoder for opts, and sets the header of CSV.
func fileEncoder(ctx context.Context, opts *file.Options, columns []string, sample sampler) (func(dst, rec []byte) ([]byte, error), error) {
	if len(columns) > 0 && opts.Format != "csv" {
		return nil, usagef("file: option columns: the format is %s, want csv", opts.Format)
	}
	if opts.BucketField != "" && opts.Format != "ndjson" {
		return nil, usagef("file: option bucket: the format is %s, want ndjson", opts.Format)
	}
	switch opts.Format {
	case "raw":
		return file.Line, nil
	case "csv":
		if len(columns) == 0 && sample != nil {
			var err error
			if columns, err = columnsOf(ctx, sample); err != nil {
				return nil, err
			}
		}
		opts.Header = columns
		return csvEncoder(columns), nil
	}
	if opts.BucketField == "" {
		return file.Line, nil // the source has looked whether it is JSON
	}
	enc, err := file.NewEncoder(*opts)
	if err != nil {
		return nil, &usageError{err}
	}
	return enc.Append, nil
}

// columnsOf are the fields of the first record, in their order.
func columnsOf(ctx context.Context, sample sampler) ([]string, error) {
	recs, err := sample(ctx, 1)
	if err != nil {
		return nil, err
	}
	if len(recs) == 0 {
		return nil, usagef("file: %w", errNoSample)
	}
	var columns []string
	err = eachField(recs[0], func(name string, _ json.RawMessage) error {
		columns = append(columns, name)
		return nil
	})
	if err != nil {
		return nil, &inputError{fmt.Errorf("first record: %w", err)}
	}
	return columns, nil
}

// csvEncoder encodes JSON objects as lines of CSV. A field that is no column is
// refused: it would be lost.
func csvEncoder(columns []string) func(dst, rec []byte) ([]byte, error) {
	index := make(map[string]int, len(columns))
	for i, name := range columns {
		index[name] = i
	}
	return func(dst, rec []byte) ([]byte, error) {
		row := make([]string, len(columns))
		err := eachField(rec, func(name string, value json.RawMessage) error {
			i, ok := index[name]
			if !ok {
				return fmt.Errorf("field %q is no column; the columns are %s; name all with columns=A,B,C", name, strings.Join(columns, ","))
			}
			row[i] = csvValue(value)
			return nil
		})
		if err != nil {
			return dst, err
		}
		return file.CSV(dst, row)
	}
}

// csvValue is a JSON value as CSV has it: strings as they are, null as nothing,
// everything else as JSON.
func csvValue(v json.RawMessage) string {
	if string(v) == "null" {
		return ""
	}
	var s string
	if v[0] == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// eachField calls f for the fields of a JSON object, in order.
func eachField(rec []byte, f func(name string, value json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(rec))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("not a JSON object")
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return fmt.Errorf("not a JSON object: %w", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fmt.Errorf("field %q: %w", name, err)
		}
		if err := f(name.(string), value); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

// field reads an option of the form {FIELD}.
func (o *options) field(key string) string {
	v := o.text(key, "")
	if v == "" {
		return ""
	}
	name, ok := strings.CutPrefix(v, "{")
	name, closed := strings.CutSuffix(name, "}")
	if !ok || !closed || name == "" || strings.ContainsAny(name, "{}") {
		o.refuse(key, v, "is not {FIELD}, a field of the record in braces")
	}
	return name
}

// mode reads an octal permission.
func (o *options) mode(key string) fs.FileMode {
	v := o.text(key, "")
	if v == "" {
		return 0
	}
	n, err := strconv.ParseUint(v, 8, 9)
	if err != nil {
		o.refuse(key, v, "is not an octal permission such as 0640")
	}
	return fs.FileMode(n)
}

// list reads names with commas between.
func (o *options) list(key string) []string {
	v := o.text(key, "")
	if v == "" {
		return nil
	}
	names := strings.Split(v, ",")
	if slices.Contains(names, "") {
		o.refuse(key, v, "has an empty name")
	}
	return names
}
