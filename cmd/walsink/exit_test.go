package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

func TestExitCodesAreDistinctAndSaid(t *testing.T) {
	seen := map[code]bool{}
	for i, c := range codes {
		if seen[c.code] || int(c.code) != i {
			t.Errorf("row %d has code %d", i, c.code)
		}
		seen[c.code] = true
		if c.name == "" || c.means == "" || (c.next == "") != (c.code == codeOK) {
			t.Errorf("row %d is not complete: %+v", i, c)
		}
	}
}

func TestExitCodesOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (.+?) \| (.+?) \|`).FindAllStringSubmatch(string(text), -1)
	if len(rows) != len(codes) {
		t.Fatalf("README.md has %d exit codes, the table %d", len(rows), len(codes))
	}
	for i, c := range codes {
		want := fmt.Sprintf("%d %s %s", c.code, c.name, c.means)
		if got := strings.Join(rows[i][1:], " "); got != want {
			t.Errorf("README.md: got %q, want %q", got, want)
		}
	}
}

func TestReportSaysWhatToDo(t *testing.T) {
	var errs bytes.Buffer
	a := &app{err: &errs}
	if c := a.report(usagef("flag x: bad")); c != codeUsage {
		t.Errorf("code %d", c)
	}
	if got := errs.String(); !strings.HasPrefix(got, "walsink: flag x: bad\nwhat to do: ") {
		t.Errorf("got %q", got)
	}
}

func TestNextStepFitsTheError(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{walsink.ErrForeignState, "--state"},
		{wal.ErrNoSpace, "free space"},
		{wal.ErrFull, "--max-bytes"},
		{&sinks.Error{Kind: sinks.Poison}, "--dead-letters"},
		{&sinks.Error{Kind: sinks.Transient}, "is up"},
	} {
		err := fmt.Errorf("output x: %w", tt.err)
		if got := nextStep(err, classify(err)); !strings.Contains(got, tt.want) {
			t.Errorf("after %v: %q does not say %q", tt.err, got, tt.want)
		}
	}
}

func TestPanicBecomesAMessage(t *testing.T) {
	var errs bytes.Buffer
	c := guarded(&errs, func() code { panic("canary") })
	if c != codeBug || !strings.Contains(errs.String(), "walsink: bug: canary") || !strings.Contains(errs.String(), "what to do: ") {
		t.Errorf("code %d, %q", c, errs.String())
	}
}
