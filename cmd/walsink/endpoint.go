package main

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An endpoint is a parsed DST: "scheme:path?key=value&...". Everything
// between the first colon and the first question mark is the path, as it is.
type endpoint struct {
	scheme string
	path   string
	query  url.Values
	// raw is the text as given; it may hold a password and is never printed.
	raw string
}

// parseEndpoint reads a DST. Its errors hold no part of a text with "//" in it:
// that may be a password.
func parseEndpoint(text string) (endpoint, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok || scheme == "" || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return endpoint{}, usagef("%q: want SCHEME:WHERE, as in file:out", hideURL(text))
	}
	path, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return endpoint{}, usagef("%s: the part after '?' is not key=value&key=value", scheme)
	}
	return endpoint{scheme: scheme, path: path, query: values, raw: text}, nil
}

func hideURL(text string) string {
	if before, _, ok := strings.Cut(text, "//"); ok {
		return before + "//..."
	}
	return text
}

// filePath is the path of an endpoint that names a file or directory.
// "file:///a" is "/a"; a host is refused.
func (e endpoint) filePath() (string, error) {
	p := e.path
	if rest, ok := strings.CutPrefix(p, "//"); ok {
		if !strings.HasPrefix(rest, "/") {
			return "", usagef("%s: %q names a host: want %s:PATH or %s:///PATH", e.scheme, e.path, e.scheme, e.scheme)
		}
		p = rest
	}
	if p == "" {
		return "", usagef("%s: the path is empty", e.scheme)
	}
	return filepath.Clean(p), nil
}

// options reads the query of an endpoint: each key is asked for once, and done
// refuses what nobody asked for. The first error stays.
type options struct {
	scheme string
	left   url.Values
	known  []string
	err    error
}

func (e endpoint) options() *options {
	return &options{scheme: e.scheme, left: maps.Clone(e.query)}
}

// text returns the value of key, or def.
func (o *options) text(key, def string) string {
	o.known = append(o.known, key)
	v, ok := o.left[key]
	if !ok {
		return def
	}
	delete(o.left, key)
	if len(v) > 1 {
		o.fail(key, "given twice")
	}
	return v[0]
}

// choice returns the value of key, which must be one of names; the first is the default.
func (o *options) choice(key string, names ...string) string {
	v := o.text(key, names[0])
	if !slices.Contains(names, v) {
		o.refuse(key, v, "is not one of "+strings.Join(names, ", "))
	}
	return v
}

// flag returns what key says: yes or true, no or false, or def.
func (o *options) flag(key string, def bool) bool {
	switch v := o.text(key, ""); v {
	case "":
		return def
	case "yes", "true":
		return true
	case "no", "false":
		return false
	default:
		o.refuse(key, v, "is not yes or no")
		return def
	}
}

// size returns the bytes that key says, or def.
func (o *options) size(key string, def int64) int64 {
	v := o.text(key, "")
	if v == "" {
		return def
	}
	n, err := parseSize(v)
	if err != nil {
		o.refuse(key, v, "is not a size such as 64MiB or 10GB")
	}
	return n
}

// count returns the number that key says, or 0.
func (o *options) count(key string) int {
	v := o.text(key, "0")
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		o.refuse(key, v, "is not a number")
	}
	return int(n)
}

// duration returns the duration that key says, or def.
func (o *options) duration(key string, def time.Duration) time.Duration {
	v := o.text(key, "")
	if v == "" {
		return def
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		o.refuse(key, v, "is not a duration such as 10s or 5m")
	}
	return d
}

// refuse is fail for a value that cannot be meant so.
func (o *options) refuse(key, value, reason string) { o.fail(key, strconv.Quote(value)+" "+reason) }

func (o *options) fail(key, reason string) {
	if o.err == nil {
		o.err = &usageError{&optionError{o.scheme, key, reason}}
	}
}

// An optionError is about one option of a DST.
type optionError struct{ scheme, key, reason string }

const unknown = "unknown: there are "

func (e *optionError) Error() string {
	if known, ok := strings.CutPrefix(e.reason, unknown); ok {
		return fmt.Sprintf("%s: unknown option %q: there are %s", e.scheme, e.key, known)
	}
	return e.scheme + ": option " + e.key + ": " + e.reason
}

// done returns the first error, or names a key that nobody knows.
func (o *options) done() error {
	if o.err != nil || len(o.left) == 0 {
		return o.err
	}
	key := slices.Min(slices.Collect(maps.Keys(o.left)))
	slices.Sort(o.known)
	return &usageError{&optionError{o.scheme, key, unknown + strings.Join(o.known, ", ")}}
}
