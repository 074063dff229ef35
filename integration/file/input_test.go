//go:build linux

package file

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// lines are n generated records, the first with id from. Their length differs, so
// that blocks and batches end anywhere.
func lines(from, n int) []string {
	out := make([]string, n)
	for i := range out {
		id := from + i
		out[i] = fmt.Sprintf("{\"id\":%d,\"key\":\"k%d\",\"pad\":%q}\n", id, id*7919%64, strings.Repeat("x", id*31%120))
	}
	return out
}

// An input is a file of generated records that can grow.
type input struct {
	path  string
	lines []string
}

func newInput(t *testing.T, path string, n int) *input {
	t.Helper()
	in := &input{path: path}
	in.grow(t, n)
	return in
}

// grow appends n records in one write.
func (in *input) grow(t *testing.T, n int) {
	t.Helper()
	more := lines(len(in.lines), n)
	f, err := os.OpenFile(in.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(strings.Join(more, "")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	in.lines = append(in.lines, more...)
}

// readLines reads a file of lines that somebody else made.
func readLines(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return out
		}
		out = append(out, line)
	}
}
