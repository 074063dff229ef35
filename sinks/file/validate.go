package file

import (
	"errors"

	"github.com/walsink/walsink/sinks"
)

var _ sinks.Validator = (*Sink)(nil)

var errNoNewline = errors.New("record does not end in a newline; encode it with file.JSON, file.Line or file.CSV")

// Validate refuses a record that no part can hold: one without a bucket where
// records have buckets, or without the newline at its end where records are lines.
func (s *Sink) Validate(rec []byte) error {
	if s.opts.Buckets {
		var err error
		if _, rec, err = splitBucket(rec); err != nil {
			return err
		}
	}
	if s.opts.Format != "raw" && (len(rec) == 0 || rec[len(rec)-1] != '\n') {
		return errNoNewline
	}
	return nil
}
