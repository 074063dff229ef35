package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sources"
)

// sourceForms are the forms of SRC, by scheme, as help prints them.
var sourceForms = []struct{ scheme, form string }{
	{"ndjson", "ndjson:PATH  one JSON document per line; PATH is a file, a directory or a pattern, plain, .gz or .zst"},
	{"csv", "csv:PATH     CSV with a header; a row becomes a JSON object of strings"},
	{"tsv", "tsv:PATH     the same with tabs"},
	{"", "-            NDJSON from standard input, which cannot be read again after a crash"},
}

const stdin = "-"

// noReplay reports whether a source of the job cannot go back to an earlier position.
func (j *job) noReplay() bool { return slices.Contains(j.from, stdin) }

// openSources makes the sources, which are not opened yet, and a sampler of the
// first one.
func openSources(j *job, log *slog.Logger) ([]pipeline.Input, sampler, error) {
	var inputs []pipeline.Input
	for _, spec := range j.from {
		src, err := newSource(spec, j, log)
		if err != nil {
			return nil, nil, err
		}
		inputs = append(inputs, pipeline.Input{Name: sourceName(spec), Source: src})
	}
	return inputs, j.sampler(log), nil
}

// noSample is the sampler of a command that has no use for records.
func noSample(context.Context, int) ([][]byte, error) { return nil, nil }

// sampler is that of the job's sources. A command that is not told of any has nothing to
// look at.
func (j *job) sampler(log *slog.Logger) sampler {
	return func(ctx context.Context, n int) ([][]byte, error) { return firstRecords(ctx, j, log, n) }
}

func newSource(spec string, j *job, log *slog.Logger) (pipeline.Source, error) {
	if err := knownScheme(spec); err != nil {
		return nil, j.origins.locate("from", err)
	}
	src, err := sources.Parse(spec, sources.Options{Follow: j.follow, MaxRecord: int(j.maxRecord), Logger: log})
	if err != nil {
		return nil, &usageError{j.origins.locate("from", err)}
	}
	return checked{src}, nil
}

// knownScheme refuses "xml:a", which would otherwise be the name of a file.
func knownScheme(spec string) error {
	scheme, _, ok := strings.Cut(spec, ":")
	if !ok || strings.ContainsAny(scheme, `/\.*`) {
		return nil
	}
	var known []string
	for _, s := range sourceForms {
		if s.scheme == scheme && scheme != "" {
			return nil
		}
		known = append(known, s.scheme)
	}
	return usagef("unknown scheme %q: there are %s", scheme, strings.Trim(strings.Join(known, ", "), ", "))
}

// sourceName is the name of a source in positions and messages: its path.
func sourceName(spec string) string {
	if spec == stdin {
		return "stdin"
	}
	if _, path, ok := strings.Cut(spec, ":"); ok {
		return path
	}
	return spec
}

// eatsItself refuses a source that takes the parts of file:DIR for input: each run would
// send again what the last one wrote.
func (j *job) eatsItself() error {
	for _, o := range j.outputs {
		if err := o.eatenBy(j.from); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) eatenBy(from []string) error {
	t := o.target
	if t.scheme != "file" {
		return nil
	}
	dir, err := filepath.EvalSymlinks(t.where)
	if err != nil {
		return nil //nolint:nilerr // not there yet, or opening says what is wrong
	}
	part := o.id + "+000+00000000000000000001+00000." + cmp.Or(t.query.Get("format"), "ndjson") +
		map[string]string{"gzip": ".gz", "zstd": ".zst"}[t.query.Get("compress")]
	for _, spec := range from {
		path, err := filepath.Abs(sourceName(spec))
		if spec == stdin || err != nil {
			continue
		}
		below, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			continue
		}
		same, _ := filepath.EvalSymlinks(path)
		hit, _ := filepath.Match(filepath.Base(path), part)
		if same == dir || below == dir && hit {
			return usagef("--from %s: it takes what is written to %s for input: write to another directory", spec, t.where)
		}
	}
	return nil
}

// firstRecords reads up to n records of the first source; none if it has none.
func firstRecords(ctx context.Context, j *job, log *slog.Logger, n int) (recs [][]byte, err error) {
	if len(j.from) == 0 || j.from[0] == stdin {
		return nil, nil
	}
	once := *j
	once.follow = false
	src, err := newSource(j.from[0], &once, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if err := src.Open(ctx, nil); err != nil {
		return nil, err
	}
	for len(recs) < n {
		more, err := src.Read(ctx, n-len(recs))
		if errors.Is(err, io.EOF) {
			return recs, nil
		}
		if err != nil {
			return nil, err
		}
		for _, rec := range more {
			recs = append(recs, bytes.Clone(rec))
		}
	}
	return recs, nil
}

// A checked source marks its errors as errors of the input.
type checked struct{ sources.Source }

func (c checked) Open(ctx context.Context, position []byte) error {
	return inputFault(ctx, c.Source.Open(ctx, position))
}

func (c checked) Read(ctx context.Context, limit int) ([][]byte, error) {
	recs, err := c.Source.Read(ctx, limit)
	return recs, inputFault(ctx, err)
}

// Replayable and Endless pass the optional abilities of the source on.
func (c checked) Replayable() (bool, string) {
	if r, ok := c.Source.(pipeline.Replayer); ok {
		return r.Replayable()
	}
	return true, ""
}

func (c checked) Endless() bool {
	e, ok := c.Source.(pipeline.Endless)
	return ok && e.Endless()
}

func inputFault(ctx context.Context, err error) error {
	if err == nil || err == io.EOF || ctx.Err() != nil { //nolint:errorlint // EOF is the end only as it is
		return err
	}
	return &inputError{err}
}

// checkedEncode marks errors of an encoder as errors of the input.
func checkedEncode(encode func(dst, rec []byte) ([]byte, error)) func(dst, rec []byte) ([]byte, error) {
	return func(dst, rec []byte) ([]byte, error) {
		out, err := encode(dst, rec)
		if err != nil {
			return out, &inputError{err}
		}
		return out, nil
	}
}
