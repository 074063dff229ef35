package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/walsink/walsink/internal/campaign"
)

var (
	seeds = flag.Uint64("sim.seeds", 0, "number of seeds TestSimulation runs; 0 means the usual number")
	only  = flag.Uint64("sim.seed", 0, "the first seed; alone, the only one")
	part  = flag.Uint64("sim.range", 0, "which range of -sim.seeds seeds TestSimulation runs, from 0")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// usual is how many seeds a run of all tests has time for.
const usual = 400

// A report is the figures of a run.
type report struct {
	Seeds   uint64         `json:"seeds"`
	Crashes int            `json:"crashes"`
	Rows    int            `json:"rows"`
	Steps   int            `json:"steps"`
	Faults  map[string]int `json:"faults"`
}

func (r *report) add(o report) {
	r.Seeds += o.Seeds
	r.Crashes += o.Crashes
	r.Rows += o.Rows
	r.Steps += o.Steps
	for f, n := range o.Faults {
		r.Faults[f] += n
	}
}

// TestSimulation runs one world for each seed.
func TestSimulation(t *testing.T) {
	first, n := uint64(1), uint64(usual)
	switch {
	case *only != 0 && *seeds == 0:
		first, n = *only, 1
	case *seeds != 0:
		first, n = max(*only, 1)+*part**seeds, *seeds
	}
	if testing.Short() && *seeds == 0 {
		n = min(n, usual/5)
	}
	var mu sync.Mutex
	total := report{Faults: map[string]int{}}
	shards := uint64(runtime.GOMAXPROCS(0))
	t.Run("seeds", func(t *testing.T) {
		for shard := range min(shards, n) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed := first + shard; seed < first+n; seed += shards {
					r, _, err := simulate(t, seed, n == 1 && testing.Verbose())
					if err != nil {
						t.Errorf("seed %d: %v\nrepeat with: go test -run TestSimulation ./internal/sim -sim.seed=%d -v", seed, err, seed)
					}
					mu.Lock()
					total.add(r)
					mu.Unlock()
				}
			})
		}
	})
	campaign.Figures{Cycles: int(total.Seeds), Rows: total.Rows, Faults: total.Faults}.Report(t)
	text, err := json.Marshal(total)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() {
		fmt.Fprintf(os.Stdout, "SIM %s\n", text)
	}
}

// simulate runs the world of a seed and returns its figures and the hash of its
// trace.
func simulate(t *testing.T, seed uint64, verbose bool) (r report, trace uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			buf := make([]byte, 1<<20)
			err = fmt.Errorf("goroutines are left: %v\n%s", p, buf[:runtime.Stack(buf, true)])
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		if verbose {
			w.log = t.Logf
			t.Logf("%+v", w.cfg)
		}
		err = w.run()
		trace = w.sum()
		r = report{Seeds: 1, Crashes: w.crashes, Rows: w.rows, Steps: w.steps, Faults: maps.Clone(w.faults)}
	})
	return r, trace, err
}

// TestSameSeedSameTrace: nothing in a run hangs on chance.
func TestSameSeedSameTrace(t *testing.T) {
	n := uint64(40)
	if testing.Short() {
		n = 10
	}
	if *seeds != 0 {
		n = *seeds
	}
	for seed := max(*only, 1); seed < max(*only, 1)+n; seed++ {
		_, one, err1 := simulate(t, seed, false)
		_, two, err2 := simulate(t, seed, false)
		if one != two || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Errorf("seed %d: traces %x and %x, %v and %v", seed, one, two, err1, err2)
		}
	}
}
