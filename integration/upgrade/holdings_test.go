package upgrade_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// holdings lists what the log in dir holds, lane by lane and batch by batch, and where
// each batch stands by the ledger. It fails the test if the two contradict each other.
func holdings(t *testing.T, dir string, ledger sinks.Ledger) (all []string) {
	t.Helper()
	log, err := wal.Open(dir, logOptions)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	marks, err := ledger.Marks(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range marks {
		in := map[uint64]sinks.Audit{}
		for a, err := range ledger.Audit(t.Context(), m.LaneID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			in[a.Seq] = a
		}
		for _, b := range log.Batches(m.String()) {
			state := "pending"
			if b.Seq <= m.Seq {
				state = "flushed"
				if a := in[b.Seq]; a.Chain() != b.Chain() || a.Dead != 0 || a.Format != b.Format {
					t.Errorf("lane %s: the ledger has another batch %d: %+v", m.Lane, b.Seq, a)
				}
			}
			if b.Seq == m.Seq && b.Chain() != m.Chain {
				t.Errorf("lane %s: the mark does not stand at batch %d", m.Lane, b.Seq)
			}
			all = append(all, fmt.Sprintf("%s: batch %d, checkpoint %d, %d records of %s: %s", m.Lane, b.Seq, b.Checkpoint, b.Records, b.Format, state))
		}
		if uint64(len(in)) != m.Seq || m.Partial != nil {
			t.Errorf("lane %s: %d audit rows, mark %+v", m.Lane, len(in), m.Mark)
		}
	}
	if end, ok := log.SealedEnd(math.MaxUint64); ok {
		for _, l := range log.Stat().Lanes {
			all = append(all, fmt.Sprintf("%s: %d sealed, not complete, up to position %s", strings.TrimPrefix(l.Name, "job/"), l.Sealed, end))
		}
	}
	return all
}
