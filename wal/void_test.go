package wal

import (
	"fmt"
	"strings"
	"testing"
)

// A crash at each operation of Void: what is left of the lane are its first batches,
// whole and in order, those before the void ones among them, and the lane is not
// damaged. Once Void has returned none of the void ones comes back, and the lane goes
// on behind what is left.
func TestCrashInVoid(t *testing.T) {
	for _, power := range []bool{false, true} {
		for n := 1; ; n++ {
			if crashInVoid(t, n, power) {
				break
			}
		}
	}
}

func crashInVoid(t *testing.T, n int, power bool) (through bool) {
	const all, from = 7, 4
	m := newMemory()
	opts := Options{GenerationBytes: 1 << 20, Logger: quiet, backend: m}
	dir := t.TempDir()
	l := mustOpen(t, dir, opts)
	for c := range uint64(all) {
		appendSeal(t, l, "s/a", c+1, fmt.Sprint(c))
		if err := l.Complete(c+1, fmt.Append(nil, c+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Commit("s/a", 2); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	m.failAt, m.failErr, m.sticky = len(m.ops)+n, errInjected, true
	m.mu.Unlock()
	err := l.Void("s/a", from)
	through = err == nil
	left := m.kill()
	if power {
		left = m.powerCut(n % 3)
	}
	l.Close()

	opts.backend = left
	l = mustOpen(t, dir, opts)
	defer l.Close()
	name := fmt.Sprintf("operation %d, power cut %v, %v", n, power, err)
	if s := l.Stat(); len(s.Damage) > 0 || s.Lanes[0].Broken != nil {
		t.Errorf("%s: damage: %v, lane: %v", name, s.Damage, s.Lanes[0].Broken)
	}
	held := l.Batches("s/a")
	head, _, _ := l.Head("s/a")
	if len(held) == 0 || held[len(held)-1].Chain() != head.Chain {
		t.Fatalf("%s: %d batches, head %+v", name, len(held), head)
	}
	if len(held) < from-1 || through && len(held) != from-1 {
		t.Errorf("%s: %d batches are left", name, len(held))
	}
	if len(held) < all && !l.Restarted() {
		t.Errorf("%s: batches are gone, and the source does not go back", name)
	}
	appendSeal(t, l, "s/a", all+1, "next")
	if err := l.Complete(all+1, nil); err != nil {
		t.Fatal(err)
	}
	if got := l.Batches("s/a"); got[len(got)-1].Prev != head.Chain || got[len(got)-1].Seq != head.Seq+1 {
		t.Errorf("%s: the next batch is %+v, behind %+v", name, got[len(got)-1], head)
	}
	return through
}

func TestVoidRefuses(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Options{GenerationBytes: 1 << 20, Logger: quiet, backend: newMemory()})
	defer l.Close()
	for c := range uint64(3) {
		appendSeal(t, l, "s/a", c+1, fmt.Sprint(c))
	}
	if err := l.Complete(3, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Commit("s/a", 1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		lane string
		seq  uint64
		want string
	}{
		{"s/b", 1, "does not know it"},
		{"s/a", 1, "the store has the batches up to 1"},
		{"s/a", 4, "does not hold it"},
	} {
		if err := l.Void(c.lane, c.seq); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Void(%s, %d): %v, want %q", c.lane, c.seq, err, c.want)
		}
	}
	for range l.Blocks("s/a", 2) {
		if err := l.Void("s/a", 2); err == nil || !strings.Contains(err.Error(), "being read") {
			t.Errorf("Void of a batch that is read: %v", err)
		}
	}
	if got := len(l.Batches("s/a")); got != 3 || l.Restarted() {
		t.Errorf("%d batches after refusals, want 3; restarted %v", got, l.Restarted())
	}
}
