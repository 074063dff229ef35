package sources

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/walsink/walsink/record"
)

// A Source is what Parse returns; it is a pipeline.Source, where each method is
// documented.
type Source interface {
	// Open starts reading at a position, nil for the beginning.
	Open(ctx context.Context, position []byte) error
	// Read returns the next records, valid until the next call; io.EOF at the end.
	Read(ctx context.Context, limit int) ([][]byte, error)
	// Position returns where to resume after the last record returned.
	Position() []byte
	// Close releases what Open took.
	Close() error
}

// Options configure a source. The zero value reads files once, to their end.
type Options struct {
	// Follow goes on when files grow, appear, or are rotated. The source never ends.
	Follow bool
	// Poll is the time between two looks at files that are followed; default 100 ms.
	Poll time.Duration
	// Quiet is how long a file that was renamed away must not have grown before it
	// counts as finished; default 1 s. A writer must have changed to the new file by
	// then.
	Quiet time.Duration
	// MaxRecord is the longest record in bytes; default and most record.MaxRecord.
	MaxRecord int
	// Logger gets what happens to followed files. Default slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Poll <= 0 {
		o.Poll = 100 * time.Millisecond
	}
	if o.Quiet <= 0 {
		o.Quiet = time.Second
	}
	if o.MaxRecord <= 0 || o.MaxRecord > record.MaxRecord {
		o.MaxRecord = record.MaxRecord
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Parse makes a source of a description:
//
//	ndjson:PATH   csv:PATH   tsv:PATH   -
//
// PATH is a file, a directory, or a pattern in the syntax of filepath.Match; - is
// NDJSON from standard input. A path without a prefix is judged by its name:
// .csv, .tsv, and everything else NDJSON, before .gz or .zst.
func Parse(spec string, opts Options) (Source, error) {
	if spec == "-" {
		return NewStream("standard input", os.Stdin, opts), nil
	}
	kind, path, ok := strings.Cut(spec, ":")
	if _, known := formats[kind]; !ok || !known {
		kind, path = kindOf(spec), spec
	}
	if path == "" {
		return nil, fmt.Errorf("source %q: no path", spec)
	}
	return newFiles(kind, path, opts), nil
}

func kindOf(path string) string {
	path = strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst")
	for _, kind := range []string{"csv", "tsv"} {
		if strings.HasSuffix(path, "."+kind) {
			return kind
		}
	}
	return "ndjson"
}

// A decoder cuts records out of the bytes of one file.
type decoder interface {
	// next looks at the front of b, which is followed by nothing if last is set. It
	// returns how many bytes and lines to go on, and the record in them, nil if they
	// hold none, as a blank line or a header. Size 0 says that b ends too early. The
	// record may alias b, or memory that is valid until the next call of begin.
	next(b []byte, last bool) (rec []byte, size, lines int, err error)
	// begin says that no record returned before is needed any more.
	begin()
	// header reports whether a file begins with something that must be read before any
	// record can be. It is what next returns first that is not a record.
	header() bool
}

var formats = map[string]func() decoder{
	"ndjson": func() decoder { return ndjson{} },
	"csv":    func() decoder { return newTable(',') },
	"tsv":    func() decoder { return newTable('\t') },
}
