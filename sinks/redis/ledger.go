package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// Marks returns the mark of every lane of the sink id, ordered by lane. A lane
// whose mark somebody removed is left out.
func (s *Sink) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	fail := func(id sinks.LaneID, kind sinks.Kind, err error) ([]sinks.LaneMark, error) {
		return nil, &sinks.Error{Kind: kind, Op: "marks", Lane: id, Err: err}
	}
	names, err := s.control.SMembers(ctx, s.opts.keys(sinks.LaneID{Sink: sink}).lanes).Result()
	if err != nil {
		return fail(sinks.LaneID{}, classify(ctx, err, false), redact(err))
	}
	slices.Sort(names)
	var marks []sinks.LaneMark
	for _, name := range names {
		id := sinks.LaneID{Sink: sink, Lane: name}
		cmd := goredis.NewSliceCmd(ctx, "hgetall", s.opts.keys(id).mark)
		if err := s.control.Process(ctx, cmd); err != nil {
			return fail(id, classify(ctx, err, false), redact(err))
		}
		if len(cmd.Val()) == 0 {
			continue
		}
		m, _, err := decodeMark(id, cmd.Val())
		if err != nil {
			return fail(id, sinks.Permanent, err)
		}
		marks = append(marks, sinks.LaneMark{LaneID: id, Mark: m})
	}
	return marks, nil
}

// auditPage is how many audit rows are read at a time.
const auditPage = 500

// Audit ranges over the audit rows of a lane. Rows that are pruned or added
// meanwhile do not disturb it.
func (s *Sink) Audit(ctx context.Context, id sinks.LaneID, after uint64) iter.Seq2[sinks.Audit, error] {
	return func(yield func(sinks.Audit, error) bool) {
		for {
			rows, err := s.auditAfter(ctx, id, after)
			if err != nil {
				yield(sinks.Audit{}, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
				after = row.Seq
			}
			if len(rows) == 0 {
				return
			}
		}
	}
}

// auditAfter returns the next page of rows. Rows have ascending Seq without gaps,
// so that the first row says where to look.
func (s *Sink) auditAfter(ctx context.Context, id sinks.LaneID, after uint64) ([]sinks.Audit, error) {
	key := s.opts.keys(id).audit
	first, err := s.auditRange(ctx, id, key, 0, 0)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	start := int64(0)
	if after >= first[0].Seq {
		start = int64(after - first[0].Seq + 1)
	}
	// The list may have been pruned since: go back by what may have gone.
	rows, err := s.auditRange(ctx, id, key, max(start-auditPage/2, 0), start+auditPage)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(rows, func(a sinks.Audit) bool { return a.Seq > after })
	if i < 0 {
		return nil, nil
	}
	return rows[i:], nil
}

func (s *Sink) auditRange(ctx context.Context, id sinks.LaneID, key string, from, to int64) ([]sinks.Audit, error) {
	list, err := s.control.LRange(ctx, key, from, to).Result()
	if err != nil {
		return nil, &sinks.Error{Kind: classify(ctx, err, false), Op: "audit", Lane: id, Err: redact(err)}
	}
	rows := make([]sinks.Audit, len(list))
	for i, text := range list {
		if rows[i], err = decodeAudit(text); err != nil {
			return nil, &sinks.Error{Kind: sinks.Permanent, Op: "audit", Lane: id, Err: fmt.Errorf("key %s: %w", key, err)}
		}
	}
	return rows, nil
}

// decodeAudit reads "dead:json": the script adds the number of dead records to
// what the client wrote.
func decodeAudit(text string) (sinks.Audit, error) {
	var a sinks.Audit
	dead, row, ok := strings.Cut(text, ":")
	if !ok {
		return a, fmt.Errorf("audit row: %w", record.ErrCorrupt)
	}
	if err := json.Unmarshal([]byte(row), &a); err != nil {
		return a, fmt.Errorf("audit row: %w: %v", record.ErrCorrupt, err)
	}
	var err error
	if a.Dead, err = strconv.ParseUint(dead, 10, 64); err != nil {
		return a, fmt.Errorf("audit row: %w: dead", record.ErrCorrupt)
	}
	return a, nil
}
