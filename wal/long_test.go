package wal

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/campaign"
)

// TestB34LongRun writes, commits, drops and is killed, for some seconds, or for
// minutes in a campaign. Each time the log opens, all that it holds is
// read, and it has not grown.
func TestB34LongRun(t *testing.T) {
	span := 10 * time.Second
	switch {
	case campaign.Long():
		span = 5 * time.Minute
	case testing.Short():
		span = 2 * time.Second
	}
	dir, k := t.TempDir(), newTold()
	rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
	var cycles, kills int
	var most int64
	for end := time.Now().Add(span); time.Now().Before(end); cycles++ {
		life := time.Duration(200+rng.IntN(600)) * time.Millisecond
		if killed(k.runChild(t, dir, life)) {
			kills++
		}
		k.check(t, dir)
		if most = max(most, diskUse(t, dir)); most > 256<<20 {
			t.Fatalf("cycle %d: %d MiB on disk; nothing is dropped", cycles, most>>20)
		}
	}
	gens, err := filepath.Glob(filepath.Join(dir, genPrefix+"*"))
	if err != nil || len(gens) == 0 {
		t.Fatalf("no generation, %v", err)
	}
	if kills == 0 || k.completed == 0 || filepath.Base(gens[0]) == genPrefix+"00000001" {
		t.Errorf("%d kills, completed %d, oldest %s: the run shows nothing", kills, k.completed, gens[0])
	}
	t.Logf("%d cycles, %d kills, completed %d, %d generations from %s on, at most %d MiB",
		cycles, kills, k.completed, len(gens), filepath.Base(gens[0]), most>>20)
	campaign.Figures{Cycles: cycles, Faults: map[string]int{"kill -9": kills}}.Report(t)
}
