package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

func TestNaggerSaysItOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		n := newNagger(slog.New(slog.NewTextHandler(&out, nil)))
		r := committer.Retry{Kind: sinks.Transient, Err: errors.New("full"), Wait: time.Second}
		for range 25 {
			n.retrying("000", r)
			n.retrying("001", r)
			time.Sleep(time.Second)
		}
		if got := strings.Count(out.String(), "lane=000"); got != 3 {
			t.Errorf("%d lines for lane 000 in 25 s, want 3:\n%s", got, out.String())
		}
		if got := strings.Count(out.String(), "lane=001"); got != 3 {
			t.Errorf("%d lines for lane 001, want 3", got)
		}
		out.Reset()
		for _, err := range []error{errors.New("stopped"), nil, nil} {
			_, done := n.flushing(t.Context(), "000", committer.StepInfo{Checkpoint: 7})
			done(err)
		}
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO") || !strings.Contains(got, "takes it again") {
			t.Errorf("lane 000 is back: %q, want one line", got)
		}
	})
}
