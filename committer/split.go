package committer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A split says which records of a batch are dead. It is decided once: it goes to
// the log, as the batch's note, before the batch is tried again without them.
type split []reject

// A reject is one dead record. Its field names are the note's.
type reject struct {
	Number uint64 `json:"number"`
	Field  string `json:"field,omitempty"`
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
}

const noteVersion = 1

// A note is what the log keeps with a batch.
type note struct {
	Version int   `json:"version"`
	Dead    split `json:"dead"`
	// GivenUp says that an operator gave the batch up, see GiveUp.
	GivenUp bool `json:"given_up,omitempty"`
}

func (n note) encode() ([]byte, error) {
	n.Version = noteVersion
	return json.Marshal(n)
}

// decodeNote reads a note of batch b; no bytes are an empty note.
func decodeNote(data []byte, b record.Batch) (note, error) {
	var n note
	if len(data) == 0 {
		return n, nil
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return note{}, fmt.Errorf("%w: note: %v", record.ErrCorrupt, err)
	}
	if n.Version != noteVersion {
		return note{}, fmt.Errorf("%w: note version %d, this build reads %d", record.ErrVersion, n.Version, noteVersion)
	}
	for i, r := range n.Dead {
		if r.Number >= b.Records || i > 0 && r.Number <= n.Dead[i-1].Number {
			return note{}, fmt.Errorf("%w: note: record number %d of %d", record.ErrCorrupt, r.Number, b.Records)
		}
	}
	return n, nil
}

var errNothingNew = errors.New("the sink rejects records that it was not given")

// rejected returns the split of the part's batch, whose index is i, with the
// rejects added. It fails if one names a record that the sink was not given.
func (p part) rejected(i int, bad []sinks.Reject) (split, error) {
	out := slices.Clone(p.split)
	for _, r := range bad {
		if r.Batch != i {
			continue
		}
		at, found := out.find(r.Number)
		if r.Number < p.from || r.Number >= p.to || found {
			return nil, fmt.Errorf("%w: number %d", errNothingNew, r.Number)
		}
		out = slices.Insert(out, at, reject{r.Number, clean(r.Field), clean(r.Code), clean(r.Reason)})
	}
	return out, nil
}

// maxText bounds each text of a note, in bytes.
const maxText = 200

// clean makes a store's text fit for a note: short and without control characters.
func clean(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxText)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// adopt makes the split agree with a mark: of the first done records exactly
// those in dead are dead.
func (s split) adopt(p *sinks.Partial) split {
	if p == nil {
		return s
	}
	var out split
	for _, n := range p.Dead {
		if at, found := s.find(n); found {
			out = append(out, s[at])
		} else {
			out = append(out, reject{Number: n})
		}
	}
	return append(out, s.from(p.Done)...)
}

func (s split) find(n uint64) (int, bool) {
	return slices.BinarySearchFunc(s, n, func(r reject, n uint64) int {
		switch {
		case r.Number < n:
			return -1
		case r.Number > n:
			return 1
		}
		return 0
	})
}

// from returns the rejects with number n and above.
func (s split) from(n uint64) split {
	i, _ := s.find(n)
	return s[i:]
}

// within returns the rejects from number i up to, but not including, j.
func (s split) within(i, j uint64) split {
	s = s.from(i)
	at, _ := s.find(j)
	return s[:at]
}

// numbers returns the record numbers, or nil.
func (s split) numbers() []uint64 {
	var out []uint64
	for _, r := range s {
		out = append(out, r.Number)
	}
	return out
}
