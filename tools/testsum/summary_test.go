package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

const events = `
{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"m/a","Test":"TestSkipped","Output":"=== RUN   TestSkipped\n"}
{"Action":"output","Package":"m/a","Test":"TestSkipped","Output":"    a_test.go:3: no server here: try 1\n"}
{"Action":"output","Package":"m/a","Test":"TestSkipped","Output":"--- SKIP: TestSkipped (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestSkipped","Elapsed":0}
{"Action":"skip","Package":"m/a","Test":"TestMute","Elapsed":0}
{"Action":"pass","Package":"m/a","Elapsed":0.5}
`

const failing = `
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"    b_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad","Elapsed":0}
{"Action":"output","Package":"m/b","Output":"FAIL\n"}
{"Action":"fail","Package":"m/b","Elapsed":0.2}
{"Action":"output","Package":"m/c","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"m/c","Output":"FAIL m/c\n"}
{"Action":"fail","Package":"m/c","Elapsed":9}
{"ImportPath":"m/d [m/d.test]","Action":"build-output","Output":"d.go:1: undefined: x\n"}
{"ImportPath":"m/d [m/d.test]","Action":"build-fail"}
`

func summarise(t *testing.T, input string, strict bool) (text string, ok bool) {
	t.Helper()
	var b strings.Builder
	s := newSummary(&b)
	if err := s.read(strings.NewReader(input)); err != nil {
		t.Fatal(err)
	}
	ok = s.print(strict)
	return b.String(), ok
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestSummary(t *testing.T) {
	for _, tt := range []struct {
		name, input string
		strict, ok  bool
		last        string
	}{
		{"passing", events, false, true, "1 passed, 0 failed, 2 skipped"},
		{"a skip in CI", events, true, false, "1 passed, 0 failed, 2 skipped"},
		{"failing", events + failing, false, false, "1 passed, 3 failed, 2 skipped"},
		{"nothing", "", false, false, "0 passed, 0 failed, 0 skipped"},
	} {
		text, ok := summarise(t, tt.input, tt.strict)
		if ok != tt.ok || lastLine(text) != tt.last {
			t.Errorf("%s: ok = %v, last line %q; want %v, %q\n%s", tt.name, ok, lastLine(text), tt.ok, tt.last, text)
		}
	}
}

func TestSaysWhy(t *testing.T) {
	text, _ := summarise(t, events+failing, false)
	for _, want := range []string{
		"ok    m/a (0.5 s)", "FAIL  m/b", "--- FAIL: m/b TestBad\n    b_test.go:9: got 1, want 2",
		"--- FAIL: m/c\nFAIL m/c\npanic: test timed out", "d.go:1: undefined: x",
		"1  no server here: try 1 (m/a TestSkipped)", "1  no reason given (m/a TestMute)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "noise") {
		t.Error("the output of a passing test is printed")
	}
}

func TestBrokenStream(t *testing.T) {
	s := newSummary(new(strings.Builder))
	if err := s.read(strings.NewReader(`{"Action":"pass"}{"Acti`)); err == nil {
		t.Error("a torn stream is taken for whole")
	}
}

func TestCheck(t *testing.T) {
	var b strings.Builder
	s := newSummary(&b)
	s.check(t.Context(), "true")
	s.check(t.Context(), "echo why; false")
	if s.print(false) {
		t.Error("a failed check is no failure")
	}
	if last := lastLine(b.String()); last != "1 passed, 1 failed, 0 skipped" || !strings.Contains(b.String(), "why\n") {
		t.Errorf("%s", b.String())
	}
}

// The limit ends a command that hangs, with its children.
func TestLimit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	s := newSummary(new(strings.Builder))
	s.check(ctx, "sleep 60 | cat")
	if len(s.failures) != 1 || time.Since(begin) > 30*time.Second {
		t.Errorf("%d failures after %v", len(s.failures), time.Since(begin))
	}
}

// Output that is not of a test, as of a package that does not load, fails the run.
func TestGoTestThatCannotStart(t *testing.T) {
	s := newSummary(new(strings.Builder))
	if err := s.test(t.Context(), []string{"-no-such-flag"}); err == nil && len(s.failures) == 0 {
		t.Error("go test refused and nobody noticed")
	}
}
