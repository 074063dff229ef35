// Command campaign runs the long forms of the tests, slice by slice, until its
// budget of time is used up, and sums up what was done:
//
//	campaign [-budget 1h] [-seed 1] [-dir out/campaign] [-docs docs] [-only text]
//
// It goes on where it stopped when it is started again with the same directory, and
// the figures add up. The runs of a slice have ascending seeds, from the one that is
// given. A slice that fails is left out until the next start, which repeats it first,
// with its seed; its output stays in the directory. One whose seeds are ranges, as those
// of the simulation, goes on with the next range, and is left out when five have failed. The summary goes to campaign.json and,
// as a table, into reliability.md of the -docs directory.
//
// It exits with 1 if a record was lost or duplicated, or a slice has failed, a
// planted bug that was not found included, and has not passed with that seed since.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	budget := flag.Duration("budget", time.Hour, "start no slice after this `time`")
	seed := flag.Uint64("seed", 1, "seed of the first run of each slice")
	dir := flag.String("dir", "out/campaign", "`directory` for journal and output")
	docs := flag.String("docs", "docs", "`directory` of campaign.json and reliability.md")
	only := flag.String("only", "", "only slices with this `text` in their name")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	end := time.Now().Add(*budget)
	r := &runner{plan: plan, only: *only, dir: *dir, commit: commit(), seed: *seed, out: os.Stdout}
	ok, err := r.campaign(ctx, func() bool { return time.Now().Before(end) }, *docs)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// campaign runs slices as long as more says so, writes the summary, and reports whether all is well.
func (r *runner) campaign(ctx context.Context, more func() bool, docs string) (bool, error) {
	if err := r.open(); err != nil {
		return false, err
	}
	if err := r.runAll(ctx, more); err != nil {
		return false, err
	}
	sum := r.report()
	if err := sum.write(docs); err != nil {
		return false, err
	}
	reached := 0
	for _, s := range sum.Slices {
		if s.Achieved {
			reached++
		}
	}
	bad := len(r.unresolved())
	fmt.Fprintf(r.out, "%d of %d goals, %d lost, %d duplicated, %d of %d planted bugs found, %d slices failed, %.1f hours\n",
		reached, len(sum.Slices), sum.Lost, sum.Twice, len(sum.Caught), sum.Controls, bad, sum.Hours)
	return bad == 0 && sum.Lost == 0 && sum.Twice == 0, nil
}

// commit is the commit that the working tree is at, with a plus sign if it differs.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	id := strings.TrimSpace(string(out))
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", "*.go", "go.mod").Run() != nil {
		id += "+"
	}
	return id
}
