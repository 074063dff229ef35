package committer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

// A diary notes what its observer is told.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) observer() committer.Observer {
	return committer.Observer{
		Flushing: func(ctx context.Context, lane string, s committer.StepInfo) (context.Context, func(error)) {
			d.note("begin %s %d-%d %d", lane, s.First, s.Last, s.Records)
			return ctx, func(err error) { d.note("end %v", err != nil) }
		},
		Flushed: func(_ string, s committer.StepInfo, _ time.Duration) {
			d.note("in %d dead %d settled %v", s.Records, s.Dead, s.Settled)
		},
		Dead: func(_ string, n uint64, r sinks.Reject) { d.note("dead %d %s", n, r.Code) },
		Retrying: func(_ string, r committer.Retry) {
			d.note("retry %v %d checkpoint %d batch %d", r.Kind, r.Attempt, r.Checkpoint, r.Batch)
		},
		Stopped: func(_ string, err error) { d.note("stopped %v", errors.Is(err, committer.ErrClosed)) },
	}
}

func TestObserverIsToldInOrder(t *testing.T) {
	w := newWorld(t)
	var a, b diary
	w.opts.Observer = committer.Observers(committer.Observer{}, a.observer(), committer.Observer{}, b.observer())
	w.opts.DeadLetters = true
	w.open()
	w.sink.flush = func(n int, _ *sinks.Step) fault {
		switch n {
		case 1:
			return fault{err: &sinks.Error{Kind: sinks.Transient}}
		case 2:
			return fault{err: &sinks.Error{Kind: sinks.Poison, Bad: []sinks.Reject{{Number: 1, Code: "22P02"}}}}
		case 4:
			return fault{err: &sinks.Error{Kind: sinks.Ambiguous}, after: true}
		case 5:
			return fault{err: &sinks.Error{Kind: sinks.Permanent}}
		}
		return fault{}
	}
	w.add(3, "x", "y", "z")
	w.drain()
	w.add(4, "u")
	w.drain()
	w.add(5, "v")
	<-w.c.Failed()
	w.close()
	want := []string{
		"begin a 1-1 3", "retry transient 1 checkpoint 3 batch 1", "end false",
		"begin a 1-1 2", "in 2 dead 1 settled false", "dead 3 22P02", "end false",
		"begin a 2-2 1", "in 1 dead 0 settled true", "end false",
		"begin a 3-3 1", "end true", "stopped false",
	}
	if !slices.Equal(a.lines, want) {
		t.Errorf("the first was told\n%s\nwant\n%s", strings.Join(a.lines, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(b.lines, want) {
		t.Errorf("the second was told\n%s", strings.Join(b.lines, "\n"))
	}
}

// The context that Flushing returns is that of the sink's calls, for that step.
func TestObserverGivesTheContext(t *testing.T) {
	type mark struct{}
	w := newWorld(t)
	n, seen := 0, []any(nil)
	w.opts.Observer.Flushing = func(ctx context.Context, _ string, _ committer.StepInfo) (context.Context, func(error)) {
		n++
		return context.WithValue(ctx, mark{}, n), func(error) {}
	}
	w.open()
	w.sink.flush = func(n int, _ *sinks.Step) fault {
		if n%2 == 0 {
			return fault{}
		}
		return fault{block: func(ctx context.Context) error {
			seen = append(seen, ctx.Value(mark{}))
			return &sinks.Error{Kind: sinks.Transient}
		}}
	}
	w.add(1, "x")
	w.drain()
	w.add(2, "y")
	w.drain()
	w.close()
	if !slices.Equal(seen, []any{1, 2}) {
		t.Errorf("the sink got the contexts of steps %v", seen)
	}
}

// What is in the store and the log does not know of is counted when a lane opens.
func TestSkippedRecordsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.add(1, "x", "y")
	w.drain()
	w.close()
	w.log.lane(key).committed = 0
	w.open()
	if st := w.status(); st.Skipped != 2 || st.Records != 0 {
		t.Errorf("status %+v", st)
	}
}

// Each line has the coordinates of its batch.
func TestLogLinesHaveCoordinates(t *testing.T) {
	w := newWorld(t)
	var out bytes.Buffer
	w.opts.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.open()
	w.sink.flush = func(n int, _ *sinks.Step) fault {
		return fault{err: map[int]error{1: kind(sinks.Transient), 3: kind(sinks.Permanent)}[n]}
	}
	w.add(7, "x")
	w.drain()
	w.add(8, "y")
	<-w.c.Failed()
	w.close()
	for msg, at := range map[string]string{
		"lane open": "checkpoint=0 batch=0", "trying again": "checkpoint=7 batch=1", "flushed": "checkpoint=7 batch=1",
		"lane stopped": "checkpoint=8 batch=2",
	} {
		i := strings.Index(out.String(), "msg=\""+msg)
		i = max(i, strings.Index(out.String(), "msg="+msg))
		line, _, _ := strings.Cut(out.String()[max(i, 0):], "\n")
		if i < 0 || !strings.Contains(line, "output=orders lane=a "+at) {
			t.Errorf("%q: %s", msg, line)
		}
	}
}
