package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/walsink/walsink/sinks"
)

// openWaiting opens the store of a run, waiting for it if need be, and looks at what it
// really does.
func (t target) openWaiting(ctx context.Context, w waiter, sample sampler) (o opened, found []sinks.Finding, err error) {
	err = w.until(ctx, func(ctx context.Context) error {
		if o, err = t.open(ctx, sample); err != nil {
			return err
		}
		if found, err = probe(ctx, o.sink); err != nil {
			return errors.Join(&storeError{err}, o.sink.Close())
		}
		return nil
	})
	return o, found, err
}

// probe is what a sink finds out about its store; nothing if it cannot.
func probe(ctx context.Context, sink sinks.Sink) ([]sinks.Finding, error) {
	p, ok := sink.(sinks.Prober)
	if !ok {
		return nil, nil
	}
	return p.Probe(ctx)
}

// warn logs what makes a run promise less.
func warn(log *slog.Logger, store string, found []sinks.Finding) {
	for _, f := range found {
		if f.Refuse || f.Guarantee < sinks.ExactlyOnce {
			log.Warn("the store promises less than exactly-once", "store", store, "check", f.Subject, "found", f.Found, "change", f.Advice)
		}
	}
}
