//go:build plant

package file

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/plant"
)

// The bugs that are planted in this package are found by the tests of this package.
func TestPlantedBugsAreFound(t *testing.T) {
	cuts := func(bug plant.Bug) error {
		return errors.Join(
			powerCuts(t, "ext4", 1, false, "WALSINK_PLANT="+string(bug)),
			powerCuts(t, "ext4", 1, true, "WALSINK_PLANT="+string(bug)))
	}
	frozen := func(bug plant.Bug) error {
		for n := 1; n < 120; n++ {
			if err := frozenPlanted(t, n, bug); err != nil {
				return fmt.Errorf("operation %d: %w", n, err)
			}
		}
		return nil
	}
	for bug, find := range map[plant.Bug]func(plant.Bug) error{
		plant.RenameNoSync: cuts,
		plant.NoDirSync:    cuts,
		plant.NoFence:      frozen,
		plant.ReplayUpsert: frozen,
		plant.PartReset: func(bug plant.Bug) error {
			t.Setenv("WALSINK_PLANT", string(bug))
			return newSource(3).run(scratch(t), Options{}, nil)
		},
	} {
		t.Run(string(bug), func(t *testing.T) {
			err := find(bug)
			os.Unsetenv("WALSINK_PLANT")
			if err == nil {
				t.Fatal("not found")
			}
			t.Log(err)
			campaign.Figures{Cycles: 1, Caught: []string{string(bug)}}.Report(t)
		})
	}
}

func frozenPlanted(t *testing.T, n int, bug plant.Bug) error {
	t.Setenv("WALSINK_PLANT", string(bug))
	count := 0
	return frozenTrial(t, scratch(t), 2, false, func(at operation) operation {
		return func(op, name string, do func() error) error {
			if count++; count != n {
				return do()
			}
			return at(op, name, do)
		}
	})
}
