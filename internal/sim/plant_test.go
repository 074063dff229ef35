//go:build plant

package sim

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/walsink/walsink/internal/plant"
)

// TestPlantedBugs: the simulation finds the bugs that are planted in the core, and
// those of a log or a sink as the simulated ones have them, within so many seeds.
func TestPlantedBugs(t *testing.T) {
	run := func(bug plant.Bug, seeds int) ([]byte, error) {
		cmd := exec.Command(os.Args[0], "-test.run=TestSimulation", fmt.Sprintf("-sim.seeds=%d", seeds))
		cmd.Env = append(os.Environ(), "WALSINK_PLANT="+string(bug))
		return cmd.CombinedOutput()
	}
	if out, err := run("", 300); err != nil {
		t.Fatalf("without a bug: %v\n%s", err, out)
	}
	for bug, seeds := range map[plant.Bug]int{
		plant.AckBeforeSync:    1200,
		plant.SyncOff:          100,
		plant.DropBeforeCommit: 100,
		plant.SkipFailure:      100,
		plant.LedgerApart:      100,
		plant.NoFence:          200,
		plant.RetryCommit:      200,
	} {
		t.Run(string(bug), func(t *testing.T) {
			if _, err := run(bug, seeds); err == nil {
				t.Errorf("not found in %d seeds", seeds)
			}
		})
	}
}
