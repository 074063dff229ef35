package redis

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/walsink/walsink/internal/jsontext"
)

// A Spec describes what becomes of a JSON document. Key, Value, Field and Score
// are patterns: text in which {name} stands for a member of the document, and
// {a.b} for a member of a member. {{ and }} stand for braces, so that a key with a
// hash tag around a member is "user:{{{id}}}".
type Spec struct {
	// Op is the command: set, hset, del, incrby, hincrby, rpush, lpush, sadd, xadd,
	// zadd or zincrby.
	Op string
	// Key is the key; needed.
	Key string
	// Value is what is written. Default: the document as it is; for hset without
	// Field all members of the document, one field each, in their order; for incrby
	// and hincrby "1". An xadd entry has one field, "value". For zadd and zincrby it
	// is the member.
	Value string
	// Field is the field of hset and hincrby; needed for hincrby.
	Field string
	// Score is the score of zadd, needed there, and the increment of zincrby,
	// default "1".
	Score string
}

// A Template turns JSON documents into records. It is not safe for concurrent use.
//
// A string goes to the store without quotes and escapes; a number, boolean, object
// or array as the document spells it. A member that is missing or null is an error
// of Append, since a key or value with a hole in it would mix up entries; only the
// hset of a whole document leaves out members that are null. What a member holds is
// not escaped: keys are binary safe, and nothing of it is ever parsed again, but
// braces in it count as a hash tag like any others.
type Template struct {
	op   string
	args []pattern // of the command behind its name
	all  bool      // all members follow
	out  [][]byte
	buf  []byte
}

// ErrMissing says that a document lacks a member that the template needs.
var ErrMissing = errors.New("member is missing or null")

// A shape says what a command is made of, besides its name: a word of the spec
// each, and "*" and "name" for what the spec does not give.
type shape struct {
	words    string
	defaults map[string]string // of words that may be empty; "value" defaults to the document
	number   bool              // value is a number: its default is "1"
}

var shapes = map[string]shape{
	"SET":     {words: "key value"},
	"HSET":    {words: "key field value"},
	"DEL":     {words: "key"},
	"INCRBY":  {words: "key value", number: true},
	"HINCRBY": {words: "key field value", number: true},
	"RPUSH":   {words: "key value"},
	"LPUSH":   {words: "key value"},
	"SADD":    {words: "key value"},
	"XADD":    {words: "key id name value", defaults: map[string]string{"id": "*", "name": "value"}},
	"ZADD":    {words: "key score value"},
	"ZINCRBY": {words: "key score value", defaults: map[string]string{"score": "1"}},
}

// NewTemplate checks a spec. Its errors name the pattern at fault.
func NewTemplate(spec Spec) (*Template, error) {
	t := &Template{op: strings.ToUpper(spec.Op)}
	sh, ok := shapes[t.op]
	if !ok {
		return nil, fmt.Errorf("redis template: op %q: want set, hset, del, incrby, hincrby, rpush, lpush, sadd, xadd, zadd or zincrby", spec.Op)
	}
	given := map[string]string{"key": spec.Key, "value": spec.Value, "field": spec.Field, "score": spec.Score}
	for word, s := range given {
		if s != "" && !strings.Contains(sh.words, word) {
			return nil, fmt.Errorf("redis template: op %s takes no %s", spec.Op, word)
		}
	}
	words := strings.Fields(sh.words)
	if t.all = t.op == "HSET" && spec.Field == "" && spec.Value == ""; t.all {
		words = words[:1]
	}
	for _, word := range words {
		p := pattern{what: word, text: cmp.Or(given[word], sh.defaults[word])}
		if word == "value" && p.text == "" {
			p.text, p.doc = "1", !sh.number
		}
		if err := p.parse(); err != nil {
			return nil, fmt.Errorf("redis template: %s of %s: %w", word, spec.Op, err)
		}
		t.args = append(t.args, p)
	}
	return t, nil
}

// Append appends the record for one JSON document to dst. It keeps neither doc nor
// dst. After an error dst is as it was.
func (t *Template) Append(dst, doc []byte) ([]byte, error) {
	doc = bytes.TrimSpace(doc)
	if !jsontext.Valid(doc) || len(doc) == 0 || doc[0] != '{' {
		return dst, fmt.Errorf("redis template: %w", errDocument)
	}
	t.out, t.buf = append(t.out[:0], []byte(t.op)), t.buf[:0]
	for _, p := range t.args {
		start := len(t.buf)
		var err error
		if t.buf, err = p.append(t.buf, doc); err != nil {
			return dst, fmt.Errorf("redis template: %s: %w", p.what, err)
		}
		t.out = append(t.out, t.buf[start:len(t.buf):len(t.buf)])
	}
	if t.all {
		n := len(t.out)
		for name, value := range members(doc) {
			if !isNull(value) {
				t.out = append(t.out, text(name), text(value))
			}
		}
		if len(t.out) == n {
			return dst, fmt.Errorf("redis template: %w: the document has no members", ErrMissing)
		}
	}
	return appendRecord(dst, t.out)
}

// A pattern is text with members of a document in it.
type pattern struct {
	what  string // for messages
	text  string
	doc   bool // the whole document instead
	parts []part
}

// A part is literal text or the path of a member.
type part struct {
	text string
	path []string // nil for literal text
	name []string // the path as one name, with dots in it
}

// parse cuts the text into parts.
func (p *pattern) parse() error {
	if p.doc {
		return nil
	}
	if p.text == "" {
		return errors.New("is needed")
	}
	var lit strings.Builder
	flush := func() {
		if lit.Len() > 0 {
			p.parts = append(p.parts, part{text: lit.String()})
			lit.Reset()
		}
	}
	for s := p.text; s != ""; {
		switch {
		case strings.HasPrefix(s, "{{"), strings.HasPrefix(s, "}}"):
			lit.WriteByte(s[0])
			s = s[2:]
		case s[0] == '{':
			name, rest, ok := strings.Cut(s[1:], "}")
			if !ok || name == "" || strings.Contains(name, "{") {
				return fmt.Errorf("%q: brace without its pair; write {{ for a brace", p.text)
			}
			flush()
			p.parts = append(p.parts, part{path: strings.Split(name, "."), name: []string{name}, text: name})
			s = rest
		case s[0] == '}':
			return fmt.Errorf("%q: brace without its pair; write }} for a brace", p.text)
		default:
			lit.WriteByte(s[0])
			s = s[1:]
		}
	}
	flush()
	return nil
}

// append appends the pattern filled in from doc.
func (p *pattern) append(dst, doc []byte) ([]byte, error) {
	if p.doc {
		return append(dst, doc...), nil
	}
	for _, part := range p.parts {
		if part.path == nil {
			dst = append(dst, part.text...)
			continue
		}
		value := find(doc, part.name)
		if value == nil {
			value = find(doc, part.path)
		}
		if isNull(value) {
			return dst, fmt.Errorf("%w: %q", ErrMissing, part.text)
		}
		dst = append(dst, text(value)...)
	}
	return dst, nil
}
