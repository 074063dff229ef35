package main

import (
	"strings"
	"testing"
	"time"
)

func TestEndpointParse(t *testing.T) {
	tests := []struct {
		text, scheme, path, key, value string
		err                            string
	}{
		{text: "ndjson:a b.ndjson", scheme: "ndjson", path: "a b.ndjson"},
		{text: "file:out?format=csv", scheme: "file", path: "out", key: "format", value: "csv"},
		{text: "file:out?bucket={day}&x=1", scheme: "file", path: "out", key: "bucket", value: "{day}"},
		{text: "file:100%", scheme: "file", path: "100%"},
		{text: "file:a:b?c=d:e", scheme: "file", path: "a:b", key: "c", value: "d:e"},
		{text: "postgres://u@h/db?table=t", scheme: "postgres", path: "//u@h/db", key: "table", value: "t"},
		{text: "out", err: `"out": want SCHEME:WHERE`},
		{text: ":out", err: "want SCHEME:WHERE"},
		{text: "", err: "want SCHEME:WHERE"},
		{text: "file:out?a=%zz", err: "not key=value"},
		{text: "file:out?a;b", err: "not key=value"},
	}
	for _, tt := range tests {
		e, err := parseEndpoint(tt.text)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || classify(err) != codeUsage {
				t.Errorf("%q: got %v, want %q as a usage error", tt.text, err, tt.err)
			}
			continue
		}
		if err != nil || e.scheme != tt.scheme || e.path != tt.path || e.query.Get(tt.key) != tt.value {
			t.Errorf("%q: got %+v, %v", tt.text, e, err)
		}
	}
}

func TestEndpointErrorHoldsNoPassword(t *testing.T) {
	for _, text := range []string{"//u:canary@h", "postgres://u:canary@h/db?x=%zz&password=canary", "postgres://u:canary@h/db?canary;"} {
		_, err := parseEndpoint(text)
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestEndpointFilePath(t *testing.T) {
	for text, want := range map[string]string{
		"file:out": "out", "file:out/": "out", "file:./a/../b": "b", "file:/abs": "/abs", "file:///abs": "/abs",
		"file:": "", "file://host/out": "",
	} {
		e, err := parseEndpoint(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.filePath()
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestEndpointOptions(t *testing.T) {
	tests := []struct{ query, err string }{
		{"", ""},
		{"format=csv&max-bytes=1MiB&age=3s", ""},
		{"format=xml", `option format: "xml" is not one of ndjson, csv`},
		{"format=csv&format=raw", "option format: given twice"},
		{"max-bytes=lots", `option max-bytes: "lots" is not a size`},
		{"max-bytes=-1", "is not a size"},
		{"age=soon", `option age: "soon" is not a duration`},
		{"age=-3s", "is not a duration"},
		{"fromat=csv", `unknown option "fromat": there are age, format, max-bytes`},
		{"zz=1&aa=2", `unknown option "aa"`},
	}
	for _, tt := range tests {
		e, err := parseEndpoint("file:out?" + tt.query)
		if err != nil {
			t.Fatal(err)
		}
		o := e.options()
		format, size, age := o.choice("format", "ndjson", "csv"), o.size("max-bytes", 7), o.duration("age", time.Second)
		err = o.done()
		if tt.err == "" {
			if err != nil {
				t.Errorf("%q: %v", tt.query, err)
			}
			set := tt.query != ""
			if want := map[bool]string{false: "ndjson", true: "csv"}[set]; format != want {
				t.Errorf("%q: format %q, want %q", tt.query, format, want)
			}
			if set && (size != 1<<20 || age != 3*time.Second) || !set && (size != 7 || age != time.Second) {
				t.Errorf("%q: got %d, %v", tt.query, size, age)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.err) || classify(err) != codeUsage {
			t.Errorf("%q: got %v, want %q as a usage error", tt.query, err, tt.err)
		}
	}
}

func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"file:out?format=csv", "-", "postgres://u:p@h/d", "file:?", "a:b?c=%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseEndpoint(text)
		if err != nil {
			if classify(err) != codeUsage {
				t.Fatalf("%q: not a usage error: %v", text, err)
			}
			return
		}
		if e.scheme == "" || !strings.HasPrefix(text, e.scheme+":"+e.path) {
			t.Fatalf("%q: got %+v", text, e)
		}
		o := e.options()
		for key := range e.query {
			o.text(key, "")
		}
		if err := o.done(); err != nil && !strings.Contains(err.Error(), "given twice") {
			t.Fatalf("%q: every key was asked for: %v", text, err)
		}
	})
}

func TestFlagOption(t *testing.T) {
	for value, want := range map[string]bool{"yes": true, "true": true, "no": false, "false": false} {
		e, err := parseEndpoint("file:out?x=" + value)
		if err != nil {
			t.Fatal(err)
		}
		q := e.options()
		if got := q.flag("x", !want); got != want || q.done() != nil {
			t.Errorf("x=%s: %v, %v", value, got, q.done())
		}
	}
	e, err := parseEndpoint("file:out?x=maybe")
	if err != nil {
		t.Fatal(err)
	}
	q := e.options()
	q.flag("x", false)
	if err := q.done(); err == nil || !strings.Contains(err.Error(), "maybe") {
		t.Errorf("x=maybe: %v", err)
	}
}
