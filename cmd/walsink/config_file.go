package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/pflag"
)

// A document is a configuration file that was read: its keys are known and its values
// have the right type.
type document struct {
	path     string
	settings []setting
	outputs  []entry
}

// An entry is one item of outputs.
type entry struct {
	line     int
	settings []setting
	options  []setting
}

// A setting is one key with its values.
type setting struct {
	file   string
	line   int
	key    string
	values []string // one, but for a list
	entry  bool     // of one output

	raw      []string // values as the file has them
	expanded bool     // a value has something out of the environment, and is never shown
}

// bad is the error of a value that cannot be meant so.
func (s setting) bad(value, want string) error {
	return usagef("%s:%d: %s: %s: %s", s.file, s.line, s.key, value, want)
}

// shown is what errors and --print may show.
func (s setting) shown() string {
	if s.expanded {
		return strings.Join(s.raw, ",")
	}
	return strings.Join(s.values, ",")
}

// hide puts the names that the file has in the place of values out of the environment.
func (s setting) hide(text string) string {
	for i, v := range s.values {
		if s.expanded && v != "" {
			text = strings.ReplaceAll(text, v, s.raw[i])
		}
	}
	return text
}

// set sets the flag that has the key's name.
func (s setting) set(flag *pflag.Flag) error {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return list.Replace(s.values)
	}
	if err := flag.Value.Set(s.values[0]); err != nil {
		return s.bad(s.shown(), "want "+types[flag.Value.Type()].want)
	}
	return nil
}

// types says, by the type of a flag, which YAML is taken, and what it is called.
var types = map[string]struct {
	want  string
	nodes []ast.NodeType
}{
	"bool":        {"true or false", []ast.NodeType{ast.BoolType}},
	"int":         {"a whole number", []ast.NodeType{ast.IntegerType}},
	"uint64":      {"a whole number, 0 or more", []ast.NodeType{ast.IntegerType}},
	"duration":    {"a duration such as 500ms, 10s or 5m", []ast.NodeType{ast.StringType, ast.IntegerType}},
	"size":        {"a size such as 64MiB or 10GB", []ast.NodeType{ast.StringType, ast.IntegerType}},
	"string":      {"text; quote what YAML takes for something else", []ast.NodeType{ast.StringType}},
	"stringArray": {"text, or a list of texts", []ast.NodeType{ast.StringType}},
}

// readConfig reads a configuration file. top are the keys of its top level besides
// outputs, each those of an item of outputs besides options. An error names file, line
// and key, and what is allowed; it holds nothing of the value of a DST, nor of the
// environment.
func readConfig(path string, top, each *pflag.FlagSet) (document, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return document{}, usagef("--config: %w", err)
	}
	d := decoder{path: path, expander: expander{os.LookupEnv}, top: top, each: each}
	return d.document(data)
}

// A decoder turns YAML into settings.
type decoder struct {
	expander
	path      string
	top, each *pflag.FlagSet
}

func (d *decoder) fail(line int, format string, args ...any) error {
	return usagef("%s:%d: %w", d.path, line, fmt.Errorf(format, args...))
}

func (d *decoder) document(data []byte) (document, error) {
	doc := document{path: d.path}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return doc, d.syntax(err)
	}
	var body ast.Node
	for _, part := range file.Docs {
		switch {
		case part.Body == nil || part.Body.Type() == ast.CommentType:
		case body != nil:
			return doc, d.fail(lineOf(part.Body), "a second document: want one")
		default:
			body = part.Body
		}
	}
	if body == nil {
		return doc, nil
	}
	pairs, err := d.mapping(body, "the file")
	if err != nil {
		return doc, err
	}
	for _, p := range pairs {
		if p.key == "outputs" {
			if doc.outputs, err = d.entries(p); err != nil {
				return doc, err
			}
			continue
		}
		s, err := d.setting(p, d.top, "outputs")
		if err != nil {
			return doc, err
		}
		doc.settings = append(doc.settings, s)
	}
	return doc, nil
}

// syntax is an error of the parser without the source text that it would print.
func (d *decoder) syntax(err error) error {
	if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
		return d.fail(e.GetToken().Position.Line, "not YAML: %s", e.GetMessage())
	}
	return usagef("%s: not YAML", d.path)
}

