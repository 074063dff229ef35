package sinktest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/sinks"
)

// caseTime bounds one case.
const caseTime = 2 * time.Minute

// Run holds the sink to the contract, one subtest for each case.
func Run(t *testing.T, h Harness) {
	if h.Open == nil || h.Visible == nil {
		t.Fatal("sinktest: the harness needs Open and Visible")
	}
	has, count := declared(t, h), map[string]int{}
	for _, c := range cases {
		if why := c.without(has); why != "" {
			count["not declared"]++
			t.Logf("%s is left out: %s", c.name, why)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if t.Skipped() {
					count["skipped"]++
				}
			}()
			if why := c.lacks(h); why != "" {
				t.Skip(why)
			}
			count["run"]++
			c.run(newEnv(t, h, c))
		})
	}
	t.Logf("sinktest: %d cases run, %d skipped, %d not declared by the sink", count["run"], count["skipped"], count["not declared"])
}

// A testCase is one rule and how to see that it is kept.
type testCase struct {
	name string
	rule string
	// needs names what the sink must declare or the harness must be able to do.
	needs []need
	run   func(*env)
}

type need string

const (
	chunked     need = "Chunked"
	ledger      need = "sinks.Ledger"
	box         need = "sinks.DeadLetterBox"
	reconciler  need = "sinks.Reconciler"
	bad         need = "Harness.Bad"
	deadLetters need = "Harness.DeadLetters"
	snapshot    need = "Harness.Snapshot"
	breaks      need = "Harness.Break"
	loses       need = "Harness.LoseAnswers"
	binary      need = "Harness.Binary"
)

// declared says what the sink is, of what a case may need.
func declared(t testing.TB, h Harness) map[need]bool {
	s := h.Open(t)
	defer closing(t, "sink", s.Close)
	_, lists := s.(sinks.Ledger)
	_, keeps := s.(sinks.DeadLetterBox)
	_, compares := s.(sinks.Reconciler)
	return map[need]bool{chunked: s.Info().Chunked, ledger: lists, box: keeps, reconciler: compares, binary: h.Binary}
}

// without says why the case is not for a sink that has declared this.
func (c testCase) without(has map[need]bool) string {
	for _, n := range c.needs {
		if ok, known := has[n]; known && !ok {
			return fmt.Sprintf("not declared: %s", n)
		}
	}
	return ""
}

// lacks says what the harness cannot do.
func (c testCase) lacks(h Harness) string {
	has := map[need]bool{
		chunked: true, ledger: true, box: true, reconciler: true, binary: true, bad: h.Bad != nil, deadLetters: h.DeadLetters != nil,
		snapshot: h.Snapshot != nil, breaks: h.Break != nil, loses: h.LoseAnswers != nil,
	}
	var lacks []string
	for _, n := range c.needs {
		if !has[n] {
			lacks = append(lacks, string(n))
		}
	}
	if lacks == nil {
		return ""
	}
	return "the harness has no " + strings.Join(lacks, ", ")
}

// An env is one run of one case.
type env struct {
	testing.TB
	h    Harness
	c    testCase
	ctx  context.Context
	sink string // the sink id, fresh
	info sinks.Info
}

func newEnv(t testing.TB, h Harness, c testCase) *env {
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	t.Cleanup(cancel)
	e := &env{TB: t, h: h, c: c, ctx: ctx, sink: "t-" + strings.ToLower(rand.Text()[:12])}
	e.info = e.open().Info()
	return e
}

// violated fails the case and names its rule.
func (e *env) violated(format string, args ...any) {
	e.Helper()
	e.Fatalf("%s: %s\nthe rule: %s", e.c.name, fmt.Sprintf(format, args...), e.c.rule)
}

// open opens one more sink, which is closed when the case is over.
func (e *env) open() sinks.Sink {
	e.Helper()
	s := e.h.Open(e.TB)
	e.Cleanup(func() { closing(e.TB, "sink", s.Close) })
	return s
}

func closing(t testing.TB, what string, f func() error) {
	if err := f(); err != nil {
		t.Errorf("close %s: %v", what, err)
	}
}

func (e *env) exact() bool { return e.info.Guarantee == sinks.ExactlyOnce }
