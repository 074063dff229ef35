package campaign_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/walsink/walsink/internal/campaign"
)

func TestAdd(t *testing.T) {
	first := campaign.Figures{Cycles: 2, Rows: 10, Faults: map[string]int{"kill": 2}, Caught: []string{"b"}}
	sum := first.Clone()
	sum.Add(campaign.Figures{Cycles: 3, Lost: 1, Duplicated: 2, Faults: map[string]int{"kill": 1, "cut": 2}, Caught: []string{"a", "b"}})
	want := campaign.Figures{
		Cycles: 5, Rows: 10, Lost: 1, Duplicated: 2,
		Faults: map[string]int{"kill": 3, "cut": 2}, Caught: []string{"a", "b"},
	}
	if !reflect.DeepEqual(sum, want) {
		t.Errorf("sum %+v, want %+v", sum, want)
	}
	if first.Faults["kill"] != 2 {
		t.Error("a copy shares its faults")
	}
}

// What is lost is in the line even if it is nothing: a reader does not have to know.
func TestNothingLostIsSaid(t *testing.T) {
	b, err := json.Marshal(campaign.Figures{Cycles: 1})
	if err != nil || string(b) != `{"cycles":1,"lost":0,"duplicated":0}` {
		t.Errorf("%s, %v", b, err)
	}
}

func TestSeed(t *testing.T) {
	t.Setenv(campaign.SeedVar, "42")
	if got := campaign.Seed(t); got != 42 {
		t.Errorf("seed %d, want 42", got)
	}
}
