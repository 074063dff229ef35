package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/walsink/walsink/internal/campaign"
)

// A report is the summary of a campaign.
type report struct {
	Command  string         `json:"command"`
	Commits  []string       `json:"commits"`
	Hardware hardware       `json:"hardware"`
	Hours    float64        `json:"hours"`
	Lost     int            `json:"lost"`
	Twice    int            `json:"duplicated"`
	Faults   map[string]int `json:"faults"`
	Caught   []string       `json:"controls_caught"`
	Controls int            `json:"controls"`
	Slices   []sliceReport  `json:"slices"`
	Failures []failure      `json:"failures"`
}

type sliceReport struct {
	Name     string           `json:"name"`
	Command  string           `json:"command"` // of the first run
	Runs     int              `json:"runs"`
	Failed   int              `json:"failed"`
	Seconds  float64          `json:"seconds"`
	Unit     string           `json:"unit"`
	Goal     int              `json:"goal"`
	LastSeed uint64           `json:"last_seed"`
	Figures  campaign.Figures `json:"figures"`
	Achieved bool             `json:"achieved"`
}

type failure struct {
	Slice    string `json:"slice"`
	Command  string `json:"command"`
	Commit   string `json:"commit"`
	Log      string `json:"log"`
	Resolved bool   `json:"passed_later"`
}

type hardware struct {
	Cores      int    `json:"cores"`
	Memory     string `json:"memory"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
	Go         string `json:"go"`
}

// machine says what the campaign runs on. What cannot be found out is empty.
func machine(dir string) hardware {
	h := hardware{Cores: runtime.NumCPU(), Go: runtime.Version()}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Kernel = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb int
		if _, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &kb); err == nil {
			h.Memory = fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20))
		}
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err == nil {
		names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs"}
		if h.FileSystem = names[int64(s.Type)]; h.FileSystem == "" { //nolint:unconvert // another type on other systems
			h.FileSystem = fmt.Sprintf("%#x", s.Type)
		}
	}
	return h
}

// report sums the runs up.
func (r *runner) report() report {
	out := report{Command: fmt.Sprintf("make campaign SEED=%d", r.seed), Hardware: machine(r.dir), Controls: controls, Faults: map[string]int{}, Failures: []failure{}}
	var all campaign.Figures
	for _, s := range r.plan {
		one := sliceReport{Name: s.name, Command: s.command(r.seed), Unit: s.unit, Goal: s.goal, Figures: r.sum(s.name)}
		for _, run := range r.of(s.name) {
			one.Runs++
			one.Seconds += run.Seconds
			one.LastSeed = max(one.LastSeed, run.Seed)
			if !run.Passed {
				one.Failed++
			}
		}
		one.Achieved = one.Figures.Cycles >= s.goal
		all.Add(one.Figures)
		out.Slices = append(out.Slices, one)
	}
	for i, run := range r.runs {
		out.Hours += run.Seconds / 3600
		if !slices.Contains(out.Commits, run.Commit) {
			out.Commits = append(out.Commits, run.Commit)
		}
		if s := r.find(run.Slice); s != nil && !run.Passed {
			out.Failures = append(out.Failures, failure{run.Slice, s.command(run.Seed), run.Commit, run.Log, r.resolved(i)})
		}
	}
	out.Lost, out.Twice, out.Caught = all.Lost, all.Duplicated, all.Caught
	maps.Copy(out.Faults, all.Faults)
	return out
}

// table is the report for readers.
func (r report) table() string {
	var b strings.Builder
	h := r.Hardware
	fmt.Fprintf(&b, "`%s`: %.1f hours of running time on %d cores, %s of memory, Linux %s, %s, %s; commits %s. ",
		r.Command, r.Hours, h.Cores, h.Memory, h.Kernel, h.FileSystem, h.Go, strings.Join(r.Commits, ", "))
	open, reached := 0, 0
	for _, f := range r.Failures {
		if !f.Resolved {
			open++
		}
	}
	for _, s := range r.Slices {
		if s.Achieved {
			reached++
		}
	}
	fmt.Fprintf(&b, "Goals reached: %d of %d. Runs that failed and have not passed with their seed since: %d. ", reached, len(r.Slices), open)
	fmt.Fprintf(&b, "In the others lost: %d, duplicated: %d. Planted bugs found: %d of %d. [campaign.json](campaign.json) has the command that repeats each slice, and its seeds.\n\n",
		r.Lost, r.Twice, len(r.Caught), r.Controls)
	b.WriteString("| what | figure | goal | rows compared | lost | duplicated | runs | failed | minutes |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, s := range r.Slices {
		f := s.Figures
		fmt.Fprintf(&b, "| %s | %s %s | %s | %s | %d | %d | %d | %d | %.1f |\n",
			s.Name, grouped(f.Cycles), s.Unit, grouped(s.Goal), grouped(f.Rows), f.Lost, f.Duplicated, s.Runs, s.Failed, s.Seconds/60)
	}
	if len(r.Failures) > 0 {
		b.WriteString("\nRuns that failed:\n\n")
	}
	for _, f := range r.Failures {
		state := "has not passed since"
		if f.Resolved {
			state = "passes with the same seed since"
		}
		fmt.Fprintf(&b, "- %s, commit %s, %s: `%s`\n", f.Slice, f.Commit, state, f.Command)
	}
	return b.String()
}

// grouped writes a number with commas.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

const (
	tableBegin = "<!-- campaign -->\n"
	tableEnd   = "<!-- end of campaign -->\n"
)

// write writes campaign.json and the table in reliability.md, both in dir.
func (r report) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "campaign.json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	page := filepath.Join(dir, "reliability.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(text, []byte(tableBegin))
	_, after, closed := bytes.Cut(rest, []byte(tableEnd))
	if !found || !closed {
		return fmt.Errorf("%s has no place for the table, between %q and %q", page, tableBegin, tableEnd)
	}
	return os.WriteFile(page, slices.Concat(before, []byte(tableBegin), []byte("\n"+r.table()+"\n"), []byte(tableEnd), after), 0o644)
}
