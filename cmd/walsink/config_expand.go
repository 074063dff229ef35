package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// An expander replaces ${NAME} and ${NAME:-DEFAULT} in values, and $$ by a dollar sign.
// The default holds when NAME is unset or empty. Errors hold names only.
type expander struct {
	env func(string) (string, bool)
}

// expand returns text with everything replaced, and whether anything came out of the
// environment. escape says how to write what is put in at an offset of text.
func (x expander) expand(text string, escape func(at int, v string) string) (value string, expanded bool, err error) {
	var b strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "$")
		b.WriteString(before)
		if !found {
			return b.String(), expanded, nil
		}
		if rest, found = strings.CutPrefix(after, "$"); found {
			b.WriteByte('$')
			continue
		}
		body, opened := strings.CutPrefix(after, "{")
		inner, tail, closed := strings.Cut(body, "}")
		if !opened || !closed {
			return "", false, errors.New("a dollar sign: want ${NAME} or ${NAME:-DEFAULT}, or $$ for the sign itself")
		}
		v, err := x.lookup(inner)
		if err != nil {
			return "", false, err
		}
		b.WriteString(escape(len(text)-len(after), v))
		rest, expanded = tail, true
	}
}

// lookup is the value of NAME or NAME:-DEFAULT.
func (x expander) lookup(inner string) (string, error) {
	name, def, hasDefault := strings.Cut(inner, ":-")
	if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != "" || name == "" {
		return "", errors.New("${...}: the name of a variable has letters, digits and '_' only")
	}
	v, ok := x.env(name)
	switch {
	case ok && (v != "" || !hasDefault):
		return v, nil
	case hasDefault:
		return def, nil
	}
	return "", fmt.Errorf("the environment has no %s: set it, or write ${%s:-DEFAULT}", name, name)
}

// verbatim puts values in as they are.
func verbatim(_ int, v string) string { return v }

// inDST returns how to put values into a DST: in the user, the password and the query
// of a URL, where they may hold any character, escaped; elsewhere as they are.
func inDST(text string) func(at int, v string) string {
	slashes, sign, query := strings.Index(text, "//"), strings.LastIndexByte(text, '@'), strings.IndexByte(text, '?')
	return func(at int, v string) string {
		if slashes >= 0 && at > slashes && at < sign || query >= 0 && at > query {
			return strings.ReplaceAll(url.QueryEscape(v), "+", "%20")
		}
		return v
	}
}
