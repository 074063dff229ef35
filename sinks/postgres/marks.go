package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// entry is a lane's row.
type entry struct {
	lane   string
	mark   sinks.Mark
	target int64 // oid of the table that the records went to; 0 if none yet
	same   bool  // the ledger is still the relation that target was written to
}

// scanner reads the text columns of one row and keeps the first error.
type scanner struct {
	row [][]byte
	err error
}

func (s *scanner) text() string {
	v := s.row[0]
	s.row = s.row[1:]
	return string(v)
}

func (s *scanner) int() int64 {
	n, err := strconv.ParseInt(s.text(), 10, 64)
	if s.err == nil && err != nil {
		s.err = err
	}
	return n
}

func (s *scanner) uint() uint64 {
	n := s.int()
	if n < 0 && s.err == nil {
		s.err = fmt.Errorf("%w: negative number in the ledger", errRefused)
	}
	return uint64(n)
}

func (s *scanner) bytes() []byte {
	if s.row[0] == nil {
		s.row = s.row[1:]
		return nil
	}
	b, err := hex.DecodeString(s.text())
	if s.err == nil && err != nil {
		s.err = err
	}
	return b
}

func (s *scanner) unmarshal(into interface{ UnmarshalText([]byte) error }) {
	if err := into.UnmarshalText([]byte(s.text())); s.err == nil && err != nil {
		s.err = err
	}
}

// scanEntry reads a row of laneColumns. It refuses a row whose parts do not
// belong together, which somebody must have edited.
func scanEntry(row [][]byte) (entry, error) {
	var e entry
	var tip record.Chain
	s := scanner{row: row}
	e.mark.Fence, e.mark.Seq = s.uint(), s.uint()
	s.unmarshal(&e.mark.Chain)
	s.unmarshal(&tip)
	e.mark.Checkpoint, e.mark.Position = s.uint(), s.bytes()
	if text := s.text(); text != "" {
		e.mark.Partial = new(sinks.Partial)
		if err := json.Unmarshal([]byte(text), e.mark.Partial); s.err == nil && err != nil {
			s.err = err
		}
	}
	e.mark.Records, e.mark.Dead = s.uint(), s.uint()
	e.mark.UpdatedAt = time.UnixMicro(s.int()).UTC()
	e.target, e.same, e.lane = s.int(), s.text() == "t", s.text()
	if s.err == nil && tip != e.mark.Tip() {
		s.err = errors.New("tip does not belong to the rest")
	}
	if s.err != nil {
		return entry{}, fmt.Errorf("%w: ledger entry of lane %q is damaged: %v; put it back from a backup, or delete it and open accepting loss or duplicates", errRefused, e.lane, s.err)
	}
	return e, nil
}

// Marks implements [sinks.Ledger].
func (s *Sink) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	const op = "marks"
	results, err := s.query(ctx, sql(`select `+laneColumns+` from `+s.ledger.lane+` where sink = $1 order by lane collate "C"`, sink))
	if err != nil {
		return nil, s.fail(ctx, op, sinks.LaneID{}, preparing, err)
	}
	rows := results[0].Rows
	marks := make([]sinks.LaneMark, 0, len(rows))
	for _, row := range rows {
		e, err := scanEntry(row)
		if err != nil {
			return nil, s.fail(ctx, op, sinks.LaneID{}, preparing, err)
		}
		marks = append(marks, sinks.LaneMark{LaneID: sinks.LaneID{Sink: sink, Lane: e.lane}, Mark: e.mark})
	}
	return marks, nil
}

// auditPage is how many audit rows are read at a time.
const auditPage = 1000

// Audit implements [sinks.Ledger].
func (s *Sink) Audit(ctx context.Context, id sinks.LaneID, after uint64) iter.Seq2[sinks.Audit, error] {
	return func(yield func(sinks.Audit, error) bool) {
		for {
			page, err := s.auditAfter(ctx, id, after)
			if err != nil {
				yield(sinks.Audit{}, s.fail(ctx, "audit", id, preparing, err))
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
				after = a.Seq
			}
			if len(page) < auditPage {
				return
			}
		}
	}
}

func (s *Sink) auditAfter(ctx context.Context, id sinks.LaneID, after uint64) ([]sinks.Audit, error) {
	results, err := s.query(ctx, sql(`select seq, checkpoint, encode(prev, 'hex'), records, bytes, encode(digest, 'hex'),
	encode(position, 'hex'), format, sealed_at, dead, (extract(epoch from flushed_at) * 1000000)::bigint
	from `+s.ledger.audit+` where sink = $1 and lane = $2 and seq > $3 order by seq limit $4`,
		id.Sink, id.Lane, int64(min(after, math.MaxInt64)), int64(auditPage)))
	if err != nil {
		return nil, err
	}
	page := make([]sinks.Audit, 0, len(results[0].Rows))
	for _, row := range results[0].Rows {
		r := scanner{row: row}
		var a sinks.Audit
		a.Seq, a.Checkpoint = r.uint(), r.uint()
		r.unmarshal(&a.Prev)
		a.Records, a.Bytes = r.uint(), r.uint()
		r.unmarshal(&a.Digest)
		a.Position, a.Format, a.SealedAt, a.Dead = r.bytes(), r.text(), r.int(), r.uint()
		a.FlushedAt = time.UnixMicro(r.int()).UTC()
		if r.err != nil {
			return nil, fmt.Errorf("%w: audit row %d: %v", errRefused, a.Seq, r.err)
		}
		page = append(page, a)
	}
	return page, nil
}
