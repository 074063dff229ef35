// Package campaign is how tests take part in a long campaign, which tools/campaign
// runs: whether their long form is asked for, which seed they take, and what they
// report.
//
// The environment says the first two: WALSINK_CAMPAIGN=1 asks for the long form,
// WALSINK_SEED=n repeats a run. A report is one line of the test's log, the word
// CAMPAIGN and [Figures] as JSON.
package campaign

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// The environment of a campaign.
const (
	LongVar = "WALSINK_CAMPAIGN" // not empty: the long form
	SeedVar = "WALSINK_SEED"     // a decimal number
)

// Mark is the word before the figures in the log of a test.
const Mark = "CAMPAIGN "

// Figures are what a test has done. Those of several runs add up.
type Figures struct {
	// Cycles counts what the test repeats: kills, cuts, faults, seeds. A cycle counts
	// only if its outcome was looked at.
	Cycles int `json:"cycles"`
	// Rows counts records that were compared with what they have to be.
	Rows int `json:"rows,omitempty"`
	// Faults counts what was done to the program, by kind.
	Faults map[string]int `json:"faults,omitempty"`
	// Lost and Duplicated count records that are missing or there more than once.
	Lost       int `json:"lost"`
	Duplicated int `json:"duplicated"`
	// Caught names planted bugs that were found.
	Caught []string `json:"caught,omitempty"`
}

// Add adds the figures of another run.
func (f *Figures) Add(g Figures) {
	f.Cycles += g.Cycles
	f.Rows += g.Rows
	f.Lost += g.Lost
	f.Duplicated += g.Duplicated
	for kind, n := range g.Faults {
		if f.Faults == nil {
			f.Faults = map[string]int{}
		}
		f.Faults[kind] += n
	}
	f.Caught = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(f.Caught), g.Caught...))))
}

// Clone returns a copy that shares nothing with f.
func (f Figures) Clone() Figures {
	f.Faults, f.Caught = maps.Clone(f.Faults), slices.Clone(f.Caught)
	return f
}

// Report writes the figures to the log of the test.
func (f Figures) Report(t testing.TB) {
	t.Helper()
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(Mark + string(b))
}

// Long reports whether the long form of tests is asked for.
func Long() bool { return os.Getenv(LongVar) != "" }

// Seed returns the seed that the environment names, or else one of the clock. It is
// written to the log of the test.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(SeedVar); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedVar, err)
		}
	}
	t.Logf("seed %d; %s=%[1]d repeats it", seed, SeedVar)
	return seed
}
