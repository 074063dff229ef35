package memory

import (
	"context"
	"fmt"

	"github.com/walsink/walsink/sinks"
)

// Reconcile compares the number of records of each lane. It implements
// [sinks.Reconciler].
func (s *Sink) Reconcile(_ context.Context, lanes []sinks.LaneRows) (sinks.Reconciliation, error) {
	r := sinks.Reconciliation{Compared: []string{"the number of records of each lane"}}
	for _, l := range lanes {
		if n := uint64(len(s.store.Records(l.LaneID))); n != l.Records {
			r.Differences = append(r.Differences, sinks.Difference{
				Lane: l.LaneID, What: "records", Ledger: fmt.Sprint(l.Records), Found: fmt.Sprint(n),
			})
		}
	}
	return r, nil
}
