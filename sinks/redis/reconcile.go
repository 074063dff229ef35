package redis

import (
	"context"

	"github.com/walsink/walsink/sinks"
)

// Reconcile implements [sinks.Reconciler]: it says that there is nothing to compare. A key
// does not tell which records wrote it, nor how often.
func (s *Sink) Reconcile(context.Context, []sinks.LaneRows) (sinks.Reconciliation, error) {
	return sinks.Reconciliation{Unchecked: []string{"keys of Redis: a key does not tell which records wrote it"}}, nil
}
