//go:build linux

package file

import (
	"testing"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/plant"
)

// controls name the scenario that finds each planted bug. Bugs that only a power
// cut shows are not among them: a kill loses nothing that the kernel has.
var controls = []struct {
	bug   plant.Bug
	found scenario
}{
	{plant.DropBeforeCommit, killedWhileFull},
	{plant.SkipFailure, stuck},
	{plant.RetryDrops, stuckLimit},
	{plant.NoFence, frozen},
	{plant.PartReset, manyRuns},
	{plant.ReplayUpsert, inTheWay},
}

// TestControls shows that the scenarios can fail. That it is the bug that is found,
// the tests show that run the same scenarios without one.
func TestControls(t *testing.T) {
	for _, c := range controls {
		t.Run(string(c.bug), func(t *testing.T) {
			t.Parallel()
			err := c.found(t, func(t *testing.T) *rig {
				r := newRig(t, plantBuild)
				r.env = []string{"WALSINK_PLANT=" + string(c.bug)}
				return r
			})
			if err == nil {
				t.Fatal("the planted bug was not found")
			}
			t.Logf("found: %.300v", err)
			campaign.Figures{Cycles: 1, Caught: []string{string(c.bug)}}.Report(t)
		})
	}
}
