//go:build linux

package file

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/walsink/walsink/internal/crash"
)

// crashRow says how a crash point is reached on the way to files.
type crashRow struct {
	point crash.Name
	hits  []int    // which hits of the point are tried
	flags []string // beside crashFlags
	after string   // a crash before, which leaves something for the start to do
	skip  string   // why the point is never reached here; then nothing else is set
}

// crashFlags give several lanes, checkpoints, blocks and generations.
var crashFlags = []string{"--lanes", "2", "--checkpoint-records", "4000", "--checkpoint-interval", "1h"}

var crashTable = []crashRow{
	{point: crash.AppendBefore, hits: []int{1, 5001}},
	{point: crash.AppendBlock, hits: []int{1, 3}},
	{point: crash.AppendAfter, hits: []int{1, 5001}},
	{point: crash.SealFooter, hits: []int{1, 2, 3}},
	{point: crash.SealSynced, hits: []int{1, 2, 3}},
	{point: crash.AbortHalf, hits: []int{1}, after: "seal-synced:1"},
	{point: crash.CompleteReceived, hits: []int{1, 2}},
	{point: crash.FlushMarkRead, hits: []int{1, 2}},
	{point: crash.FlushBegun, hits: []int{1, 2}},
	{point: crash.FlushChunkFirst, skip: "files are written in one step, never in chunks"},
	{point: crash.FlushChunkLast, skip: "files are written in one step, never in chunks"},
	{point: crash.FlushMarkWritten, hits: []int{1, 2}},
	{point: crash.FlushSent, skip: "the commit of files is a rename, which has no answer that can be lost"},
	{point: crash.FlushAnswered, hits: []int{1, 2}},
	{point: crash.FlushNoted, hits: []int{1, 2}},
	{point: crash.DropHalf, hits: []int{1}, flags: dropFlags},
	{point: crash.DropDone, hits: []int{1}, flags: dropFlags},
	{point: crash.Rotated, hits: []int{1, 2}, flags: dropFlags},
	{point: crash.PruneBefore, hits: []int{1}, flags: pruneFlags},
	{point: crash.PruneAfter, hits: []int{1}, flags: pruneFlags},
	{point: crash.FileWritten, hits: []int{1, 2}},
	{point: crash.FileSynced, hits: []int{1, 2}},
	{point: crash.FileRenamed, hits: []int{1, 2}},
	{point: crash.FilePublish, hits: []int{1, 2}},
	{point: crash.OpenPending, hits: []int{1}},
	{point: crash.OpenFlushed, hits: []int{1, 2}, after: "flush-begun:1"},
	{point: crash.FenceRaised, hits: []int{1, 2}},
	{point: crash.CloseInside, hits: []int{1}},
}

// dropFlags make the log rotate and drop.
var dropFlags = []string{"--generation-size", "1MiB", "--retain", "0s"}

// pruneFlags make so many checkpoints that old manifests are removed.
var pruneFlags = []string{"--lanes", "1", "--checkpoint-records", "50"}

// TestCrashPoints kills the process at every named instant that it reaches on the
// way to files, and starts it again: the output is the input. C101, E03, Q03.
func TestCrashPoints(t *testing.T) {
	for _, row := range crashTable {
		for _, hit := range row.hits {
			t.Run(fmt.Sprintf("%s:%d", row.point, hit), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, crashBuild)
				r.flags = append(append(r.flags, crashFlags...), row.flags...)
				in := newInput(t, r.input, 30_000)
				if row.after != "" {
					r.crashAt(row.after)
				}
				r.crashAt(fmt.Sprintf("%s:%d", row.point, hit))
				if err := r.lanes().Sound(in.lines); err != nil {
					t.Fatalf("after the crash: %v", err)
				}
				r.env = nil
				r.run().want(t, exitOK)
				r.exact(in.lines)
			})
		}
	}
}

// TestCrashTwice kills the process again while it recovers. C101, Q03.
func TestCrashTwice(t *testing.T) {
	firsts := []string{"seal-synced:2", "complete-received:2", "flush-begun:2", "flush-mark-written:2", "file-renamed:2", "flush-answered:2", "flush-noted:2"}
	seconds := []crash.Name{crash.OpenPending, crash.FenceRaised, crash.FlushMarkRead, crash.FlushBegun, crash.FilePublish, crash.FileRenamed, crash.OpenFlushed, crash.CompleteReceived}
	if testing.Short() {
		firsts = firsts[3:5]
	}
	for _, first := range firsts {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, crashBuild)
			r.flags = append(r.flags, crashFlags...)
			in := newInput(t, r.input, 12_000)
			r.crashAt(first)
			for _, second := range seconds {
				r.env = []string{"WALSINK_CRASH=" + string(second)}
				if res := r.run(); res.code == exitOK {
					in.grow(t, 12_000)
				} else if res.code != exitKilled {
					t.Fatalf("%s: exit code %d\n%s", second, res.code, res.stderr)
				}
				if err := r.lanes().Sound(in.lines); err != nil {
					t.Fatalf("after %s: %v", second, err)
				}
			}
			r.env = nil
			if err := r.check(in.lines); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// crashAt runs the job to a hit of a crash point, which must come.
func (r *rig) crashAt(point string) {
	r.t.Helper()
	r.env = []string{"WALSINK_CRASH=" + point}
	if res := r.run(); res.code != exitKilled {
		r.t.Fatalf("%s was not reached: exit code %d\n%s", point, res.code, res.stderr)
	}
}

// TestCrashTableIsComplete compares the table with the points that there are.
func TestCrashTableIsComplete(t *testing.T) {
	rows := map[crash.Name]bool{}
	for _, row := range crashTable {
		if rows[row.point] || (row.skip == "") != (len(row.hits) > 0) {
			t.Errorf("row %s: twice, or neither hits nor a reason", row.point)
		}
		rows[row.point] = true
	}
	for _, name := range crashNames(t) {
		if !rows[crash.Name(name)] {
			t.Errorf("crash point %s has no row", name)
		}
	}
}

// crashNames are the constants of package crash.
func crashNames(t *testing.T) []string {
	t.Helper()
	src, err := os.ReadFile("../../internal/crash/crash.go")
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), "crash.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && !strings.Contains(s, "/") {
				names = append(names, s)
			}
		}
		return true
	})
	return names
}
