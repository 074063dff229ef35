package sinktest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

const childVariable = "SINKTEST_CHILD"

// TestChild is what TestRun looks at from outside.
func TestChild(t *testing.T) {
	switch os.Getenv(childVariable) {
	case "":
		return
	case "good":
		Run(t, harness(memory.Options{}, asIs))
	case "poor":
		full := harness(memory.Options{}, asIs)
		Run(t, Harness{Open: full.Open, Visible: full.Visible})
	case "broken":
		Run(t, newShelf().harness(mistake{check: func(stored sinks.Mark, _ uint64, prev sinks.Mark) sinks.Kind {
			return verdict(stored, stored.Fence, prev)
		}}))
	case "nothing":
		Run(t, Harness{})
	}
}

// TestRun sees what an author sees: which case failed, its rule, and the counts.
func TestRun(t *testing.T) {
	for child, want := range map[string][]string{
		"good":    {"--- PASS: TestChild/Kill", "Partial is left out: not declared: Chunked", "34 cases run, 0 skipped, 2 not declared"},
		"poor":    {"--- SKIP: TestChild/Poison", "the harness has no Harness.Bad", "26 cases run, 7 skipped, 3 not declared"},
		"broken":  {"--- FAIL: TestChild/Fence ", "--- FAIL: TestChild/FenceInFlight", "--- PASS: TestChild/Order", "the rule: from the return of Acquire"},
		"nothing": {"the harness needs Open and Visible"},
	} {
		t.Run(child, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
			cmd.Env = append(os.Environ(), childVariable+"="+child)
			out, err := cmd.CombinedOutput()
			if fails := child == "broken" || child == "nothing"; fails != (err != nil) {
				t.Errorf("the child ends with %v", err)
			}
			for _, text := range want {
				if !strings.Contains(string(out), text) {
					t.Errorf("not in the output: %s", text)
				}
			}
			if t.Failed() || strings.Contains(string(out), "panic") {
				t.Errorf("the output:\n%s", out)
			}
		})
	}
}
