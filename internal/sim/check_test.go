package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// check compares the stores that have changed with what the sources make. In the
// end all of it must be there.
func (w *world) check(final bool) {
	for i, s := range w.stores {
		if !s.changed && !final {
			continue
		}
		s.changed = false
		c := checker{w: w, store: s, final: final, seen: map[[3]int]bool{}, counts: map[byte]map[uint16]bool{}}
		for _, m := range marks(s.Store, i) {
			if err := c.lane(m.LaneID); err != nil {
				w.fail("store %d lane %s: %w", i, m.LaneID, err)
				return
			}
		}
		if err := c.whole(); err != nil {
			w.fail("store %d: %w", i, err)
		}
	}
}

// marks are those of the i-th sink in a store.
func marks(s *memory.Store, i int) []sinks.LaneMark {
	list, _ := memory.Open(s, memory.Options{}).Marks(context.Background(), sinkID(i)) // it has no errors
	return list
}

// A checker looks at one store.
type checker struct {
	w      *world
	store  *store
	final  bool
	seen   map[[3]int]bool          // source, number and part of the rows that are in
	counts map[byte]map[uint16]bool // that are in, by key
}

// lane checks the rows of a lane: each as it was made, in the order of its source,
// and with fixed lanes and no state without a gap.
func (c *checker) lane(id sinks.LaneID) error {
	rows := c.store.rows(id)
	last := map[int]int{}
	for i, row := range rows {
		at, err := c.row(row)
		if err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		if c.seen[at] {
			return fmt.Errorf("row %d: source %d record %d part %d is there twice", i, at[0], at[1], at[2])
		}
		c.seen[at] = true
		order := at[1]*10 + at[2] + 1
		if order <= last[at[0]] {
			return fmt.Errorf("row %d: source %d record %d part %d is behind a later one", i, at[0], at[1], at[2])
		}
		last[at[0]] = order
	}
	for _, d := range c.store.DeadLetters(id) {
		at, err := c.row(d.Record)
		if err != nil {
			return fmt.Errorf("dead letter: %w", err)
		}
		if c.seen[at] || !isBad(d.Record) {
			return fmt.Errorf("source %d record %d part %d should not be among the dead letters", at[0], at[1], at[2])
		}
		c.seen[at] = true
	}
	if c.w.cfg.stateful || c.w.cfg.rescale {
		return nil
	}
	return c.prefix(id, rows)
}

// row checks that a row is what was made of its record, and says of which.
func (c *checker) row(row []byte) (at [3]int, err error) {
	if len(row) < atTail {
		return at, fmt.Errorf("%x is not a row", row)
	}
	at = [3]int{int(row[0]), int(binary.BigEndian.Uint16(row[atNumber:])), int(row[atPart])}
	count := binary.BigEndian.Uint16(row[atCount:])
	if want := appendRow(nil, appendRecord(nil, at[0], at[1]), at[2], count); !bytes.Equal(row, want) {
		return at, fmt.Errorf("%x is not %x", row, want)
	}
	if c.w.cfg.stateful {
		if c.counts[row[atKey]] == nil {
			c.counts[row[atKey]] = map[uint16]bool{}
		}
		if c.counts[row[atKey]][count] {
			return at, fmt.Errorf("key %d has the count %d twice", row[atKey], count)
		}
		c.counts[row[atKey]][count] = true
	}
	return at, nil
}

// prefix checks that the lane holds the first rows that belong to it, and no others.
func (c *checker) prefix(id sinks.LaneID, rows [][]byte) error {
	var lane int
	if _, err := fmt.Sscanf(id.Lane, "%d", &lane); err != nil {
		return err
	}
	cfg := c.w.cfg
	src, own := lane/cfg.lanes, lane%cfg.lanes
	i := 0
	for n := 0; n < cfg.records[src] && i < len(rows); n++ {
		if !cfg.owns(own, src, n) {
			continue
		}
		rec := appendRecord(nil, src, n)
		for part := range fanOut(n) {
			want := appendRow(nil, rec, part, 0)
			if cfg.flush.DeadLetters && isBad(want) {
				continue
			}
			if i < len(rows) && !bytes.Equal(rows[i], want) {
				return fmt.Errorf("row %d is %x, want %x", i, rows[i], want)
			}
			i++
		}
	}
	if i < len(rows) {
		return fmt.Errorf("%d rows, there are no more than %d", len(rows), i)
	}
	return nil
}

// owns reports whether a record belongs to a lane of its source.
func (c config) owns(lane, source, n int) bool {
	switch {
	case c.lanes == 1:
		return true
	case c.byKey:
		return int(xxhash.Sum64([]byte{keyOf(source, n)})%uint64(c.lanes)) == lane
	}
	return n%c.lanes == lane
}

// whole checks what is true of all lanes together: of each key the counts are there without
// a gap. Of a key that has gone to another lane they are not for a while, if the store has
// lost what the old lane had written: each lane is filled up by itself then.
func (c *checker) whole() error {
	apart := c.w.cfg.rescale && c.w.faults[rolledBack] > 0 && !c.final
	for key, counts := range c.counts {
		if apart {
			break
		}
		for n := range len(counts) {
			if !counts[uint16(n+1)] {
				return fmt.Errorf("key %d has %d counts, and not %d", key, len(counts), n+1)
			}
		}
	}
	if !c.final {
		return nil
	}
	total := 0
	for src, end := range c.w.cfg.records {
		for n := range end {
			parts := fanOut(n)
			if c.w.cfg.stateful {
				parts = 1
			}
			for part := range parts {
				total++
				if !c.seen[[3]int{src, n, part}] {
					return fmt.Errorf("source %d record %d part %d is lost", src, n, part)
				}
			}
		}
	}
	if total != len(c.seen) {
		return fmt.Errorf("%d rows, want %d", len(c.seen), total)
	}
	c.w.rows += total
	return nil
}

// checkState compares the state in the newest checkpoint with the records.
func (w *world) checkState() error {
	want := map[byte]int{}
	for src, end := range w.cfg.records {
		for n := range end {
			want[keyOf(src, n)]++
		}
	}
	snaps := w.last.disk.snaps
	got := map[byte]int{}
	if len(snaps) > 0 {
		for _, part := range snaps[len(snaps)-1].Parts {
			if !strings.HasPrefix(part.Name, "state/") {
				continue
			}
			for b := part.Data[1:]; len(b) > 0; b = b[5:] { // version, then 1 key 2 count
				got[b[1]] += int(binary.BigEndian.Uint16(b[3:]))
			}
		}
	}
	for key := range byte(keys) {
		if got[key] != want[key] {
			return fmt.Errorf("the state of key %d is %d, want %d", key, got[key], want[key])
		}
	}
	return nil
}

// ended reports whether a process has come to the end in the calm, and checks what
// it leaves.
func (w *world) ended() bool {
	if w.last == nil || w.last.serial <= w.calmed {
		return false
	}
	w.check(true)
	if w.cfg.stateful && w.failure == nil {
		if err := w.checkState(); err != nil {
			w.fail("%w", err)
		}
	}
	if w.failure == nil && !w.again && w.rng.IntN(4) == 0 {
		w.again, w.calmed = true, w.last.serial // one more run has nothing to do
		return false
	}
	return true
}
