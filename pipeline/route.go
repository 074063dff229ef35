package pipeline

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// A Route spreads the records of a source over lanes. It is part of every
// position: a start after loss of state repeats what was done before. The zero
// Route goes round, record by record.
type Route struct {
	name string
	key  func(rec []byte) []byte
}

const fieldPrefix = "field "

// ByField returns the Route that puts records with the same value of a top-level
// field into the same lane. Records that lack the field go to one lane together.
// Values are compared as they are written in JSON, after strings were unescaped;
// of a repeated field the first counts.
func ByField(name string) Route {
	return Route{name: fieldPrefix + name, key: func(rec []byte) []byte { return field(rec, name) }}
}

// ByKey returns a Route by a function of the record. The name stands for the
// function in positions: change it when the function changes. The result of the
// function may alias the record.
func ByKey(name string, key func(rec []byte) []byte) Route {
	return Route{name: "key " + name, key: key}
}

// String returns the name as positions hold it.
func (r Route) String() string {
	if r.key == nil {
		return "round"
	}
	return r.name
}

func (r Route) lane(rec []byte, number uint64, lanes int) int {
	if r.key == nil {
		return int(number % uint64(lanes))
	}
	return owner(r.key(rec), lanes)
}

// owner is the lane of a key. It never changes from one version to the next.
func owner(key []byte, lanes int) int {
	return int(xxhash.Sum64(key) % uint64(lanes))
}

// routeOf returns the route that a position names: the present one, or one that
// can be made from its name.
func routeOf(name string, present Route) (Route, error) {
	if name == present.String() {
		return present, nil
	}
	if name == (Route{}).String() {
		return Route{}, nil
	}
	if f, ok := strings.CutPrefix(name, fieldPrefix); ok {
		return ByField(f), nil
	}
	return Route{}, fmt.Errorf("the position was made with the route %q, which must be known to repeat it: start once with that route", name)
}

// field returns the value of a top-level field of a JSON object, nil if there is
// none. Strings come without their quotes. It does not check that rec is valid
// beyond what it needs.
func field(rec []byte, name string) []byte {
	i := skipSpace(rec, 0)
	if i >= len(rec) || rec[i] != '{' {
		return nil
	}
	i++
	for {
		i = skipSpace(rec, i)
		if i >= len(rec) || rec[i] != '"' {
			return nil
		}
		end := skipString(rec, i)
		key := unquote(rec[i:end])
		i = skipSpace(rec, end)
		if i >= len(rec) || rec[i] != ':' {
			return nil
		}
		i = skipSpace(rec, i+1)
		end = skipValue(rec, i)
		if string(key) == name {
			return unquote(rec[i:end])
		}
		i = skipSpace(rec, end)
		if i >= len(rec) || rec[i] != ',' {
			return nil
		}
		i++
	}
}

// unquote returns the contents of a JSON string, or anything else as it is.
func unquote(v []byte) []byte {
	if len(v) < 2 || v[0] != '"' {
		return v
	}
	inner := v[1 : len(v)-1]
	for _, c := range inner {
		if c == '\\' {
			var s string
			if json.Unmarshal(v, &s) != nil {
				return inner
			}
			return []byte(s)
		}
	}
	return inner
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// skipValue returns the index after the value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth < 0 {
				return i
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(b)
}
