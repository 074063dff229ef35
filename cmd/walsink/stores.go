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

// A sampler returns the first records of the input, at most n; none if there is
// none to see. A store that is opened without a sampler is opened to look at its
// ledger: nothing is made in it, and no record will come.
type sampler func(ctx context.Context, n int) ([][]byte, error)

// A store is what a scheme of DST stands for. To add one is to add a row to
// stores.
type store struct {
	scheme string
	form   string // as help prints it
	open   func(ctx context.Context, e endpoint, sample sampler) (opened, error)
	// check is what open finds wrong before it opens anything.
	check func(e endpoint) error
	// probe says what open would meet, and makes nothing. An error is a store that
	// cannot be reached.
	probe func(ctx context.Context, e endpoint) ([]sinks.Finding, error)
	// name makes the default of --id: it tells two destinations apart that share a
	// ledger, and stays the same however the destination is spelled.
	name func(e endpoint) string
	// where is the destination in one canonical spelling, without secrets. The default
	// state directory is named after it.
	where func(e endpoint) (string, error)
}

var stores = []store{
	{"file", "file:DIR[?format=ndjson|csv|raw&compress=gzip|zstd&bucket={FIELD}&...]", openFile, checkFile, probeFile, fileName, fileWhere},
	{"postgres", "postgres://USER@HOST/DB?table=T[&schema=S&mode=insert|upsert&key=A,B&columns=A,B&create=true&...]", openPostgres, checkPostgres, probePostgres, postgresName, postgresWhere},
	{"redis", "redis://HOST/DB?key=PATTERN[&op=set|hset|incrby|rpush|xadd|...&value=PATTERN&field=PATTERN&...]", openRedis, checkRedis, probeRedis, redisName, redisWhere},
}

// A target is a parsed DST.
type target struct {
	endpoint
	store store
	where string // canonical
}

// parseTarget parses a DST, and adds options to those of its query.
func parseTarget(text string, options ...setting) (target, error) {
	e, err := parseEndpoint(text)
	if err != nil {
		return target{}, err
	}
	for _, o := range options {
		e.query.Add(o.key, strings.Join(o.values, ","))
	}
	var known []string
	for _, s := range stores {
		if s.scheme == e.scheme {
			where, err := s.where(e)
			return target{e, s, where}, firstErr(err, s.check(e))
		}
		known = append(known, s.scheme)
	}
	return target{}, usagef("unknown scheme %q: there are %s", e.scheme, strings.Join(known, ", "))
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

// safeName makes a sink id of any text. What the rules of ids do not allow is
// replaced, and a hash keeps different texts apart.
func safeName(text string) string {
	if (sinks.LaneID{Sink: text, Lane: "x"}).Validate() == nil {
		return text
	}
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, text)
	sum := sha256.Sum256([]byte(text))
	return strings.TrimLeft(clean[:min(len(clean), 60)], ".") + "-" + hex.EncodeToString(sum[:4])
}
