//go:build linux

package file

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestF17BucketNames gives buckets names that would leave the directory, or that
// some system takes for something else: each is refused by record and reason, and
// nothing is written but what came before. F18.
func TestF17BucketNames(t *testing.T) {
	names := []string{
		`../../x`, `/etc/x`, `a/../../b`, `..`, `.`, ``, `a\u0000b`, `a\r\nb`, strings.Repeat("n", 300), `CON`, `nul.txt`, `.walsink`, `a b`, `ä`,
	}
	for i, name := range names {
		t.Run(fmt.Sprintf("%.12q", name), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, normalBuild)
			r.opts = "bucket={b}"
			writeFile(t, r.input, fmt.Sprintf("{\"b\":\"good\",\"n\":%d}\n{\"b\":\"%s\"}\n", i, name))
			res := r.run()
			res.want(t, exitInput, r.input+" record 2", "bucket field \"b\"", "what to do: ")
			entries, err := os.ReadDir(r.dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if n := e.Name(); n != "in.ndjson" && n != "out" && n != "state" {
					t.Errorf("%s was made outside of the output", n)
				}
			}
		})
	}
}

// TestF17PlantedLink puts a link where a bucket is to be.
func TestF17PlantedLink(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	r.opts = "bucket={b}"
	writeFile(t, r.input, "{\"b\":\"good\"}\n")
	elsewhere := t.TempDir()
	if err := os.Mkdir(r.out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(r.out, "good")); err != nil {
		t.Fatal(err)
	}
	r.run().want(t, exitStore, "good", "what to do: ")
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("behind the link: %v, %v", left, err)
	}
}

// TestF12ManyBucketsFewDescriptors writes 500 buckets in one checkpoint with 64
// descriptors.
func TestF12ManyBucketsFewDescriptors(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	r.opts = "bucket={b}"
	var want []string
	for i := range 5000 {
		want = append(want, fmt.Sprintf("{\"n\":%d,\"b\":%d}\n", i, i%500))
	}
	writeFile(t, r.input, strings.Join(want, ""))
	sh := "ulimit -n 64; exec \"$0\" \"$@\""
	out, err := exec.Command("sh", append([]string{"-c", sh, r.bin}, r.runArgs()...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.exact(want)
}

// TestF15CompressedAndKilled kills the process while it writes compressed parts:
// every part is one complete stream.
func TestF15CompressedAndKilled(t *testing.T) {
	for _, compress := range []string{"gzip", "zstd"} {
		t.Run(compress, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, normalBuild)
			r.flags, r.opts = killFlags, "compress="+compress
			k := newKiller(r, 8_000)
			for i := range cycles(30) {
				if !k.cycle() {
					t.Fatalf("cycle %d: %s", i, k.refused)
				}
				if err := r.lanes().Sound(k.in.lines); err != nil {
					t.Fatalf("cycle %d: %v", i, err)
				}
			}
			if err := r.check(k.in.lines); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestF08TempElsewhere has the directory for temporary files on another file
// system, and an output that is a mount point itself.
func TestF08TempElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	newSmall(t, r.out, "64m")
	r.env = []string{"TMPDIR=/dev/shm"}
	in := newInput(t, r.input, 1000)
	r.run().want(t, exitOK)
	r.exact(in.lines)
}
