package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeCommands runs the command that README.md begins with, twice as it says, and
// looks for the other one in the Makefile.
func TestReadmeCommands(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, makefile := read(t, filepath.Join(root, "README.md")), read(t, filepath.Join(root, "Makefile"))
	blocks := regexp.MustCompile("(?s)```sh\n(go run \\./cmd/walsink [^\n]*|make [^\n]*)\n```").FindAllStringSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("README.md has %d commands, want 2", len(blocks))
	}
	target, ok := strings.CutPrefix(blocks[1][1], "make ")
	if !ok || !strings.Contains(makefile, "\n"+target+":") {
		t.Errorf("the Makefile does not have %q", blocks[1][1])
	}
	args := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(blocks[0][1], "go run ./cmd/walsink "), "'", ""))
	t.Chdir(t.TempDir())
	if err := os.Symlink(filepath.Join(root, "examples"), "examples"); err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{"1,707 records", "nothing new"} {
		var errs bytes.Buffer
		if c := run(args, strings.NewReader(""), io.Discard, &errs); c != codeOK || !strings.Contains(errs.String(), said) {
			t.Fatalf("exit code %d, no %q in:\n%s", c, said, &errs)
		}
	}
	parts, err := filepath.Glob("out/*.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, part := range parts {
		got.WriteString(read(t, part))
	}
	if got.String() != read(t, "examples/data/earthquakes.ndjson") {
		t.Errorf("%d bytes came out, not those that went in", got.Len())
	}
}
