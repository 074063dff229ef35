package file

import (
	"fmt"
	"os"
	"testing"

	"github.com/walsink/walsink/internal/plant"
)

// A control plants a bug and asks the kill loop to find it.
type control struct {
	bug       plant.Bug
	loseState bool
	flags     []string
}

var controls = []control{
	{bug: plant.DropBeforeCommit, flags: []string{"--generation-size", "1MiB", "--retain", "0s"}},
	{bug: plant.SkipFailure},
	{bug: plant.NoFence},
	{bug: plant.PartReset},
}

// TestControls shows that the kill loop can fail: each planted bug is caught, as a
// wrong output or as a refusal that no correct program gives.
func TestControls(t *testing.T) {
	for _, c := range controls {
		t.Run(string(c.bug), func(t *testing.T) {
			t.Parallel()
			how, n := caught(t, c)
			if how == nil {
				t.Fatalf("the planted bug was not caught in %d cycles", n)
			}
			t.Logf("caught after %d cycles: %.300s", n, how)
		})
	}
}

// caught runs the kill loop until something is wrong.
func caught(t *testing.T, c control) (how error, n int) {
	r := newRig(t, plantBuild)
	r.flags = append(append(r.flags, killFlags...), c.flags...)
	r.env = []string{"WALSINK_PLANT=" + string(c.bug)}
	k := newKiller(r, 50_000)
	for n = range cycles(200) {
		if !k.cycle() {
			return fmt.Errorf("a run refuses: %s", k.refused), n + 1
		}
		if err := r.lanes().Sound(k.in.lines); err != nil {
			return err, n + 1
		}
		if c.loseState {
			if err := os.RemoveAll(r.state); err != nil {
				t.Fatal(err)
			}
		}
	}
	return k.finish(), n + 1
}
