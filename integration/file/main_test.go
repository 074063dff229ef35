//go:build linux

package file

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const earthquakes = "../../examples/data/earthquakes.ndjson"

// quakes sets the job to the real input.
func quakes(t *testing.T, r *rig) []string {
	t.Helper()
	path, err := filepath.Abs(earthquakes)
	if err != nil {
		t.Fatal(err)
	}
	r.input = path
	return readLines(t, path)
}

// TestEarthquakes is the main job: 1,707 records, byte for byte, in the order of
// the input when the parts are read in the order of their names. C001, C077, C078.
func TestEarthquakes(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	want := quakes(t, r)
	if len(want) != 1707 {
		t.Fatalf("%d lines of input", len(want))
	}
	r.run().want(t, exitOK, "1,707 records", "exactly-once")
	r.exact(want)
	input, err := os.ReadFile(r.input)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.concatenated(); got != string(input) {
		t.Errorf("parts in the order of their names are not the input: %d bytes, want %d", len(got), len(input))
	}
	before := r.tree()
	r.run().want(t, exitOK, "nothing new: 1,707 records are already committed")
	if after := r.tree(); after != before {
		t.Errorf("the second run changed the output:\n%s\nbefore:\n%s", after, before)
	}
}

// TestMetamorphic runs the same input under many settings: the rows are the same.
func TestMetamorphic(t *testing.T) {
	settings := map[string][]string{
		"records":     {"--checkpoint-records", "100"},
		"one record":  {"--checkpoint-records", "1"},
		"interval":    {"--checkpoint-interval", "5ms"},
		"lanes":       {"--lanes", "4", "--checkpoint-records", "100"},
		"many lanes":  {"--lanes", "64"},
		"by key":      {"--lanes", "3", "--lane-by", "key:net"},
		"id":          {"--id", "quakes.2018", "--lanes", "2", "--lane-by", "round-robin"},
		"small log":   {"--generation-size", "1MiB", "--retain", "0s", "--checkpoint-records", "200"},
		"large steps": {"--flush-age", "1h", "--flush-bytes", "1GiB", "--checkpoint-records", "10"},
	}
	for name, flags := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, normalBuild)
			want := quakes(t, r)
			r.flags = flags
			r.run().want(t, exitOK, "1,707 records")
			r.exact(want)
			r.run().want(t, exitOK, "nothing new: 1,707 records")
			r.exact(want)
		})
	}
}

// TestFormats writes compressed parts, and parts in buckets.
func TestFormats(t *testing.T) {
	for _, opts := range []string{"format=ndjson&compress=gzip", "format=ndjson&compress=zstd", "format=raw", "bucket={net}", "bucket={net}&compress=zstd"} {
		t.Run(opts, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, normalBuild)
			want := quakes(t, r)
			r.opts = opts
			r.run().want(t, exitOK)
			r.exact(want)
			if _, err := os.Stat(filepath.Join(r.out, "ci")); strings.HasPrefix(opts, "bucket") != (err == nil) {
				t.Errorf("bucket ci: %v", err)
			}
		})
	}
}

// TestInputGrows runs again after the input has grown: only the new records go.
func TestInputGrows(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	r.flags = []string{"--lanes", "3"}
	in := newInput(t, r.input, 1000)
	r.run().want(t, exitOK, "1,000 records")
	in.grow(t, 10)
	r.run().want(t, exitOK, "10 records", "1,000 records were committed before")
	r.exact(in.lines)
}

// TestLaneCountChanges runs again with other numbers of lanes. E02.
func TestLaneCountChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 1000)
	for _, lanes := range []string{"4", "2", "8", "1"} {
		r.flags = []string{"--lanes", lanes, "--checkpoint-records", "100"}
		r.run().want(t, exitOK)
		r.exact(in.lines)
		in.grow(t, 1000)
	}
	if err := os.RemoveAll(r.state); err != nil {
		t.Fatal(err)
	}
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

// TestTwoSources reads two files at the same time, each in its own lanes, stopped
// in the middle and with its state lost once.
func TestTwoSources(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	first := newInput(t, r.input, 20_000)
	second, other := filepath.Join(r.dir, "second.ndjson"), lines(1_000_000, 20_000)
	writeFile(t, second, strings.Join(other, ""))
	r.flags = []string{"--from", "ndjson:" + second, "--lanes", "2", "--checkpoint-interval", "10ms", "--checkpoint-records", "1000"}
	p := r.start(r.runArgs()...)
	p.untilOrEnd(func() bool { return r.parts() > 4 })
	p.killAfter(0)
	if err := os.RemoveAll(r.state); err != nil {
		t.Fatal(err)
	}
	r.run().want(t, exitOK)
	want := append(first.lines, other...)
	r.exact(want)
	r.run().want(t, exitOK, "nothing new: 40,000 records")
	r.exact(want)
}

// concatenated is the output as cat DIR/* would give it.
func (r *rig) concatenated() string {
	r.t.Helper()
	names, err := filepath.Glob(filepath.Join(r.out, "[^.]*"))
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			r.t.Fatal(err)
		}
		b.Write(content)
	}
	return b.String()
}

// tree lists the visible files of the output with size and time.
func (r *rig) tree() string {
	r.t.Helper()
	entries, err := os.ReadDir(r.out)
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			r.t.Fatal(err)
		}
		if !strings.HasPrefix(e.Name(), ".") {
			b.WriteString(strings.Join([]string{e.Name(), info.ModTime().String(), info.Mode().String()}, " ") + "\n")
		}
	}
	return b.String()
}