// entries reads the list of outputs.
func (d *decoder) entries(p pair) ([]entry, error) {
	list, ok := p.value.(*ast.SequenceNode)
	if !ok || len(list.Values) == 0 {
		return nil, d.fail(p.line, "outputs: want a list of outputs, each with to: DST")
	}
	var entries []entry
	for _, item := range list.Values {
		pairs, err := d.mapping(item, "an item of outputs")
		if err != nil {
			return nil, err
		}
		e := entry{line: lineOf(item)}
		for _, p := range pairs {
			if p.key == "options" {
				if e.options, err = d.options(p); err != nil {
					return nil, err
				}
				continue
			}
			s, err := d.setting(p, d.each, "options")
			if err != nil {
				return nil, err
			}
			s.entry = true
			e.settings = append(e.settings, s)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// options reads the options of a DST: which there are is the store's to say.
func (d *decoder) options(p pair) ([]setting, error) {
	pairs, err := d.mapping(p.value, "options")
	if err != nil {
		return nil, err
	}
	var out []setting
	for _, p := range pairs {
		nodes := []ast.NodeType{ast.StringType, ast.BoolType, ast.IntegerType, ast.FloatType}
		s, err := d.values(p, true, nodes, "text, a number, true or false, or a list of those")
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// setting reads a key that must be one of known.
func (d *decoder) setting(p pair, known *pflag.FlagSet, also string) (setting, error) {
	flag := known.Lookup(p.key)
	if flag == nil {
		names := []string{also}
		known.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		slices.Sort(names)
		return setting{}, d.fail(p.line, "unknown key %q: there are %s", p.key, strings.Join(names, ", "))
	}
	t := types[flag.Value.Type()]
	_, list := flag.Value.(pflag.SliceValue)
	return d.values(p, list, t.nodes, t.want)
}

// values reads one value of one of the types, or a list of such values.
func (d *decoder) values(p pair, list bool, nodes []ast.NodeType, want string) (setting, error) {
	s := setting{file: d.path, line: p.line, key: p.key}
	items := []ast.Node{p.value}
	if seq, ok := p.value.(*ast.SequenceNode); ok && list {
		items = seq.Values
	}
	for _, n := range items {
		text, ok := scalar(n, nodes)
		if !ok {
			return s, d.fail(lineOf(n), "%s: %s: want %s", p.key, kindOf(n), want)
		}
		escape := verbatim
		if p.key == "to" {
			escape = inDST(text)
		}
		value, expanded, err := d.expand(text, escape)
		if err != nil {
			return s, d.fail(lineOf(n), "%s: %w", p.key, err)
		}
		s.values, s.raw, s.expanded = append(s.values, value), append(s.raw, text), s.expanded || expanded
	}
	return s, nil
}

// scalar returns the text of a node of one of the types. Text with something to
// expand stands for any type.
func scalar(n ast.Node, types []ast.NodeType) (string, bool) {
	var text string
	switch n := n.(type) {
	case *ast.StringNode:
		text = n.Value
		if strings.Contains(text, "${") {
			return text, true
		}
	case *ast.LiteralNode:
		return n.Value.Value, slices.Contains(types, ast.StringType)
	default:
		text = n.GetToken().Value
	}
	return text, slices.Contains(types, n.Type())
}

// kindOf names what stands where something else should.
func kindOf(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "keys below it"
	case ast.SequenceType:
		return "a list"
	case ast.NullType:
		return "nothing"
	case ast.BoolType:
		return "true or false"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.StringType, ast.LiteralType:
		return "text"
	}
	return "an anchor, alias or tag, which is not taken here"
}

// A pair is a key and its value.
type pair struct {
	key   string
	line  int
	value ast.Node
}

// mapping reads a mapping with plain keys.
func (d *decoder) mapping(n ast.Node, what string) ([]pair, error) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, d.fail(lineOf(n), "%s: %s: want KEY: VALUE", what, kindOf(n))
	}
	var pairs []pair
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			return nil, d.fail(lineOf(v.Key), "a key that is no plain word")
		}
		pairs = append(pairs, pair{key: key.Value, line: lineOf(key), value: v.Value})
	}
	return pairs, nil
}

// lineOf is the line of a node.
func lineOf(n ast.Node) int {
	if n == nil {
		return 1
	}
	tok := n.GetToken()
	if seq, ok := n.(*ast.SequenceNode); ok {
		tok = seq.Start
	}
	return line(tok)
}

func line(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 1
	}
	return t.Position.Line
}
