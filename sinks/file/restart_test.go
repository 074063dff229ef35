package file

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks"
)

// TestC057SweepOfACrashedAttempt lets the disk vanish at each operation of a step.
// The next attempt sweeps what the crashed one had staged, but for what a committed
// step refers to, which it publishes.
func TestC057SweepOfACrashedAttempt(t *testing.T) {
	opts := Options{Buckets: true, MaxPartBytes: 2}
	crashed := errors.New("crashed")
	committed, swept := 0, 0
	for n, done := 1, false; !done; n++ {
		dir := scratch(t)
		o := acquire(t, dir, opts)
		o.flush(batch{1, []string{inBucket("a", "1")}})
		left := n
		o.sink.fs.wrap = func(op, name string, do func() error) error {
			if left--; left <= 0 {
				return fmt.Errorf("%s %s: %w", op, name, crashed)
			}
			return do()
		}
		second := batch{2, []string{inBucket("a", "2"), inBucket("a", "3"), inBucket("b", "4")}}
		_ = o.try(second) // the error of a process that is no more
		done = left > 0
		had := parts(staging(t, dir))

		next := acquire(t, dir, opts)
		if now := parts(staging(t, dir)); len(now) > 0 {
			t.Errorf("operation %d: staging of the crashed attempt is left: %v", n, now)
		}
		want := map[string]string{"a": "1\n"}
		if next.mark.Seq == 2 {
			want = map[string]string{"a": "1\n2\n3\n", "b": "4\n"}
			committed += len(had)
		} else {
			swept += len(had)
		}
		if got := bucketsIn(t, dir); got["a"] != want["a"] || got["b"] != want["b"] {
			t.Fatalf("operation %d: mark %d with buckets %q, want %q", n, next.mark.Seq, got, want)
		}
		if next.mark.Seq == 1 {
			next.flush(second)
		}
		if got := bucketsIn(t, dir); got["a"] != "1\n2\n3\n" || got["b"] != "4\n" {
			t.Fatalf("operation %d: in the end %q", n, got)
		}
	}
	if committed == 0 || swept == 0 {
		t.Errorf("%d staged parts were committed, %d were not: the crashes show nothing", committed, swept)
	}
}

// parts are the names of staged parts and of what goes with them.
func parts(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ".publishing") })
}

// TestC064LanesShareABucket: two lanes write to one bucket, and after a restart one
// lane does. Each part has a name of its own, and none is written to again.
func TestC064LanesShareABucket(t *testing.T) {
	dir := t.TempDir()
	opts := Options{Buckets: true}
	marks := make(map[string]sinks.Mark)
	flush := func(s *Sink, name string, checkpoint uint64, recs ...string) {
		t.Helper()
		id := sinks.LaneID{Sink: "orders", Lane: name}
		l, mark, err := s.Acquire(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if last, ok := marks[name]; ok && mark.Tip() != last.Tip() {
			t.Fatalf("lane %s begins after %+v, want %+v", name, mark, last)
		}
		for i, r := range recs {
			recs[i] = inBucket("x", r)
		}
		step := stepAfter(id, mark, batch{checkpoint, recs})
		if _, err := l.Flush(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		marks[name] = step.Next
	}
	s := open(t, dir, opts)
	flush(s, "0", 1, "first", "second")
	flush(s, "1", 1, "other")
	before := visible(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, opts)
	flush(s, "0", 2, "third") // lane 1 is no more
	want := map[string]string{
		"x/orders+0+00000000000000000001+00000.ndjson": "first\nsecond\n",
		"x/orders+1+00000000000000000001+00000.ndjson": "other\n",
		"x/orders+0+00000000000000000002+00000.ndjson": "third\n",
	}
	got := visible(t, dir)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("part %s holds %q, want %q", name, got[name], text)
		}
	}
	if len(before) != 2 || len(got) != len(want) {
		t.Errorf("%d parts, then %d: %v", len(before), len(got), sortedKeys(got))
	}
}
