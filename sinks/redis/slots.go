package redis

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/walsink/walsink/record"
)

// tags holds a short hash tag for each slot of a cluster, so that a mark can live
// beside the keys of a slot. Ledgers are found by them: they never change.
var tags = sync.OnceValue(func() *[slots]string {
	var t [slots]string
	for n, missing := 0, slots; missing > 0; n++ {
		tag := strconv.FormatInt(int64(n), 36)
		if s := slotOf(tag); t[s] == "" {
			t[s] = tag
			missing--
		}
	}
	return &t
})

// slotMark is the key of the lane's mark in a slot.
func (b *base) slotMark(slot uint16) string {
	return b.sink.opts.Prefix + "slot:{" + tags()[slot] + "}:" + b.id.String()
}

// A coord is a place in a lane: all records of batches before seq, and the first
// done of it.
type coord struct{ seq, done uint64 }

func (c coord) before(d coord) bool { return c.seq < d.seq || c.seq == d.seq && c.done < d.done }

// A slotEntry is what the home mark knows of a slot: the first batch that touched
// it, and how far it must be.
type slotEntry struct {
	first uint64
	at    coord
}

func (e slotEntry) String() string { return fmt.Sprintf("%d:%d:%d", e.first, e.at.seq, e.at.done) }

// parseTable reads the slot table.
func parseTable(fields map[string]string) (map[uint16]slotEntry, error) {
	table := make(map[uint16]slotEntry, len(fields))
	for k, v := range fields {
		slot, err := parseSlot(k)
		if err != nil {
			return nil, err
		}
		var e slotEntry
		if _, err := fmt.Sscanf(v, "%d:%d:%d", &e.first, &e.at.seq, &e.at.done); err != nil {
			return nil, fmt.Errorf("%w: slot %d: %v", record.ErrCorrupt, slot, err)
		}
		table[slot] = e
	}
	return table, nil
}

// parseSlots reads the slots that an unfinished batch has named.
func parseSlots(text string) ([]uint16, error) {
	if text == "" {
		return nil, nil
	}
	var list []uint16
	for s := range strings.SplitSeq(text, ",") {
		slot, err := parseSlot(s)
		if err != nil {
			return nil, err
		}
		list = append(list, slot)
	}
	return list, nil
}

func parseSlot(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n >= slots {
		return 0, fmt.Errorf("%w: slot %.20q", record.ErrCorrupt, s)
	}
	return uint16(n), nil
}
