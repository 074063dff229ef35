//go:build plant

package wal

import (
	"os"
	"os/exec"
	"testing"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/plant"
)

// TestPlantedBugs: the tests find the bugs that are planted in this package.
func TestPlantedBugs(t *testing.T) {
	run := func(bug plant.Bug) error {
		cmd := exec.Command(os.Args[0], "-test.run=TestEveryOperationFailsOnce/device")
		cmd.Env = append(os.Environ(), "WALSINK_PLANT="+string(bug))
		return cmd.Run()
	}
	if err := run(""); err != nil {
		t.Fatalf("without a bug: %v", err)
	}
	var found campaign.Figures
	for _, bug := range []plant.Bug{plant.SyncOff, plant.AckBeforeSync, plant.DropBeforeCommit} {
		if run(bug) == nil {
			t.Errorf("%s is not found", bug)
			continue
		}
		found.Caught = append(found.Caught, string(bug))
		found.Cycles++
	}
	found.Report(t)
}
