package committer_test

import (
	"slices"
	"testing"

	"github.com/walsink/walsink/committer"
)

func TestC001ThreeRounds(t *testing.T) {
	w := newWorld(t)
	if o := w.open(); o.Outcome != committer.Covered {
		t.Fatalf("a new lane is %v", o.Outcome)
	}
	for i := range 3 {
		w.add(uint64(i+1), recs(i*20+1, i*20+20)...)
	}
	w.drain()
	w.want(recs(1, 60)...)
}

func TestC046FlushedAtOpen(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.close()
	w.log.add(key, 1, recs(1, 10)...)
	if o := w.open(); o.Outcome != committer.Connected {
		t.Fatalf("outcome %v", o.Outcome)
	}
	w.drain()
	w.want(recs(1, 10)...)
	if !slices.Equal(w.log.commits, []uint64{1}) {
		t.Fatalf("commits %v", w.log.commits)
	}
}
