package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/walsink/walsink/internal/campaign"
)

// A run is one run of a slice, as the journal keeps it.
type run struct {
	Slice   string           `json:"slice"`
	Seed    uint64           `json:"seed"`
	Commit  string           `json:"commit"`
	Seconds float64          `json:"seconds"`
	Passed  bool             `json:"passed"`
	Figures campaign.Figures `json:"figures"`
	Log     string           `json:"log"`
}

// A runner runs slices and keeps what came of it in a directory: a journal, one
// line of JSON for each run, and the output of each. Whoever opens the directory
// again goes on where it stopped.
type runner struct {
	plan   []slice
	only   string // slices whose name has it; the others are not run
	dir    string
	commit string
	seed   uint64 // of the first run of each slice
	out    io.Writer

	runs   []run
	failed map[string]int // runs that failed since the start, by slice
}

func (r *runner) journal() string { return filepath.Join(r.dir, "journal") }

// open reads the journal. A last line that is cut is no run.
func (r *runner) open() error {
	r.failed = map[string]int{}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(r.journal())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	for line := range bytes.Lines(data) {
		var one run
		if err := json.Unmarshal(line, &one); err != nil {
			return fmt.Errorf("%s: %w: %s", r.journal(), err, line)
		}
		r.runs = append(r.runs, one)
	}
	return os.WriteFile(r.journal(), data, 0o600)
}

// keep adds a run to the journal.
func (r *runner) keep(one run) error {
	line, err := json.Marshal(one)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.journal(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	r.runs = append(r.runs, one)
	return nil
}

// runAll runs slices as long as more says so and ctx has not ended. What has failed, and has
// not passed with the same seed since, is repeated first; then comes, each time, the
// slice that is furthest from its goal. One that fails is left out from then on, or, if
// its seeds are ranges, when so many have failed.
func (r *runner) runAll(ctx context.Context, more func() bool) error {
	again := r.unresolved()
	for ctx.Err() == nil && more() {
		var s *slice
		var seed uint64
		if len(again) > 0 {
			s, seed, again = r.find(again[0].Slice), again[0].Seed, again[1:]
			if s == nil || r.leftOut(s) || !strings.Contains(s.name, r.only) {
				continue
			}
		} else if s = r.next(); s != nil {
			seed = r.fresh(s.name)
		} else {
			return nil
		}
		if err := r.run(ctx, *s, seed); err != nil {
			return err
		}
	}
	return nil
}

// run runs a slice once, unless ctx ends before it does.
func (r *runner) run(ctx context.Context, s slice, seed uint64) error {
	log := filepath.Join(r.dir, fmt.Sprintf("%03d.log", len(r.runs)+1))
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	command := s.command(seed)
	fmt.Fprintf(f, "%s\n", command)
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	begin := time.Now()
	ran := cmd.Run()
	one := run{Slice: s.name, Seed: seed, Commit: r.commit, Seconds: time.Since(begin).Round(time.Second / 10).Seconds(), Log: log}
	if err := f.Close(); err != nil || ctx.Err() != nil {
		return err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	if one.Figures, err = s.figures(text); err != nil {
		return fmt.Errorf("%s: %w", log, err)
	}
	one.Passed = ran == nil && one.Figures.Cycles > 0 && one.Figures.Lost == 0 && one.Figures.Duplicated == 0
	if one.Passed {
		fmt.Fprintf(r.out, "ok    %s: %d %s (%.0f s)\n", s.name, one.Figures.Cycles, s.unit, one.Seconds)
	} else {
		r.failed[s.name]++
		fmt.Fprintf(r.out, "FAIL  %s (%.0f s, %s); to repeat it:\n      %s\n", s.name, one.Seconds, log, command)
	}
	return r.keep(one)
}

// command is the line that runs the slice with a seed.
func (s slice) command(seed uint64) string {
	n := strconv.FormatUint(seed, 10)
	args := []string{campaign.LongVar + "=1", campaign.SeedVar + "=" + n}
	for _, arg := range s.args {
		if strings.ContainsAny(arg, "^$(|) ") {
			arg = "'" + arg + "'"
		}
		args = append(args, strings.ReplaceAll(arg, "{seed}", n))
	}
	return strings.Join(args, " ")
}

// figures reads what the tests of a slice have reported.
func (s slice) figures(log []byte) (sum campaign.Figures, err error) {
	for line := range bytes.Lines(log) {
		_, text, found := bytes.Cut(line, []byte(campaign.Mark+"{"))
		if !found {
			continue
		}
		var one campaign.Figures
		if err := json.Unmarshal(append([]byte("{"), text...), &one); err != nil {
			return sum, fmt.Errorf("%w: %s", err, line)
		}
		sum.Add(one)
	}
	if s.also != nil {
		for _, m := range s.also.FindAllSubmatch(log, -1) {
			n := 1
			if len(m) > 1 {
				n, err = strconv.Atoi(string(m[1]))
			}
			sum.Cycles += n
		}
	}
	return sum, err
}

// fresh is the first seed that the slice has not run with.
func (r *runner) fresh(name string) uint64 {
	seed := r.seed
	for _, one := range r.of(name) {
		seed = max(seed, one.Seed+1)
	}
	return seed
}

// leftOut reports whether the slice has failed too often since the start.
func (r *runner) leftOut(s *slice) bool { return r.failed[s.name] >= max(s.fail, 1) }

// next is the slice that is furthest from its goal, of those that have not failed.
func (r *runner) next() (found *slice) {
	least := 0.0
	for i := range r.plan {
		s := &r.plan[i]
		share := float64(r.sum(s.name).Cycles) / float64(s.goal)
		if strings.Contains(s.name, r.only) && !r.leftOut(s) && (found == nil || share < least) {
			found, least = s, share
		}
	}
	return found
}

func (r *runner) find(name string) *slice {
	for i := range r.plan {
		if r.plan[i].name == name {
			return &r.plan[i]
		}
	}
	return nil
}

// of returns the runs of a slice.
func (r *runner) of(name string) (found []run) {
	for _, one := range r.runs {
		if one.Slice == name {
			found = append(found, one)
		}
	}
	return found
}

// sum adds up what the runs of a slice have done that passed, and what was lost or
// duplicated in those that failed and have not passed since.
func (r *runner) sum(name string) (sum campaign.Figures) {
	for i, one := range r.runs {
		switch {
		case one.Slice != name:
		case one.Passed:
			sum.Add(one.Figures)
		case !r.resolved(i):
			sum.Lost += one.Figures.Lost
			sum.Duplicated += one.Figures.Duplicated
		}
	}
	return sum
}

// resolved reports whether run i, which failed, has passed with the same seed since.
func (r *runner) resolved(i int) bool {
	for _, later := range r.runs[i+1:] {
		if later.Passed && later.Slice == r.runs[i].Slice && later.Seed == r.runs[i].Seed {
			return true
		}
	}
	return false
}

// unresolved returns the runs that failed and have not passed since.
func (r *runner) unresolved() (found []run) {
	for i, one := range r.runs {
		if !one.Passed && !r.resolved(i) {
			found = append(found, one)
		}
	}
	return found
}
