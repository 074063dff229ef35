//go:build plant

package committer_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/plant"
)

// TestPlantedBugs: the tests find the bugs that are planted in this package.
func TestPlantedBugs(t *testing.T) {
	run := func(bug plant.Bug, test string) error {
		cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
		cmd.Env = append(os.Environ(), "WALSINK_PLANT="+string(bug))
		return cmd.Run()
	}
	var found campaign.Figures
	for bug, test := range map[plant.Bug]string{
		plant.RetryCommit: "TestC112LostAnswerAtEveryStep",
		plant.RetryDrops:  "TestPinnedStops",
	} {
		if err := run("", test); err != nil {
			t.Fatalf("%s without a bug: %v", test, err)
		}
		if run(bug, test) == nil {
			t.Errorf("%s is not found", bug)
			continue
		}
		found.Caught = append(found.Caught, string(bug))
		found.Cycles++
	}
	found.Report(t)
}
