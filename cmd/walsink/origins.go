package main

import (
	"fmt"
	"maps"
)

// origins says where the values of a job come from, for messages. The zero value
// says that all come from flags or are defaults.
type origins struct {
	file string             // configuration file; empty if there is none
	from map[string]setting // by key, what the file says
	own  map[string]bool    // keys that an entry of outputs has itself
}

func (o *origins) add(s setting) {
	if o.from == nil {
		o.from, o.own = map[string]setting{}, map[string]bool{}
	}
	o.from[s.key] = s
	o.own[s.key] = s.entry
}

func (o *origins) clone() origins {
	return origins{file: o.file, from: maps.Clone(o.from), own: maps.Clone(o.own)}
}

// bad is the error of a value that cannot be meant so: where it is said, the value,
// and what is allowed. A value that came out of the environment is named as the file
// has it.
func (o *origins) bad(key string, value any, want string) error {
	s, ok := o.from[key]
	switch {
	case !ok:
		return usagef("--%s %v: %s", key, value, want)
	case s.expanded:
		return s.bad(s.shown(), want)
	}
	return s.bad(fmt.Sprint(value), want)
}

// locate puts where a key is said before an error about its value. What came out of the
// environment is hidden.
func (o *origins) locate(key string, err error) error {
	s, ok := o.from[key]
	if !ok {
		return fmt.Errorf("--%s: %w", key, err)
	}
	if text := s.hide(err.Error()); text != err.Error() {
		err = usagef("%s", text)
	}
	return fmt.Errorf("%s:%d: %s: %w", s.file, s.line, key, err)
}

// missing is the error of a key that has to be there.
func (o *origins) missing(key, form, what string) error {
	if o.file == "" {
		return usagef("--%s %s is missing: %s", key, form, what)
	}
	return usagef("%s: %s is missing: %s (or --%s %s)", o.file, key, what, key, form)
}
