package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A pulse is what progress shows.
type pulse struct {
	records    uint64 // read in this run
	bytes      uint64
	lanes      int
	batches    int   // sealed, not in the store
	pending    int64 // their bytes
	oldest     time.Duration
	checkpoint uint64
	since      time.Duration // since that checkpoint
	lastError  string
}

// A meter shows pulses. It is used from one goroutine.
type meter interface {
	show(p pulse)
	close()
}

// Intervals between two pulses.
const (
	barInterval = 200 * time.Millisecond
	logInterval = 10 * time.Second
)

// newMeter returns a bar if w is a terminal, else a log line per interval; total
// is the size of the input in bytes, or -1.
func newMeter(w io.Writer, total int64, log *slog.Logger) (meter, time.Duration) {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return newBar(w, total), barInterval
	}
	return logMeter{log}, logInterval
}

type bar struct{ b *progressbar.ProgressBar }

func newBar(w io.Writer, total int64) *bar {
	return &bar{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionShowBytes(true),
		progressbar.OptionSetWidth(20),
		progressbar.OptionThrottle(barInterval/2),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(total > 0),
	)}
}

func (b *bar) show(p pulse) {
	b.b.Describe(p.String())
	_ = b.b.Set64(int64(p.bytes)) // a bar that cannot be drawn stops nothing
}

func (b *bar) close() { _ = b.b.Finish() }

// String is the pulse in one line.
func (p pulse) String() string {
	s := fmt.Sprintf("%s, %s, %s pending", count(p.records, "record"), count(uint64(p.lanes), "lane"), countOf(uint64(p.batches), "batch", "batches"))
	if p.batches > 0 {
		s += fmt.Sprintf(" (%s, oldest %v)", formatSize(p.pending), p.oldest.Round(100*time.Millisecond))
	}
	if p.checkpoint > 0 {
		s += fmt.Sprintf(", checkpoint %d %v ago", p.checkpoint, p.since.Round(100*time.Millisecond))
	}
	return s
}

type logMeter struct{ log *slog.Logger }

func (m logMeter) show(p pulse) {
	args := []any{
		"records", p.records, "bytes", p.bytes, "lanes", p.lanes, "pending_batches", p.batches, "pending_bytes", p.pending,
		"oldest", p.oldest.Round(time.Millisecond), "checkpoint", p.checkpoint, "checkpoint_age", p.since.Round(time.Millisecond),
	}
	if p.lastError != "" {
		args = append(args, "last_error", p.lastError)
	}
	m.log.Info("progress", args...)
}

func (m logMeter) close() {}

// watch shows a pulse per interval until stop is called, which waits.
func watch(m meter, interval time.Duration, take func() pulse) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		defer m.close()
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				m.show(take())
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-gone }
}
