package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"

	"github.com/walsink/walsink/sinks"
)

// An opened store is the sink and the encoder of its wire form. Records come as
// the source has them: lines of NDJSON.
type opened struct {
	sink   sinks.Sink
	encode func(dst, rec []byte) ([]byte, error)
}

// A sampler returns the first record of the input; nil if there is none.
type sampler func(ctx context.Context) ([]byte, error)

// A store is what a scheme of DST stands for. To add one is to add a row to
// stores.
type store struct {
	scheme string
	form   string // as help prints it
	open   func(ctx context.Context, e endpoint, sample sampler) (opened, error)
	// name makes the default of --id: it tells two destinations apart that share a
	// ledger, and stays the same however the destination is spelled.
	name func(e endpoint) string
	// where is the destination in one canonical spelling, without secrets. The default
	// state directory is named after it.
	where func(e endpoint) (string, error)
}

var stores = []store{
	{"file", "file:DIR[?format=ndjson|csv|raw&compress=gzip|zstd&bucket={FIELD}&...]", openFile, fileName, fileWhere},
}

// A target is a parsed DST.
type target struct {
	endpoint
	store store
	where string // canonical
}

func parseTarget(text string) (target, error) {
	e, err := parseEndpoint("--to", text)
	if err != nil {
		return target{}, err
	}
	var known []string
	for _, s := range stores {
		if s.scheme == e.scheme {
			where, err := s.where(e)
			return target{e, s, where}, err
		}
		known = append(known, s.scheme)
	}
	return target{}, usagef("--to: unknown scheme %q: there are %s", e.scheme, strings.Join(known, ", "))
}

func (t target) defaultID() string { return t.store.name(t.endpoint) }

// stateName names the default state directory: readable, and one per destination.
func (t target) stateName() string {
	sum := sha256.Sum256([]byte(t.scheme + ":" + t.where))
	return t.scheme + "-" + hex.EncodeToString(sum[:6])
}

// open opens the store; an error is about the store, unless it says otherwise.
func (t target) open(ctx context.Context, sample sampler) (opened, error) {
	o, err := t.store.open(ctx, t.endpoint, sample)
	if err != nil && !isA[*usageError](err) && !isA[*inputError](err) {
		err = &storeError{err}
	}
	return o, err
}

// A storeError is a store that cannot be opened.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// errNoSample says that a store needs a record to look at and there is none.
var errNoSample = errors.New("there is no record to take the columns from: name them with columns=A,B,C")

// The ledger of a file sink is in its directory, so one name for all jobs is right:
// it survives that the directory moves. Two jobs on one directory need --id.
func fileName(endpoint) string { return "walsink" }

func fileWhere(e endpoint) (string, error) {
	p, err := e.filePath()
	if err != nil {
		return "", err
	}
	return filepath.Abs(p)
}
