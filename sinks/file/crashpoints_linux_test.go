//go:build crashpoints

package file

import (
	"fmt"
	"testing"

	"github.com/walsink/walsink/internal/crash"
)

// C101 and F15: a process dies at each crash point of this package, at its first to
// fourth hit, and the one after it at another point; then one finishes the work.
func TestC101F15CrashPoints(t *testing.T) {
	points := []crash.Name{crash.FlushBegun, crash.FileWritten, crash.FileSynced, crash.FlushMarkWritten,
		crash.FilePublish, crash.FileRenamed, crash.PruneBefore, crash.PruneAfter}
	for _, compress := range []string{"", "gzip", "zstd"} {
		for i, first := range points {
			for hit := 1; hit <= 4; hit++ {
				name := fmt.Sprintf("%s %s:%d", compress, first, hit)
				t.Run(name, func(t *testing.T) { crashTwice(t, compress, first, points[(i+hit)%len(points)], hit) })
			}
		}
	}
}

func crashTwice(t *testing.T, compress string, first, second crash.Name, hit int) {
	batches := 5
	if first == crash.PruneBefore || first == crash.PruneAfter {
		batches = foldEvery*hit + 2
	}
	dir := scratch(t)
	j := job{Dir: dir, Batches: batches, Opts: Options{Compress: compress}}
	_, last := start(t, j, fmt.Sprintf("WALSINK_CRASH=%s:%d", first, hit)).wait()
	if last == "done" {
		t.Fatal("the crash point was not hit")
	}
	start(t, j, fmt.Sprintf("WALSINK_CRASH=%s:%d", second, 1)).wait()
	if _, last := start(t, j).wait(); last != "done" {
		t.Fatal(last)
	}
	wantConcat(t, dir, newSource(batches).upTo(uint64(batches)))
	wantNoStaging(t, dir)
}
