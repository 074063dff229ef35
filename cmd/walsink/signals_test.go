package main

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestStopperFirstSignalEndsTheContext(t *testing.T) {
	notes := make(chan string, 1)
	s := newStopper(t.Context(), time.Minute, func(text string) { notes <- text }, func() { t.Error("cut at the first signal") })
	defer s.close()
	s.signals <- syscall.SIGTERM
	<-s.ctx.Done()
	if note := <-notes; !s.stopped() || note != "terminated: ending within 1m0s; a second signal stops at once" {
		t.Errorf("stopped %v, %q", s.stopped(), note)
	}
}

func TestStopperSecondSignalCuts(t *testing.T) {
	noted, cut := make(chan struct{}), make(chan struct{})
	s := newStopper(t.Context(), time.Minute, func(string) { close(noted) }, func() { close(cut) })
	defer s.close()
	s.signals <- os.Interrupt
	<-noted
	s.signals <- os.Interrupt
	<-cut
}

// TestStopperTwinSignals: timeout(1) signals the process, and then its group again.
func TestStopperTwinSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := false
		s := newStopper(t.Context(), time.Minute, func(string) {}, func() { cut = true })
		s.signals <- syscall.SIGTERM
		s.signals <- syscall.SIGTERM
		time.Sleep(10 * twins)
		s.close()
		if !s.stopped() || cut {
			t.Errorf("stopped %v, cut %v", s.stopped(), cut)
		}
	})
}

func TestStopperWithoutSignal(t *testing.T) {
	s := newStopper(t.Context(), time.Second, func(string) {}, func() {})
	if s.ctx.Err() != nil {
		t.Error("ended before close")
	}
	s.close()
	if s.stopped() || s.ctx.Err() == nil {
		t.Errorf("stopped %v, context %v", s.stopped(), s.ctx.Err())
	}
}
