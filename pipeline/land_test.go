package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/wal"
)

// landed returns the records of a memory store, lane by lane.
func landed(t *testing.T, store *memory.Store) []string {
	t.Helper()
	var all []string
	for i := range maxLanes {
		recs := store.Records(sinks.LaneID{Sink: "job", Lane: laneName(i)})
		for _, r := range recs {
			all = append(all, string(r))
		}
	}
	return all
}

var errCrash = errors.New("crash")

func options(dir, id string) walsink.Options {
	return walsink.Options{Dir: dir, ID: id, Logger: quiet(), CarryEvery: 5, Log: wal.Options{GenerationBytes: 1 << 20, Logger: quiet()}}
}

// TestLandCrashes runs over a real log and the memory sink, and ends each run
// without a final checkpoint at a random record, changes the number of lanes, and
// loses the log now and then.
func TestLandCrashes(t *testing.T) {
	recs := numbers("a", 3000, 13)
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			dir, store := filepath.Join(t.TempDir(), "state"), memory.NewStore()
			for cycle := 0; ; cycle++ {
				if cycle > 60 {
					t.Fatal("no progress")
				}
				src := &brokenSource{Source: input("a", recs).Source, left: 1 + rng.IntN(3600)}
				p := &Pipeline{
					Sources: []Input{{Name: "a", Source: src}},
					Outputs: []Sink{Walsink("out", memory.Open(store, memory.Options{}), options(dir, "job"), nil)},
					Lanes:   1 + rng.IntN(4), Route: ByField("key"),
					Checkpoints: checkpoint.Options{Records: uint64(20 + rng.IntN(100))}, Logger: quiet(),
				}
				_, err := p.Run(t.Context())
				if err == nil {
					break
				}
				if !errors.Is(err, errCrash) {
					t.Fatalf("cycle %d: %v", cycle, err)
				}
				if rng.IntN(3) == 0 {
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := landed(t, store)
			slices.Sort(got)
			if want := sorted(recs); !slices.Equal(got, want) {
				t.Fatalf("store has %d records, want %d: %s", len(got), len(want), diff(got, want))
			}
		})
	}
}

func diff(got, want []string) string {
	count := map[string]int{}
	for _, r := range got {
		count[r]++
	}
	for _, r := range want {
		count[r]--
	}
	var b strings.Builder
	for r, n := range count {
		if n != 0 {
			fmt.Fprintf(&b, "%+d %s; ", n, r)
		}
		if b.Len() > 300 {
			break
		}
	}
	return b.String()
}
