package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks/file"
)

func sampleOf(recs ...string) sampler {
	return func(_ context.Context, n int) ([][]byte, error) {
		var out [][]byte
		for _, rec := range recs[:min(n, len(recs))] {
			out = append(out, []byte(rec))
		}
		return out, nil
	}
}

func TestCSVEncoder(t *testing.T) {
	encode := csvEncoder([]string{"id", "name", "tags"})
	for rec, want := range map[string]string{
		`{"id":1,"name":"Ann","tags":["a","b"]}`: "1,Ann,\"[\"\"a\"\",\"\"b\"\"]\"\n",
		`{"tags":null,"id":1.50}`:                "1.50,,\n",
		`{"name":"a,b\n\"c\"","id":true}`:        "true,\"a,b\n\"\"c\"\"\",\n",
		`{}`:                                     ",,\n",
		`{"id":123456789012345678901234567890}`:  "123456789012345678901234567890,,\n",
	} {
		got, err := encode([]byte("before"), []byte(rec))
		if err != nil || string(got) != "before"+want {
			t.Errorf("%s: got %q, %v, want %q", rec, got, err, want)
		}
	}
}

func TestCSVEncoderRefuses(t *testing.T) {
	encode := csvEncoder([]string{"id"})
	for rec, want := range map[string]string{
		`{"id":1,"x":2}`: `field "x" is no column; the columns are id`,
		`[1]`:            "not a JSON object",
		`7`:              "not a JSON object",
		``:               "not a JSON object",
		`{"id":`:         `field "id"`,
		`{"id":1`:        "",
	} {
		got, err := encode([]byte("before"), []byte(rec))
		if err == nil || !strings.Contains(err.Error(), want) || string(got) != "before" {
			t.Errorf("%s: got %q, %v, want an error with %q", rec, got, err, want)
		}
	}
}

// FuzzCSVEncoder: what the encoder takes, an independent reader of CSV gives back.
func FuzzCSVEncoder(f *testing.F) {
	f.Add("a", "b,c\n")
	f.Add("", "\"")
	f.Add(" x ", "\r\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		rec, err := json.Marshal(map[string]string{"a": a, "b": b})
		if err != nil {
			t.Fatal(err)
		}
		line, err := csvEncoder([]string{"a", "b"})(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		row, err := csv.NewReader(bytes.NewReader(line)).Read()
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var back map[string]string
		if err := json.Unmarshal(rec, &back); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"a", "b"} {
			// encoding/csv reads \r\n as \n inside quotes.
			if want := strings.ReplaceAll(back[name], "\r\n", "\n"); row[i] != want {
				t.Errorf("column %s: got %q, want %q", name, row[i], want)
			}
		}
	})
}

// FuzzEachField compares with encoding/json: the same names, or both refuse.
func FuzzEachField(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a":{"b":[1,{}]},"c":null}`, `[]`, `{`, `{"a"}`, ``, `{"a":1}x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, rec []byte) {
		got := map[string]string{}
		err := eachField(rec, func(name string, value json.RawMessage) error {
			got[name] = string(value)
			return nil
		})
		var want map[string]json.RawMessage
		if !json.Valid(rec) || json.Unmarshal(rec, &want) != nil || want == nil {
			return // the source lets no such record through
		}
		if err != nil {
			t.Fatalf("%q: %v", rec, err)
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %d fields, want %d", rec, len(got), len(want))
		}
		for name, value := range want {
			if got[name] != string(value) {
				t.Errorf("%q: field %q is %q, want %q", rec, name, got[name], value)
			}
		}
	})
}

func TestFileEncoder(t *testing.T) {
	ctx := t.Context()
	opts := file.Options{Format: "csv"}
	encode, err := fileEncoder(ctx, &opts, nil, sampleOf(`{"b":1,"a":2}`))
	if err != nil || strings.Join(opts.Header, ",") != "b,a" {
		t.Fatalf("header %v, %v", opts.Header, err)
	}
	if got, err := encode(nil, []byte(`{"a":"x","b":"y"}`)); err != nil || string(got) != "y,x\n" {
		t.Errorf("got %q, %v", got, err)
	}
	opts = file.Options{Format: "csv"}
	if _, err := fileEncoder(ctx, &opts, nil, sampleOf()); classify(err) != codeUsage {
		t.Errorf("no record: %v", err)
	}
	if _, err := fileEncoder(ctx, &opts, nil, sampleOf(`7`)); classify(err) != codeInput {
		t.Errorf("no object: %v", err)
	}
	if _, err := fileEncoder(ctx, &opts, nil, nil); err != nil || opts.Header != nil {
		t.Errorf("only looking: %v, %v", opts.Header, err)
	}
	for _, o := range []file.Options{{Format: "csv", BucketField: "a"}, {Format: "raw", BucketField: "a"}} {
		if _, err := fileEncoder(ctx, &o, []string{"a"}, nil); classify(err) != codeUsage {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := fileEncoder(ctx, &file.Options{Format: "ndjson"}, []string{"a"}, nil); classify(err) != codeUsage {
		t.Errorf("columns of NDJSON: %v", err)
	}
}

func TestFileOptions(t *testing.T) {
	for query, want := range map[string]string{
		"bucket=day":             `"day" is not {FIELD}`,
		"bucket={}":              "is not {FIELD}",
		"bucket={a}{b}":          "is not {FIELD}",
		"bucket={a}&format=csv":  "option bucket: the format is csv",
		"columns=a":              "option columns: the format is ndjson",
		"columns=a,,b":           "has an empty name",
		"mode=rw":                "is not an octal permission",
		"mode=1777":              "is not an octal permission",
		"compress=lzma":          `"lzma" is not one of`,
		"part-bytes=-1":          "is not a size",
		"max-buckets=many":       "is not a number",
		"colour=red":             `unknown option "colour"`,
		"format=ndjson&format=x": "given twice",
	} {
		e, err := parseEndpoint("file:" + t.TempDir() + "?" + query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = openFile(t.Context(), e, nil)
		if err == nil || !strings.Contains(err.Error(), want) || classify(err) != codeUsage {
			t.Errorf("%s: got %v, want %q as a usage error", query, err, want)
		}
	}
}
