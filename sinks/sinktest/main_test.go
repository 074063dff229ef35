package sinktest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A recorder is a test that may fail without failing the one that it is part of.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// record runs one case and returns its failures. A panic of the sink or of the
// suite is one that begins with "panic".
func recordCase(t *testing.T, h Harness, c testCase) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.failures = append(r.failures, fmt.Sprint("panic: ", p))
			}
		}()
		c.run(newEnv(r, h, c))
	}()
	<-done
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		f()
	}
	return r.failures
}

// harness is all that can be done to a memory store, seen through wrap.
func harness(opts memory.Options, wrap func(sinks.Sink) sinks.Sink) Harness {
	store, fault := memory.NewStore(), new(fault)
	opts.Reject = func(rec []byte) *sinks.Reject {
		if strings.HasPrefix(string(rec), "bad ") {
			return &sinks.Reject{Field: "f", Code: "c", Reason: "it is bad"}
		}
		return nil
	}
	return Harness{
		Open:    func(testing.TB) sinks.Sink { return fault.wrap(wrap(memory.Open(store, opts))) },
		Visible: func(_ testing.TB, id sinks.LaneID) [][]byte { return store.Records(id) },
		Bad:     func(_ sinks.LaneID, payload []byte) []byte { return append([]byte("bad "), payload...) },
		Binary:  true,
		DeadLetters: func(_ testing.TB, id sinks.LaneID) (out []sinks.DeadLetter) {
			for _, d := range store.DeadLetters(id) {
				out = append(out, sinks.DeadLetter{Reject: sinks.Reject{Number: d.Number}, Checkpoint: d.Checkpoint, Record: d.Record})
			}
			return out
		},
		Snapshot: func(testing.TB) func() {
			s := store.Snapshot()
			return func() { store.Restore(s, false) }
		},
		Break:       func(testing.TB) func() { return fault.set(down) },
		LoseAnswers: func(testing.TB) func() { return fault.set(mute) },
	}
}

func asIs(s sinks.Sink) sinks.Sink { return s }

// Every rule is there once, and says something.
func TestCases(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases {
		if c.rule == "" || seen[c.name] || seen[c.rule] {
			t.Errorf("case %q, rule %q", c.name, c.rule)
		}
		seen[c.name], seen[c.rule] = true, true
	}
}

// A harness that can do little skips the cases that need more, and says why.
func TestLacking(t *testing.T) {
	full := harness(memory.Options{}, asIs)
	poor := Harness{Open: func(t testing.TB) sinks.Sink { return struct{ sinks.Sink }{full.Open(t)} }, Visible: full.Visible}
	has, left, lacking := declared(t, poor), 0, 0
	for _, c := range cases {
		if c.without(has) != "" {
			left++
		} else if c.lacks(poor) != "" {
			lacking++
		} else if failures := recordCase(t, poor, c); len(failures) > 0 {
			t.Errorf("%s: %q", c.name, failures)
		}
		if c.lacks(full) != "" {
			t.Errorf("%s: %s", c.name, c.lacks(full))
		}
	}
	if left != 7 || lacking != 6 {
		t.Errorf("%d cases left out, %d lacking, of %d", left, lacking, len(cases))
	}
}
