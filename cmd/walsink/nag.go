package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/walsink/walsink/committer"
)

// A nagger says that a store does not take a lane: at once, and then once per
// interval while that lasts, and when the store takes it again. It is safe for concurrent use.
type nagger struct {
	log   *slog.Logger
	every time.Duration

	mu   sync.Mutex
	last map[string]time.Time // by lane
	down map[string]bool      // lanes of which it was said, and not yet that they are back
}

func newNagger(log *slog.Logger) *nagger {
	return &nagger{log: log, every: logInterval, last: map[string]time.Time{}, down: map[string]bool{}}
}

// retrying is committer.Observer.Retrying.
func (n *nagger) retrying(lane string, r committer.Retry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.last[lane]) < n.every {
		return
	}
	n.last[lane], n.down[lane] = now, true
	n.log.Warn("the store does not take it, trying again", "lane", lane, "checkpoint", r.Checkpoint, "batch", r.Batch, "attempt", r.Attempt,
		"wait", r.Wait.Round(time.Millisecond), "error", r.Err)
}

// flushing is committer.Observer.Flushing.
func (n *nagger) flushing(ctx context.Context, lane string, step committer.StepInfo) (context.Context, func(error)) {
	return ctx, func(err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if err == nil && n.down[lane] {
			delete(n.down, lane)
			n.log.Info("the store takes it again", "lane", lane, "checkpoint", step.Checkpoint)
		}
	}
}
