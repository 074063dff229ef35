package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// script makes a slice of a shell script, which finds the seed in $WALSINK_SEED.
func script(t *testing.T, name string, goal int, text string) slice {
	t.Helper()
	path := filepath.Join(t.TempDir(), "slice.sh")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return slice{name: name, goal: goal, unit: "kills", args: []string{"sh", path}}
}

const good = `echo '    a_test.go:1: CAMPAIGN {"cycles":10,"rows":100,"faults":{"kill":10},"lost":0,"duplicated":0}'`

// newRunner returns a runner and what it prints.
func newRunner(dir string, plan ...slice) (*runner, *strings.Builder) {
	var out strings.Builder
	return &runner{plan: plan, dir: dir, commit: "c", seed: 1, out: &out}, &out
}

// rounds starts the campaign n times, each time for one slice.
func rounds(t *testing.T, n int, dir, docs string, plan ...slice) (ok bool, out string) {
	t.Helper()
	for range n {
		r, text := newRunner(dir, plan...)
		var err error
		if ok, err = r.campaign(t.Context(), runs(1), docs); err != nil {
			t.Fatal(err)
		}
		out = text.String()
	}
	return ok, out
}

// runs is a budget of n runs.
func runs(n int) func() bool {
	return func() bool { n--; return n >= 0 }
}

