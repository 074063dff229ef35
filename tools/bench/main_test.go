package main

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	text := []byte("# Title\n\n" + begin + "old\n" + end + "\nafter\n")
	out := render(text, map[string]float64{rows[0].work: 1.234, rows[1].work: 2})
	known, err := parse(out)
	if err != nil || len(known) != 2 || known[rows[0].work] != 1.23 || known[rows[1].work] != 2 {
		t.Fatal(known, err)
	}
	if !strings.HasPrefix(string(out), "# Title\n") || !strings.HasSuffix(string(out), "\nafter\n") || strings.Contains(string(out), "old") {
		t.Fatalf("%s", out)
	}
	if _, err := parse([]byte("nothing")); err == nil {
		t.Fatal("a text without markers was taken")
	}
}

func TestMetric(t *testing.T) {
	out := "goos: linux\nBenchmarkRun-2   \t       5\t         2.500 x-baseline\t       131.9 peak-MiB\nPASS\n"
	for unit, want := range map[string]float64{"x-baseline": 2.5, "peak-MiB": 131.9} {
		if got, err := metric(out, unit); err != nil || got != want {
			t.Fatal(got, err)
		}
	}
	if _, err := metric(out, "other"); err == nil {
		t.Fatal("a metric that is not there")
	}
}
