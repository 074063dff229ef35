package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/walsink/walsink/sinks"
)

// How a store is waited for.
const (
	shortWait = 500 * time.Millisecond // between the first two attempts
	longWait  = 15 * time.Second       // between any two
	// tryTime bounds one attempt: a host that swallows packets is not heard of otherwise.
	tryTime = 30 * time.Second
	// nameTime is how long a host name that nobody knows may be about to be made.
	nameTime = 10 * time.Second
)

// A waiter opens a store that may not be up yet.
type waiter struct {
	limit time.Duration // 0 for none
	log   *slog.Logger
	where string
}

// until calls open until it returns no error, or one that waiting does not mend, or the
// limit has passed, or ctx ends.
func (w waiter) until(ctx context.Context, open func(context.Context) error) error {
	start := time.Now()
	pause := shortWait
	for attempt := 1; ; attempt++ {
		err := tried(ctx, open)
		waited := time.Since(start)
		switch {
		case err == nil:
			if attempt > 1 {
				w.log.Info("the store answers", "store", w.where, "attempts", attempt, "waited", waited.Round(time.Millisecond))
			}
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for the store: %w", err)
		case !mends(err, waited):
			return err
		case w.limit > 0 && waited >= w.limit:
			return fmt.Errorf("not reached within --wait-store %v: %w", w.limit, err)
		}
		if w.limit > 0 {
			pause = min(pause, w.limit-waited)
		}
		w.log.Warn("the store cannot be reached, trying again", "store", w.where, "attempt", attempt, "wait", pause.Round(time.Millisecond), "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the store: %w", err)
		}
		pause = min(2*pause, longWait)
	}
}

// tried calls open once, with a time limit.
func tried(ctx context.Context, open func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	return open(ctx)
}

// mends reports whether an error at the start may pass by itself. What the store
// answers is its adapter's to judge; a certificate that is refused, or a name that
// stays unknown, is a mistake.
func mends(err error, waited time.Duration) bool {
	e, ok := errors.AsType[*sinks.Error](err)
	if !ok {
		return false
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound && waited >= nameTime {
		return false
	}
	if isA[*tls.CertificateVerificationError](err) || isA[x509.UnknownAuthorityError](err) || isA[x509.HostnameError](err) ||
		isA[tls.RecordHeaderError](err) {
		return false
	}
	return e.Kind == sinks.Transient || e.Kind == sinks.Ambiguous || e.Kind == sinks.Cancelled
}
