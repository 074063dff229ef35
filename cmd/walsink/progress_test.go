package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPulseText(t *testing.T) {
	p := pulse{records: 1707, lanes: 4}
	if got, want := p.String(), "1,707 records, 4 lanes, 0 batches pending"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	one := pulse{records: 1, lanes: 1, batches: 1, pending: 1, oldest: time.Second}
	if got, want := one.String(), "1 record, 1 lane, 1 batch pending (1 B, oldest 1s)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.batches, p.pending, p.oldest, p.checkpoint, p.since = 3, 3<<20, 2500*time.Millisecond, 7, time.Second
	if got, want := p.String(), "1,707 records, 4 lanes, 3 batches pending (3 MiB, oldest 2.5s), checkpoint 7 1s ago"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMeterWithoutTerminalLogs(t *testing.T) {
	var out bytes.Buffer
	m, interval := newMeter(&out, 100, slog.New(slog.NewTextHandler(&out, nil)))
	if interval != logInterval {
		t.Errorf("interval %v, want %v", interval, logInterval)
	}
	m.show(pulse{records: 5, lastError: "refused"})
	m.close()
	for _, want := range []string{"msg=progress", "records=5", "last_error=refused"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
}

func TestBarDraws(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out, 100)
	b.show(pulse{records: 5, bytes: 50, lanes: 1})
	b.close()
	if !strings.Contains(out.String(), "5 records, 1 lane, 0 batches") {
		t.Errorf("got %q", out.String())
	}
}

func TestWatchShowsPerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		n := uint64(0)
		stop := watch(logMeter{slog.New(slog.NewTextHandler(&out, nil))}, time.Second, func() pulse { n++; return pulse{records: n} })
		time.Sleep(3500 * time.Millisecond)
		stop()
		if got := strings.Count(out.String(), "msg=progress"); got != 3 {
			t.Errorf("%d lines, want 3:\n%s", got, out.String())
		}
	})
}
