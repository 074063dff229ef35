// Command bench runs the benchmarks that have a goal, each with its baseline in the
// same run, and writes the table of docs/benchmarks.md. With -check it compares with
// that table instead, and fails if a figure has become worse by more than the
// tolerance. The machine should be quiet.
//
//	bench [-check] [-only regexp] [-table docs/benchmarks.md]
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// tolerance is how much worse than the table a figure may be: the machines are
// shared, and ratios of medians still move by a fifth.
const tolerance = 1.3

func main() {
	check := flag.Bool("check", false, "compare with the table instead of writing it")
	only := flag.String("only", "", "only rows whose work matches this `regexp`")
	table := flag.String("table", "docs/benchmarks.md", "`file` with the table")
	flag.Parse()
	if err := run(os.Stdout, *table, *only, *check); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, table, only string, check bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	known, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	var worse []string
	done := make(map[string]string) // output by package and benchmark
	for _, r := range rows {
		if !match.MatchString(r.work) {
			continue
		}
		key := r.pkg + " " + r.name
		if done[key] == "" {
			if done[key], err = measure(r); err != nil {
				return err
			}
		}
		got, err := metric(done[key], r.unit)
		if err != nil {
			return fmt.Errorf("%s: %w", r.work, err)
		}
		was, ok := known[r.work]
		fmt.Fprintf(out, "%-70s %s (goal %s)\n", r.work, figure(got), figure(r.goal))
		if check && ok && got > was*tolerance && got > r.goal {
			worse = append(worse, fmt.Sprintf("%s: %s, was %s", r.work, figure(got), figure(was)))
		}
		known[r.work] = got
	}
	if check {
		if len(worse) > 0 {
			return errors.New("worse than the table:\n" + strings.Join(worse, "\n"))
		}
		return nil
	}
	return os.WriteFile(table, render(text, known), 0o644)
}

// measure runs one benchmark and returns its output.
func measure(r row) (string, error) {
	parts := strings.Split(r.name, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	parts[0] = "^Benchmark" + strings.TrimPrefix(parts[0], "^")
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", strings.Join(parts, "/"), "-benchtime", strconv.Itoa(r.times)+"x", "-timeout", "30m", r.pkg)
	if r.env != "" {
		cmd.Env = append(os.Environ(), r.env)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return string(out), nil
}

// metric finds a figure with a unit in the output of a benchmark.
func metric(out, unit string) (float64, error) {
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		f := strings.Fields(line)
		for i := 1; i < len(f); i++ {
			if f[i] == unit {
				return strconv.ParseFloat(f[i-1], 64)
			}
		}
	}
	return 0, fmt.Errorf("no metric %s in\n%s", unit, out)
}

const (
	begin = "<!-- figures: make bench -->\n"
	end   = "<!-- end of figures -->\n"
)

// parse reads the figures of the table, by work.
func parse(text []byte) (map[string]float64, error) {
	known := make(map[string]float64)
	_, rest, ok := bytes.Cut(text, []byte(begin))
	body, _, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, errors.New("the markers of the table are missing")
	}
	lines := bufio.NewScanner(bytes.NewReader(body))
	for n := 0; lines.Scan(); n++ {
		cells := strings.Split(lines.Text(), "|")
		if n < 2 || len(cells) < 6 {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(cells[3]), 64)
		if err != nil {
			return nil, fmt.Errorf("row %q: %w", lines.Text(), err)
		}
		known[strings.TrimSpace(cells[1])] = v
	}
	return known, nil
}

// render puts the figures into the text, with the machine and the versions.
func render(text []byte, known map[string]float64) []byte {
	head, rest, _ := bytes.Cut(text, []byte(begin))
	_, tail, _ := bytes.Cut(rest, []byte(end))
	var b bytes.Buffer
	b.Write(head)
	b.WriteString(begin)
	b.WriteString("| work | baseline in the same run | measured | goal, at most |\n| --- | --- | --- | --- |\n")
	for _, r := range rows {
		if v, ok := known[r.work]; ok {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.work, r.baseline, figure(v), figure(r.goal))
		}
	}
	fmt.Fprintf(&b, "\n%s, %d cores, %s/%s.\n", runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(&b, "Last changed %s.\n", time.Now().UTC().Format(time.DateOnly))
	b.WriteString(end)
	b.Write(tail)
	return b.Bytes()
}

func figure(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
