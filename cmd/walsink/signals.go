package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// twins is how long after the first signal another one is the same: timeout(1) sends
// one to the process and one to its group.
const twins = 50 * time.Millisecond

// errStopped is the cause that ends the context of a [stopper].
var errStopped = errors.New("stopped by a signal")

// A stopper ends its context at the first SIGINT, SIGTERM or SIGHUP: no further input is
// taken, and what was read is to go to the store within a bound.
type stopper struct {
	ctx     context.Context
	signals chan os.Signal
	done    chan struct{}
	gone    chan struct{}
}

// newStopper returns a stopper that takes signals until close. Shortly after the first
// one note is called; at one after that cut, which is to end the process.
func newStopper(parent context.Context, bound time.Duration, note func(string), cut func()) *stopper {
	ctx, stop := context.WithCancelCause(parent)
	s := &stopper{ctx: ctx, signals: make(chan os.Signal, 2), done: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		defer close(s.gone)
		defer stop(context.Canceled)
		s.watch(bound, note, stop, cut)
	}()
	return s
}

// listen sends it the signals of the process.
func (s *stopper) listen() *stopper {
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		signal.Notify(s.signals, syscall.SIGHUP)
	}
	return s
}

func (s *stopper) watch(bound time.Duration, note func(string), stop context.CancelCauseFunc, cut func()) {
	var first os.Signal
	select {
	case first = <-s.signals:
		stop(errStopped)
	case <-s.done:
		return
	}
	for settled := time.After(twins); settled != nil; {
		select {
		case <-s.signals:
		case <-settled:
			settled = nil
		case <-s.done:
			return
		}
	}
	note(fmt.Sprintf("%v: ending within %v; a second signal stops at once", first, bound))
	select {
	case <-s.signals:
		cut()
	case <-s.done:
	}
}

// stopped reports whether a signal came.
func (s *stopper) stopped() bool { return errors.Is(context.Cause(s.ctx), errStopped) }

// close stops listening and waits for the goroutine. The context ends.
func (s *stopper) close() {
	signal.Stop(s.signals)
	close(s.done)
	<-s.gone
}

// cut ends the process at the second signal. It is no worse than a kill, which is
// harmless at any instant.
func (a *app) cut() {
	os.Exit(int(a.report(fmt.Errorf("%w: second signal, not waiting for the store", errStopped))))
}
