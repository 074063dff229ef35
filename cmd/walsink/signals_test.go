package main

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestStopperFirstSignalEndsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notes, cuts := 0, 0
		s := newStopper(t.Context(), time.Minute, func(string) { notes++ }, func() { cuts++ })
		s.signals <- syscall.SIGTERM
		<-s.ctx.Done()
		synctest.Wait()
		if !s.stopped() || notes != 1 || cuts != 0 {
			t.Fatalf("stopped %v, %d notes, %d cuts", s.stopped(), notes, cuts)
		}
		s.close()
	})
}

func TestStopperSecondSignalCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cuts := 0
		s := newStopper(t.Context(), time.Minute, func(string) {}, func() { cuts++ })
		s.signals <- os.Interrupt
		s.signals <- os.Interrupt
		synctest.Wait()
		if cuts != 1 {
			t.Fatalf("%d cuts, want 1", cuts)
		}
		s.close()
	})
}

func TestStopperWithoutSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStopper(t.Context(), time.Second, func(string) {}, func() {})
		if s.ctx.Err() != nil {
			t.Fatal("ended before close")
		}
		s.close()
		if s.stopped() || s.ctx.Err() == nil {
			t.Fatalf("stopped %v, context %v", s.stopped(), s.ctx.Err())
		}
	})
}
