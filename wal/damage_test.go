package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/record"
)

// buildLog makes a log with two lanes over several generations, and returns how
// many batches each lane has. The last generation is closed if clean is set, and
// otherwise left as a kill would leave it.
func buildLog(t testing.TB, dir string, clean bool) (batches uint64) {
	t.Helper()
	if !clean {
		k := newTold()
		tt, ok := t.(*testing.T)
		if !ok {
			t.Fatal("needs a process to kill")
		}
		k.runChild(tt, dir, 1<<62, "WALSINK_WAL_STOP=9")
		return k.completed
	}
	l := mustOpen(t, dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
	for c := uint64(1); c <= 9; c++ {
		writeKillBatches(t, l, c)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return 9
}

// writeKillBatches writes, completes and syncs one batch in each lane.
func writeKillBatches(t testing.TB, l *Log, c uint64) {
	t.Helper()
	for _, name := range killLanes {
		ln := mustLane(t, l, name)
		for _, r := range killRecords(name, ln.log.tipOf(ln)+1) {
			if err := ln.Append(context.Background(), r); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := ln.Seal(c, nil, "", false); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Complete(c, nil); err != nil {
		t.Fatal(err)
	}
}

// survey opens a log that was damaged and reads all that it still gives. Every
// record must be right; what is missing must be named: by Open, by Damage, or by
// the error of Blocks.
func survey(t *testing.T, dir string, batches uint64) (complaints []error) {
	t.Helper()
	l, err := Open(dir, Options{GenerationBytes: 1 << 20, Logger: quiet})
	if err != nil {
		return []error{err}
	}
	defer l.Close() // may complain about what we did
	complaints = append(complaints, l.Stat().Damage...)
	for _, lane := range killLanes {
		found := uint64(0)
		for _, b := range l.Batches(lane) {
			recs, want := 0, killRecords(lane, b.Seq)
			for block, err := range l.Blocks(lane, b.Seq) {
				if err != nil {
					if !errors.Is(err, ErrDamaged) || !errors.Is(err, record.ErrCorrupt) {
						t.Errorf("reading damage: %v", err)
					}
					complaints = append(complaints, err)
					break
				}
				for _, r := range block.All() {
					if string(r) != string(want[recs]) {
						t.Errorf("%s batch %d record %d is wrong, and nobody complains", lane, b.Seq, recs)
					}
					recs++
				}
			}
			found++
		}
		if found < batches && len(complaints) == 0 {
			t.Errorf("%s has %d batches of %d, and nobody complains", lane, found, batches)
		}
	}
	return complaints
}

// copyDir copies a directory, keeping files sparse enough.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		return copySparse(path, filepath.Join(to, rel))
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// copySparse copies at most the first 4 MiB of data and the size.
func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	b := make([]byte, min(info.Size(), 4<<20))
	if _, err := in.ReadAt(b, 0); err != nil {
		return err
	}
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		return err
	}
	return os.Truncate(to, info.Size())
}

// fileKind groups the files of a log for the damage tests.
func fileKind(rel string) string {
	if dir, name := filepath.Split(rel); dir != "" {
		if ext := filepath.Ext(name); ext != "" {
			return ext
		}
		return name
	}
	return rel
}

// TestB35Damage damages files of every kind: a flipped byte, a cut, a zeroed
// stretch (Q01), and a removed file (Q12).
func TestB35Damage(t *testing.T) {
	rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
	for _, clean := range []bool{true, false} {
		t.Run(map[bool]string{true: "after close", false: "after kill"}[clean], func(t *testing.T) {
			master := t.TempDir()
			batches := buildLog(t, master, clean)
			if c := survey(t, copyDir(t, master), batches); len(c) > 0 {
				t.Fatalf("before any damage: %v", c)
			}
			kinds := make(map[string][]string)
			for _, rel := range filesOf(t, master) {
				kinds[fileKind(rel)] = append(kinds[fileKind(rel)], rel)
			}
			for _, kind := range slices.Sorted(maps.Keys(kinds)) {
				files := kinds[kind]
				t.Run(kind, func(t *testing.T) { damageKind(t, rng, master, files, batches) })
			}
		})
	}
}

func filesOf(t testing.TB, dir string) (rels []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			rels = append(rels, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rels
}

func damageKind(t *testing.T, rng *rand.Rand, master string, files []string, batches uint64) {
	trials, hows := 1, []string{"flip", "cut", "zero", "remove"}
	switch {
	case campaign.Long():
		trials = 4
	case testing.Short():
		hows = []string{"flip", "remove"}
	}
	done := campaign.Figures{Faults: map[string]int{}}
	for _, how := range hows {
		for range trials {
			rel := files[rng.IntN(len(files))]
			dir := copyDir(t, master)
			what := damageFile(t, rng, filepath.Join(dir, rel), how)
			complaints := survey(t, dir, batches)
			if t.Failed() {
				t.Fatalf("%s %s: %s; complaints %v", how, rel, what, complaints)
			}
			done.Cycles++
			done.Faults["damage: "+how]++
		}
	}
	done.Report(t)
}

// damageFile does damage within what was written and says what it did.
func damageFile(t testing.TB, rng *rand.Rand, path, how string) string {
	t.Helper()
	if how == "remove" {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return "removed"
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := len(strings.TrimRight(string(b[:min(len(b), 4<<20)]), "\x00"))
	if size == 0 {
		return "nothing in it"
	}
	at := rng.IntN(size)
	switch how {
	case "flip":
		b[at] ^= 1 << rng.IntN(8)
	case "zero":
		clear(b[at:min(at+4096, len(b))])
	case "cut":
		b = b[:at]
	}
	if err := os.WriteFile(path, b[:min(len(b), 4<<20)], 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("at %d of %d", at, size)
}

// TestB35DamagedLength damages the length of a key in front of a value in a value log of
// Badger, which format 1 used, upon which Badger keeps a lock for ever. The log must name
// the damage and close all the same. It does so in a process of its own, since such a
// Badger leaves its goroutines behind.
func TestB35DamagedLength(t *testing.T) {
	if dir := os.Getenv("WALSINK_WAL_SURVEY"); dir != "" {
		if complaints := survey(t, dir, 9); len(complaints) > 0 && !t.Failed() {
			fmt.Println("named and closed")
			os.Exit(0)
		}
		os.Exit(1)
	}
	for _, fixture := range format1Logs {
		dir := unpack(t, fixture)
		damaged := 0
		for _, rel := range filesOf(t, dir) {
			if filepath.Ext(rel) == ".vlog" && lengthenKey(t, filepath.Join(dir, rel)) {
				damaged++
			}
		}
		if damaged == 0 {
			t.Fatal("no value log has an entry")
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestB35DamagedLength$", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), "WALSINK_WAL_SURVEY="+dir)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "named and closed") {
			t.Errorf("%s, %d value logs damaged: %v\n%.2000s", fixture, damaged, err, out)
		}
	}
}

// lengthenKey makes the key of the first entry of a value log longer than its value
// leaves room for, and reports whether there is an entry.
func lengthenKey(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The file has a header of 20 bytes; an entry begins with two flags and the length
	// of its key.
	const at = 20 + 2
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	if b[0] == 0 {
		return false
	}
	b[0] |= 0x40
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	return true
}
