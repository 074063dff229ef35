package redis

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// The mark of a lane is a hash:
//
//	v  version of this layout, "1"        f  fence        o  owner        s  session
//	c  chain                              h  head, JSON (empty before the first batch)
//	p  batch in progress, JSON, or empty  b  its chain, or empty
//	d  records of it that are done        y  those of them that are dead, as "3,17"; z how many
//	u  commands of the next record that are applied
//	n  records, x dead ones, over the life of the lane
//	k  flush that wrote last, r records it rejected, e the error it stopped at, t its time
//	w  calls that have begun to write, a those that have come to their end
//
// A script compares c, b and d, which stand for the tip.

// appendHead writes the head that a mark shows after a batch.
func headJSON(h record.Head) ([]byte, error) { return json.Marshal(h) }

// decodeMark reads the flat list of fields and values that HGETALL gives.
func decodeMark(id sinks.LaneID, flat []any) (sinks.Mark, map[string]string, error) {
	f := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		k, _ := flat[i].(string)
		f[k], _ = flat[i+1].(string)
	}
	m, err := markOf(id, f)
	if err != nil {
		if errors.Is(err, record.ErrVersion) {
			return sinks.Mark{}, nil, fmt.Errorf("mark of lane %s: %w", id, err)
		}
		return sinks.Mark{}, nil, fmt.Errorf("mark of lane %s: %w: restore the ledger key, or delete it and open accepting loss or duplicates", id, err)
	}
	return m, f, nil
}

// errLayout says that the mark has a layout of another version.
func errLayout(v string) error {
	return fmt.Errorf("%w: layout %q, this build knows layout \"1\": use the build that made it", record.ErrVersion, v)
}

func markOf(id sinks.LaneID, f map[string]string) (sinks.Mark, error) {
	switch f["v"] {
	case "1":
	case "":
		return sinks.Mark{}, fmt.Errorf("%w: no layout", record.ErrCorrupt)
	default:
		return sinks.Mark{}, errLayout(f["v"])
	}
	if f["w"] != f["a"] {
		return sinks.Mark{}, errTorn
	}
	head := record.Head{Chain: id.Genesis()}
	if f["h"] != "" {
		if err := json.Unmarshal([]byte(f["h"]), &head); err != nil {
			return sinks.Mark{}, fmt.Errorf("%w: head: %v", record.ErrCorrupt, err)
		}
	}
	if f["c"] != head.Chain.String() {
		return sinks.Mark{}, fmt.Errorf("%w: chain and head differ", record.ErrCorrupt)
	}
	m := sinks.Mark{Seq: head.Seq, Chain: head.Chain, Checkpoint: head.Checkpoint, Position: head.Position}
	var err error
	for _, n := range []struct {
		field string
		to    *uint64
	}{{"f", &m.Fence}, {"n", &m.Records}, {"x", &m.Dead}} {
		if *n.to, err = strconv.ParseUint(f[n.field], 10, 64); err != nil {
			return sinks.Mark{}, fmt.Errorf("%w: field %s", record.ErrCorrupt, n.field)
		}
	}
	m.UpdatedAt, _ = time.Parse(time.RFC3339Nano, f["t"]) // for people; the zero time if it is not one
	m.Partial, err = partialOf(f)
	return m, err
}

func partialOf(f map[string]string) (*sinks.Partial, error) {
	if f["p"] == "" {
		return nil, nil
	}
	var p sinks.Partial
	if err := json.Unmarshal([]byte(f["p"]), &p.Batch); err != nil {
		return nil, fmt.Errorf("%w: batch in progress: %v", record.ErrCorrupt, err)
	}
	if f["b"] != p.Batch.Chain().String() {
		return nil, fmt.Errorf("%w: batch in progress and its chain differ", record.ErrCorrupt)
	}
	var err error
	if p.Done, err = strconv.ParseUint(f["d"], 10, 64); err != nil || p.Done > p.Batch.Records {
		return nil, fmt.Errorf("%w: records done", record.ErrCorrupt)
	}
	if f["y"] == "" {
		return &p, nil
	}
	for s := range strings.SplitSeq(f["y"], ",") {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: dead records", record.ErrCorrupt)
		}
		p.Dead = append(p.Dead, n)
	}
	return &p, nil
}

// A tip is what scripts compare.
type tip struct {
	chain, part string
	done        uint64
}

func tipOf(m sinks.Mark) tip {
	t := tip{chain: m.Chain.String()}
	if m.Partial != nil {
		t.part, t.done = m.Partial.Batch.Chain().String(), m.Partial.Done
	}
	return t
}
