package redis

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	const doc = ` {"id":"a1","n":5,"f":1.50,"ok":true,"none":null,"user":{"name":"Ann","tags":["x","y"]},"q":"a \"b\" \u00e9","a.b":"dot","e":""} `
	whole := strings.TrimSpace(doc)
	for _, tt := range []struct {
		spec Spec
		want Command
	}{
		{Spec{Op: "set", Key: "k:{id}"}, Command{"SET", "k:a1", whole}},
		{Spec{Op: "set", Key: "k:{id}:{n}", Value: "{user.name}/{q}"}, Command{"SET", "k:a1:5", `Ann/a "b" é`}},
		{Spec{Op: "SET", Key: "{{{id}}}x", Value: "{f}"}, Command{"SET", "{a1}x", "1.50"}},
		{Spec{Op: "set", Key: "x", Value: "{a.b}{e}{ok}"}, Command{"SET", "x", "dottrue"}},
		{Spec{Op: "set", Key: "x", Value: "{user}"}, Command{"SET", "x", `{"name":"Ann","tags":["x","y"]}`}},
		{Spec{Op: "hset", Key: "h:{id}"}, Command{"HSET", "h:a1", "id", "a1", "n", "5", "f", "1.50", "ok", "true",
			"user", `{"name":"Ann","tags":["x","y"]}`, "q", `a "b" é`, "a.b", "dot", "e", ""}},
		{Spec{Op: "hset", Key: "h", Field: "{id}", Value: "{n}"}, Command{"HSET", "h", "a1", "5"}},
		{Spec{Op: "hset", Key: "h", Field: "{id}"}, Command{"HSET", "h", "a1", whole}},
		{Spec{Op: "incrby", Key: "c:{id}"}, Command{"INCRBY", "c:a1", "1"}},
		{Spec{Op: "incrby", Key: "c", Value: "{n}"}, Command{"INCRBY", "c", "5"}},
		{Spec{Op: "hincrby", Key: "c", Field: "{id}"}, Command{"HINCRBY", "c", "a1", "1"}},
		{Spec{Op: "rpush", Key: "u:{user.name}"}, Command{"RPUSH", "u:Ann", whole}},
		{Spec{Op: "lpush", Key: "l", Value: "{id}"}, Command{"LPUSH", "l", "a1"}},
		{Spec{Op: "sadd", Key: "s", Value: "{id}"}, Command{"SADD", "s", "a1"}},
		{Spec{Op: "xadd", Key: "x"}, Command{"XADD", "x", "*", "value", whole}},
		{Spec{Op: "zadd", Key: "z", Score: "{f}", Value: "{id}"}, Command{"ZADD", "z", "1.50", "a1"}},
		{Spec{Op: "zincrby", Key: "z", Value: "{id}"}, Command{"ZINCRBY", "z", "1", "a1"}},
		{Spec{Op: "del", Key: "k:{id}"}, Command{"DEL", "k:a1"}},
	} {
		tpl, err := NewTemplate(tt.spec)
		if err != nil {
			t.Errorf("%+v: %v", tt.spec, err)
			continue
		}
		for range 2 { // memory is reused
			rec, err := tpl.Append([]byte("x"), []byte(doc))
			if err != nil {
				t.Errorf("%+v: %v", tt.spec, err)
				continue
			}
			got, err := commandsOf(rec[1:])
			if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", []Command{tt.want}) {
				t.Errorf("%+v: %q, %v, want %q", tt.spec, got, err, tt.want)
			}
		}
	}
}

func TestTemplateMissing(t *testing.T) {
	for _, tt := range []struct {
		spec Spec
		doc  string
		is   error
		text string
	}{
		{Spec{Op: "set", Key: "k:{id}"}, `{"x":1}`, ErrMissing, `"id"`},
		{Spec{Op: "set", Key: "k:{id}"}, `{"id":null}`, ErrMissing, "key"},
		{Spec{Op: "set", Key: "k", Value: "{a.b.c}"}, `{"a":{"b":5}}`, ErrMissing, "value"},
		{Spec{Op: "hset", Key: "k"}, `{}`, ErrMissing, "no members"},
		{Spec{Op: "hset", Key: "k"}, `{"a":null}`, ErrMissing, "no members"},
		{Spec{Op: "set", Key: "k"}, `[1]`, errDocument, ""},
		{Spec{Op: "set", Key: "k"}, `{"a":1}{"b":2}`, errDocument, ""},
		{Spec{Op: "set", Key: "k"}, `{"a":`, errDocument, ""},
		{Spec{Op: "set", Key: "k"}, ``, errDocument, ""},
	} {
		tpl, err := NewTemplate(tt.spec)
		if err != nil {
			t.Fatal(err)
		}
		out, err := tpl.Append([]byte("dst"), []byte(tt.doc))
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) || string(out) != "dst" {
			t.Errorf("%+v of %s: %q, %v", tt.spec, tt.doc, out, err)
		}
	}
}

func TestTemplateRefusals(t *testing.T) {
	for _, tt := range []struct {
		spec Spec
		text string
	}{
		{Spec{}, "op"},
		{Spec{Op: "get", Key: "k"}, "op"},
		{Spec{Op: "set"}, "key"},
		{Spec{Op: "set", Key: "{id"}, "brace"},
		{Spec{Op: "set", Key: "id}"}, "brace"},
		{Spec{Op: "set", Key: "{}"}, "brace"},
		{Spec{Op: "set", Key: "{a{b}"}, "brace"},
		{Spec{Op: "set", Key: "k", Field: "f"}, "no field"},
		{Spec{Op: "set", Key: "k", Score: "1"}, "no score"},
		{Spec{Op: "del", Key: "k", Value: "v"}, "no value"},
		{Spec{Op: "hincrby", Key: "k"}, "field"},
		{Spec{Op: "zadd", Key: "k"}, "score"},
		{Spec{Op: "hset", Key: "k", Value: "v"}, "field"},
	} {
		if _, err := NewTemplate(tt.spec); err == nil || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%+v: %v, want it to say %q", tt.spec, err, tt.text)
		}
	}
}

// FuzzMembers compares the reading of objects with the standard library's.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{"a":1}`, ` { "a" : [1,{"b":"}"}] , "c":"\"\\" } `, `{"a":{},"b":[],"c":null,"d":-1e5}`, `{}`, `[]`, `{"a":"\u0041"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !json.Valid(doc) {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(doc, &want) != nil {
			return
		}
		got := map[string]string{}
		for name, value := range members(doc) {
			var key string
			if err := json.Unmarshal(name, &key); err != nil {
				t.Fatalf("name %q: %v", name, err)
			}
			got[key] = string(value)
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %q, want %q", doc, got, want)
		}
		for k, v := range want {
			if got[k] != string(v) {
				t.Fatalf("%q: member %q is %q, want %q", doc, k, got[k], v)
			}
		}
	})
}

// FuzzTemplate looks for panics, and for records that are not records.
func FuzzTemplate(f *testing.F) {
	f.Add("hset", "k:{id}", "", `{"id":1}`)
	f.Add("xadd", "{{{a.b}}}", "{c}", `{"a":{"b":2},"c":"x"}`)
	f.Fuzz(func(t *testing.T, op, key, value, doc string) {
		tpl, err := NewTemplate(Spec{Op: op, Key: key, Value: value})
		if err != nil {
			return
		}
		rec, err := tpl.Append(nil, []byte(doc))
		if err == nil {
			_, err = commandsOf(rec)
		}
		if err != nil && len(rec) > 0 {
			t.Fatalf("%q: %v", rec, err)
		}
	})
}
