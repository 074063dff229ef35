package postgres_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/plant"
)

// TestPlantedBugsAreFound runs tests of this package in a build that has a bug of
// the sink switched on, and wants them to fail.
func TestPlantedBugsAreFound(t *testing.T) {
	if os.Getenv("WALSINK_PLANT") != "" {
		t.Skip("this is the build with a bug")
	}
	bin := build(t, "plant")
	for bug, test := range map[plant.Bug]string{
		plant.NoFence:      "TestC112TipDecidesWhoeverWrites",
		plant.LedgerApart:  "TestP27AnswerOfCommitIsLost",
		plant.ReplayUpsert: "TestE11ReplayLeavesLaterChangesAlone",
		plant.LeakPassword: "TestSecretsStayOut",
	} {
		t.Run(string(bug), func(t *testing.T) {
			cmd := exec.Command(bin, "-test.run", "^"+test+"$", "-test.v")
			cmd.Env = append(os.Environ(), "WALSINK_PLANT="+string(bug))
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: "+test) {
				t.Fatalf("%s does not find the bug: %v\n%s", test, err, out)
			}
			campaign.Figures{Cycles: 1, Caught: []string{string(bug)}}.Report(t)
		})
	}
}
