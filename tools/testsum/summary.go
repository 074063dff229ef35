package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// An event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build events
	Test       string
	Output     string
	Elapsed    float64
}

// A summary is what is known of a run so far.
type summary struct {
	out             io.Writer
	passed, skipped int
	failures        []failure
	reasons         map[string][]string // reason of a skip to the tests
	output          map[string]*strings.Builder
	failedIn        map[string]int // packages to failed tests
}

type failure struct{ name, output string }

func newSummary(out io.Writer) *summary {
	return &summary{
		out: out, reasons: map[string][]string{},
		output: map[string]*strings.Builder{}, failedIn: map[string]int{},
	}
}

func (s *summary) fail(name, output string) {
	s.failures = append(s.failures, failure{name, output})
}

// add takes in one event.
func (s *summary) add(e event) {
	name := e.Package
	if e.Test != "" {
		name += " " + e.Test
	}
	switch e.Action {
	case "output":
		s.buffer(name).WriteString(e.Output)
	case "build-output":
		s.buffer(e.ImportPath).WriteString(e.Output)
	case "build-fail":
		s.fail("build "+e.ImportPath, s.take(e.ImportPath))
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e, name)
		}
	}
}

func (s *summary) buffer(name string) *strings.Builder {
	b := s.output[name]
	if b == nil {
		b = new(strings.Builder)
		s.output[name] = b
	}
	return b
}

// take returns and forgets the output of a test or package.
func (s *summary) take(name string) string {
	b := s.output[name]
	if b == nil {
		return ""
	}
	delete(s.output, name)
	return b.String()
}

func (s *summary) endTest(e event, name string) {
	output := s.take(name)
	switch e.Action {
	case "pass":
		s.passed++
	case "fail":
		s.failedIn[e.Package]++
		s.fail(name, output)
	case "skip":
		s.skipped++
		r := reason(output)
		s.reasons[r] = append(s.reasons[r], name)
	}
}

// endPackage prints the package's line. A package that failed without a failed
// test, by a panic, a time-out or a leak, counts as one failure.
func (s *summary) endPackage(e event) {
	output := s.take(e.Package)
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.out, "ok    %s (%.1f s)\n", e.Package, e.Elapsed)
	case "fail":
		fmt.Fprintf(s.out, "FAIL  %s (%.1f s)\n", e.Package, e.Elapsed)
		if s.failedIn[e.Package] == 0 {
			s.fail(e.Package, output+s.unfinished(e.Package))
		}
	}
}

// unfinished returns the output of the package's tests that have not ended.
func (s *summary) unfinished(pkg string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.output)) {
		if strings.HasPrefix(name, pkg+" ") {
			b.WriteString(s.take(name))
		}
	}
	return b.String()
}

// noise are the lines that go test adds to a test's own output.
var noise = regexp.MustCompile(`^(=== |\s*--- )`)

// place is the file and line in front of a test's message.
var place = regexp.MustCompile(`^\s*[\w./-]+\.go:\d+: `)

// reason returns the text a test gave to Skip.
func reason(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		if !noise.MatchString(line) {
			lines = append(lines, strings.TrimSpace(place.ReplaceAllString(line, "")))
		}
	}
	if len(lines) == 0 {
		return "no reason given"
	}
	return lines[len(lines)-1]
}

// print writes failures, skips and the last line, and reports whether all is well.
func (s *summary) print(strict bool) bool {
	for _, f := range s.failures {
		fmt.Fprintf(s.out, "\n--- FAIL: %s\n%s", f.name, f.output)
		if f.output != "" && !strings.HasSuffix(f.output, "\n") {
			fmt.Fprintln(s.out)
		}
	}
	if s.skipped > 0 {
		fmt.Fprintf(s.out, "\nskipped:\n")
	}
	for _, r := range slices.Sorted(maps.Keys(s.reasons)) {
		tests := s.reasons[r]
		fmt.Fprintf(s.out, "%5d  %s (%s%s)\n", len(tests), r, tests[0], map[bool]string{true: ", ..."}[len(tests) > 1])
	}
	ran := s.passed+len(s.failures)+s.skipped > 0
	if strict && s.skipped > 0 {
		fmt.Fprintln(s.out, "\nCI=true: a skip is a failure")
	}
	if !ran {
		fmt.Fprintln(s.out, "\nno test was run")
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", s.passed, len(s.failures), s.skipped)
	return ran && len(s.failures) == 0 && (!strict || s.skipped == 0)
}
