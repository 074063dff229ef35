package pipeline

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/sources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbers returns n records {"key":"kI","n":I} with so many keys.
func numbers(name string, n, keys int) []string {
	recs := make([]string, n)
	for i := range recs {
		recs[i] = fmt.Sprintf(`{"src":%q,"key":"k%d","n":%d}`, name, i%keys, i)
	}
	return recs
}

func input(name string, recs []string) Input {
	return Input{Name: name, Source: sources.Lines(recs...)}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestOneSourceToOneOutput(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		t.Run(fmt.Sprintf("lanes=%d", lanes), func(t *testing.T) {
			store, recs := newFakeStore(), numbers("a", 5000, 7)
			p := &Pipeline{
				Sources: []Input{input("a", recs)}, Outputs: []Sink{store.sink("out")}, Lanes: lanes, Route: ByField("key"),
				Checkpoints: checkpoint.Options{Records: 500}, Logger: quiet(),
			}
			sum, err := p.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := store.all(); !slices.Equal(sorted(got), sorted(recs)) {
				t.Fatalf("store has %d records, want %d", len(got), len(recs))
			}
			if lanes == 1 && !slices.Equal(store.all(), recs) {
				t.Error("one lane does not keep the order")
			}
			if sum.Records != 5000 || sum.Checkpoints != 10 || sum.Last != 10 || !sum.Ended {
				t.Errorf("summary %+v", sum)
			}
			again := &Pipeline{
				Sources: []Input{input("a", recs)}, Outputs: []Sink{store.sink("out")}, Lanes: lanes, Route: ByField("key"), Logger: quiet(),
			}
			sum, err = again.Run(t.Context())
			if err != nil || sum.Records != 0 || sum.Skipped != 5000 || sum.Checkpoints != 0 {
				t.Errorf("second run: %+v, %v", sum, err)
			}
		})
	}
}
