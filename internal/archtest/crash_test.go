package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A point is a crash point as internal/crash declares it.
type point struct {
	number int
	ident  string
	name   string
}

// points reads the constants of internal/crash; the number begins the comment.
func points(t *testing.T) []point {
	t.Helper()
	pkgs := packages(t)
	i := slices.IndexFunc(pkgs, func(p pkg) bool { return p.rel() == "internal/crash" })
	_, files := parse(t, pkgs[i])
	var found []point
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.ValueSpec)
			if !ok || len(s.Values) != 1 || s.Comment == nil {
				return true
			}
			var p point
			p.ident = s.Names[0].Name
			p.name, _ = strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
			if _, err := fmt.Sscan(s.Comment.Text(), &p.number); err != nil {
				t.Errorf("crash.%s: its comment does not begin with its number", p.ident)
			}
			found = append(found, p)
			return true
		})
	}
	if len(found) == 0 {
		t.Fatal("internal/crash declares nothing")
	}
	return found
}

// Each crash point is a row of the table in docs/reliability.md, and the other way
// round.
func TestCrashPointsAreInTheTable(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root(t), "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| (\\d+) \\| `([a-z-]+)` \\|")
	rows := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		rows[m[2]] = m[1]
	}
	for _, p := range points(t) {
		if rows[p.name] != strconv.Itoa(p.number) {
			t.Errorf("docs/reliability.md has no row | %d | `%s` |", p.number, p.name)
		}
		delete(rows, p.name)
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.Errorf("docs/reliability.md has a row for %s, which does not exist", name)
	}
}

// Each crash point is somewhere in the code.
func TestCrashPointsAreUsed(t *testing.T) {
	used := uses(t, "crash")
	for _, p := range points(t) {
		if len(used[p.ident]) == 0 {
			t.Errorf("crash.%s (%d, %s) is nowhere in the code", p.ident, p.number, p.name)
		}
	}
}

// Each planted bug is somewhere in the code.
func TestPlantedBugsAreUsed(t *testing.T) {
	pkgs := packages(t)
	i := slices.IndexFunc(pkgs, func(p pkg) bool { return p.rel() == "internal/plant" })
	_, files := parse(t, pkgs[i])
	used := uses(t, "plant")
	for _, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				v, ok := s.(*ast.ValueSpec)
				if ok && len(used[v.Names[0].Name]) == 0 {
					t.Errorf("plant.%s is nowhere in the code", v.Names[0].Name)
				}
			}
		}
	}
}

// uses maps each name of an internal package to the packages whose non-test files
// mention it.
func uses(t *testing.T, of string) map[string][]string {
	t.Helper()
	used := map[string][]string{}
	for _, p := range packages(t) {
		if strings.HasPrefix(p.rel(), "internal/") || p.Name == "main" || strings.HasPrefix(p.rel(), "integration") {
			continue
		}
		_, files := parse(t, p)
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == of {
						used[s.Sel.Name] = append(used[s.Sel.Name], p.rel())
					}
				}
				return true
			})
		}
	}
	return used
}
