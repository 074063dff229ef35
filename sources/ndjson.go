package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/walsink/walsink/internal/jsontext"
)

// ndjson is one JSON value per line. The line end, "\n" or "\r\n", is not part of
// the record; a line of white space only is no record.
type ndjson struct{}

func (ndjson) begin()       {}
func (ndjson) header() bool { return false }

func (ndjson) next(b []byte, last bool) (rec []byte, size, lines int, err error) {
	size = bytes.IndexByte(b, '\n') + 1
	line := b[:max(size-1, 0)]
	if size == 0 {
		if !last {
			return nil, 0, 0, nil
		}
		line, size = b, len(b)
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if jsontext.Valid(line) {
		return line, size, 1, nil
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, size, 1, nil
	}
	return nil, 0, 0, notJSON(line)
}

// notJSON says what is wrong with a line, without its contents.
func notJSON(line []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(line, &v)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON: column %d: %w", syntax.Offset, syntax)
	}
	return fmt.Errorf("not JSON: %w", err)
}