func docs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "reliability.md"), []byte("before\n"+tableBegin+"old\n"+tableEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func summary(t *testing.T, docs string) (sum report, page string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(docs, "campaign.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &sum); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(filepath.Join(docs, "reliability.md")); err != nil {
		t.Fatal(err)
	}
	return sum, string(b)
}

// Figures add up over starts, and the slice that is furthest from its goal is next.
func TestResumeAddsUp(t *testing.T) {
	dir, docs := t.TempDir(), docs(t)
	few, many := script(t, "few", 10, good), script(t, "many", 30, good)
	ok, out := rounds(t, 4, dir, docs, few, many)
	if !ok || !strings.Contains(out, "2 of 2 goals, 0 lost, 0 duplicated") {
		t.Errorf("ended with %v: %s", ok, out)
	}
	sum, page := summary(t, docs)
	if a, b := sum.Slices[0], sum.Slices[1]; a.Figures.Cycles != 10 || b.Figures.Cycles != 30 || b.Figures.Rows != 300 || b.LastSeed != 3 {
		t.Errorf("slices %+v", sum.Slices)
	}
	if sum.Faults["kill"] != 40 {
		t.Errorf("faults %v", sum.Faults)
	}
	if !strings.HasPrefix(page, "before\n"+tableBegin) || !strings.HasSuffix(page, tableEnd+"after\n") || strings.Contains(page, "old\n") ||
		!strings.Contains(page, "| many | 30 kills | 30 | 300 | 0 | 0 | 3 | 0 |") {
		t.Errorf("page:\n%s", page)
	}
}

// A slice that fails is kept and reported, the others go on, and the end is not ok
// until it has passed with the same seed.
func TestFailureIsKeptUntilItPasses(t *testing.T) {
	dir, docs := t.TempDir(), docs(t)
	mended := filepath.Join(t.TempDir(), "mended")
	bad := script(t, "bad", 10, "echo seed $WALSINK_SEED\n"+good+"\n[ -e "+mended+" ]\n")
	other := script(t, "other", 10, good)
	r, text := newRunner(dir, bad, other)
	r.seed = 7
	if ok, err := r.campaign(t.Context(), runs(2), docs); err != nil || ok {
		t.Errorf("ended with %v, %v", ok, err)
	}
	if !strings.Contains(text.String(), "FAIL  bad") || !strings.Contains(text.String(), "WALSINK_SEED=7 sh ") || !strings.Contains(text.String(), "ok    other: 10 kills") {
		t.Errorf("output:\n%s", text)
	}
	ok, _ := rounds(t, 1, dir, docs, bad, other)
	sum, page := summary(t, docs)
	if ok || len(sum.Failures) != 2 || sum.Failures[0].Resolved || sum.Slices[0].Figures.Cycles != 0 {
		t.Errorf("ok %v, failures %+v", ok, sum.Failures)
	}
	if !strings.Contains(page, "bad, commit c, has not passed since: `WALSINK_CAMPAIGN=1 WALSINK_SEED=7 sh ") {
		t.Errorf("page:\n%s", page)
	}
	if log, err := os.ReadFile(sum.Failures[0].Log); err != nil || !strings.Contains(string(log), "seed 7\n") {
		t.Errorf("log %q, %v", log, err)
	}
	if err := os.WriteFile(mended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ok, _ = rounds(t, 1, dir, docs, bad, other)
	if sum, _ := summary(t, docs); !ok || !sum.Failures[0].Resolved {
		t.Errorf("ok %v, failures %+v", ok, sum.Failures)
	}
}

// A slice whose seeds are ranges goes on with the next one when one has failed, and counts
// those that have passed; it ends when too many have. The next start repeats what failed,
// and runs none twice that has passed.
func TestRangesFailApart(t *testing.T) {
	dir, docs := t.TempDir(), docs(t)
	mended := filepath.Join(t.TempDir(), "mended")
	s := apart(script(t, "ranges", 100, "echo $WALSINK_SEED >> "+filepath.Join(dir, "seeds")+"\n"+good+
		"\n[ $WALSINK_SEED != 2 -a $WALSINK_SEED -lt 5 -o -e "+mended+" ]\n"))
	for i, want := range []struct {
		budget, cycles int
		seeds          string
	}{
		{100, 30, "1 2 3 4 5 6 7 8"}, // 2, 5, 6, 7 and 8 fail
		{7, 100, "1 2 3 4 5 6 7 8 2 5 6 7 8 9 10"},
	} {
		r, _ := newRunner(dir, s)
		if ok, err := r.campaign(t.Context(), runs(want.budget), docs); err != nil || ok != (i == 1) {
			t.Fatalf("start %d ended with %v, %v", i, ok, err)
		}
		seeds, err := os.ReadFile(filepath.Join(dir, "seeds"))
		if err != nil {
			t.Fatal(err)
		}
		sum, _ := summary(t, docs)
		if got := strings.Join(strings.Fields(string(seeds)), " "); got != want.seeds || sum.Slices[0].Figures.Cycles != want.cycles {
			t.Fatalf("start %d: seeds %s, %d cycles", i, got, sum.Slices[0].Figures.Cycles)
		}
		if err := os.WriteFile(mended, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What is lost or duplicated, and a run without figures, is a failure even if the
// command says that it has passed.
func TestNotOK(t *testing.T) {
	for name, text := range map[string]string{
		"lost":    `echo 'CAMPAIGN {"cycles":1,"lost":1,"duplicated":0}'`,
		"twice":   `echo 'CAMPAIGN {"cycles":1,"lost":0,"duplicated":1}'`,
		"nothing": `echo ok`,
	} {
		t.Run(name, func(t *testing.T) {
			if ok, out := rounds(t, 1, t.TempDir(), docs(t), script(t, name, 1, text)); ok {
				t.Errorf("ended well:\n%s", out)
			}
		})
	}
}

// A journal whose last line is cut loses that run and nothing else.
func TestJournalIsCut(t *testing.T) {
	dir, docs := t.TempDir(), docs(t)
	s := script(t, "a", 10, good)
	rounds(t, 2, dir, docs, s)
	path := filepath.Join(dir, "journal")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:len(b)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	rounds(t, 1, dir, docs, s)
	if sum, _ := summary(t, docs); sum.Slices[0].Runs != 2 {
		t.Errorf("%d runs, want 2", sum.Slices[0].Runs)
	}
}

func TestCounting(t *testing.T) {
	const log = `
--- PASS: TestCrashPoints (1.00s)
    --- PASS: TestCrashPoints/a (0.50s)
    --- PASS: TestCrashPoints/b (0.50s)
    model_test.go:1: [rapid] OK, passed 500 tests (1.2s)
fuzz: elapsed: 3s, execs: 100 (33/sec), new interesting: 0 (total: 8)
fuzz: elapsed: 5s, execs: 170 (34/sec), new interesting: 0 (total: 8)
PASS
`
	for re, want := range map[*regexp.Regexp]int{cases: 2, checks: 500, execs: 170} {
		f, err := slice{also: re}.figures([]byte(log))
		if err != nil || f.Cycles != want {
			t.Errorf("%v counts %d, want %d (%v)", re, f.Cycles, want, err)
		}
	}
}

// The names of the slices differ: the journal knows slices by name.
func TestNamesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range plan {
		if seen[s.name] || s.goal < 1 {
			t.Errorf("slice %q: twice, or without a goal", s.name)
		}
		seen[s.name] = true
	}
}
