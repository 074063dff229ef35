package main

import (
	"log/slog"
	"sync"
	"time"

	"github.com/walsink/walsink/committer"
)

// A nagger says that a store does not take a lane: at once, and then once per
// interval while that lasts. It is safe for concurrent use.
type nagger struct {
	log   *slog.Logger
	every time.Duration

	mu   sync.Mutex
	last map[string]time.Time // by lane
}

func newNagger(log *slog.Logger) *nagger {
	return &nagger{log: log, every: logInterval, last: map[string]time.Time{}}
}

// retrying is committer.Observer.Retrying.
func (n *nagger) retrying(lane string, r committer.Retry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.last[lane]) < n.every {
		return
	}
	n.last[lane] = now
	n.log.Warn("the store does not take it, trying again", "lane", lane, "checkpoint", r.Checkpoint, "batch", r.Batch, "attempt", r.Attempt,
		"wait", r.Wait.Round(time.Millisecond), "error", r.Err)
}
