package wal

import (
	"fmt"
	"testing"

	"github.com/walsink/walsink/record"
)

// A crash at each operation of a start from the ledger: one lane holds all it had,
// the other was set to another history. Afterwards the log says that it does not
// know where the source resumes, or is where Rewind was to bring it; and no lane
// counts as damaged.
func TestCrashInRewind(t *testing.T) {
	for _, power := range []bool{false, true} {
		for n := 1; ; n++ {
			if crashInRewind(t, n, power) {
				break
			}
		}
	}
}

func crashInRewind(t *testing.T, n int, power bool) (through bool) {
	m := newMemory()
	opts := Options{GenerationBytes: 1 << 20, Retain: -1, Logger: quiet, backend: m}
	dir := t.TempDir()
	l := mustOpen(t, dir, opts)
	for c := range uint64(6) {
		appendSeal(t, l, "s/a", c+1, fmt.Sprint(c))
		if err := l.Complete(c+1, fmt.Append(nil, c+1)); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit("s/a", c+1); err != nil {
			t.Fatal(err)
		}
	}
	m.mu.Lock()
	start := len(m.ops)
	m.failAt, m.failErr, m.sticky = start+n, errInjected, true
	m.mu.Unlock()
	err := l.Reset("s/b", record.Head{Seq: 3, Chain: record.Genesis("x", "y"), Checkpoint: 3})
	reset := err == nil
	if err == nil {
		err = l.Rewind(3, []byte("3"))
	}
	through = err == nil
	left := m.kill()
	if power {
		left = m.powerCut(n % 3)
	}
	l.Close()

	opts.backend = left
	l = mustOpen(t, dir, opts)
	name := fmt.Sprintf("operation %d, power cut %v, %v", n, power, err)
	c, position := l.Completed()
	switch {
	case through && (c != 3 || l.Restarted()):
		t.Errorf("%s: completed is %d", name, c)
	case c == 3 && string(position) == "3":
	case c != 6:
		t.Errorf("%s: completed is %d", name, c)
	case reset && !l.Restarted():
		t.Errorf("%s: the lane was reset, and nobody knows", name)
	}
	if err := l.Truncate(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for range 2 {
		s := l.Stat()
		if len(s.Damage) > 0 {
			t.Errorf("%s: damage %v", name, s.Damage)
		}
		for _, ln := range s.Lanes {
			if ln.Broken != nil {
				t.Errorf("%s: lane %s: %v", name, ln.Name, ln.Broken)
			}
		}
		l = reopen(t, l)
	}
	l.Close()
	return through || t.Failed()
}
