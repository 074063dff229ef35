package main

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// damage changes the first byte of a text in the files of blocks in a state directory,
// where it must be once.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: damage STATE TEXT")
	}
	files, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "gen-*", "BLOCKS"))
	ts.Check(err)
	hits := 0
	for _, name := range files {
		data, err := os.ReadFile(name)
		ts.Check(err)
		n := bytes.Count(data, []byte(args[1]))
		if hits += n; n == 0 {
			continue
		}
		data[bytes.Index(data, []byte(args[1]))] ^= 0x20
		ts.Check(os.WriteFile(name, data, 0o600))
	}
	if hits != 1 {
		ts.Fatalf("%q is there %d times", args[1], hits)
	}
}
