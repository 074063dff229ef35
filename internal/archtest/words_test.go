package archtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unwelcome is what ties a file to one machine, or to a server that some machines
// cannot reach.
var unwelcome = regexp.MustCompile(`(^|[^\w.])(/root/|/home/\w|/work/|/Users/\w)|\b(docker\.io|gcr\.io|ghcr\.io|quay\.io|mcr\.microsoft\.com)/|registry-1\.|deb\.debian\.org|proxy\.golang\.org`)

func TestNoMachineInFiles(t *testing.T) {
	dir := root(t)
	out, err := exec.Command("git", "-C", dir, "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		if name == "internal/archtest/words_test.go" || strings.HasPrefix(name, "examples/data/") || strings.Contains(name, "testdata/") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue // removed and not committed yet
		}
		for n, line := range bytes.Split(b, []byte("\n")) {
			if m := unwelcome.Find(line); m != nil {
				t.Errorf("%s:%d: %q", name, n+1, bytes.TrimSpace(m))
			}
		}
	}
}

// Nothing sleeps: code waits for its condition, and so do tests, or they live in a
// bubble where time costs nothing.
func TestNothingSleeps(t *testing.T) {
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles, p.TestGoFiles, p.XTestGoFiles) {
			b, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if p.rel() != "internal/archtest" && bytes.Contains(b, []byte("time.Sleep(")) && !bytes.Contains(b, []byte(`"testing/synctest"`)) {
				t.Errorf("%s/%s sleeps", p.rel(), name)
			}
		}
	}
}

func TestUnwelcomeBites(t *testing.T) {
	for s, want := range map[string]bool{
		"see /root/go/x": true, `dir := "/home/joe/src"`: true, "FROM gcr.io/x/y": true, "http://deb.debian.org/debian": true,
		"apt-get install docker.io": false, "/var/lib/work/x": false, "framework/": false, "https://pkg.go.dev/x": false,
	} {
		if got := unwelcome.MatchString(s); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}
