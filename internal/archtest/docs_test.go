package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// parse parses the non-test files of the package, those of other build tags
// included.
func parse(t *testing.T, p pkg) (*token.FileSet, []*ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range append(p.GoFiles, p.IgnoredGoFiles...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return fset, files
}

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command " + filepath.Base(p.ImportPath) + " "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: the package comment begins with %q, want %q", p.ImportPath, p.Doc, want)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, p := range packages(t) {
		if p.Name == "main" {
			continue
		}
		fset, files := parse(t, p)
		for _, f := range files {
			for _, id := range undocumented(f) {
				t.Errorf("%s: %s has no comment", fset.Position(id.Pos()), id.Name)
			}
		}
	}
}

// undocumented returns the exported names of the file without a comment. One on a
// group stands for all in it, and one on an interface for its only method. A field,
// and a method of a type that is not exported, need none.
func undocumented(f *ast.File) []*ast.Ident {
	var found []*ast.Ident
	check := func(id *ast.Ident, docs ...*ast.CommentGroup) {
		for _, d := range docs {
			if d.Text() != "" {
				return
			}
		}
		if id.IsExported() {
			found = append(found, id)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || receiver(d).IsExported() {
				check(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, id := range s.Names {
						check(id, s.Doc, s.Comment, d.Doc)
					}
				case *ast.TypeSpec:
					check(s.Name, s.Doc, d.Doc)
					if it, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() && it.Methods.NumFields() > 1 {
						for _, m := range it.Methods.List {
							for _, id := range m.Names {
								check(id, m.Doc, m.Comment)
							}
						}
					}
				}
			}
		}
	}
	return found
}

// receiver returns the name of the type that the method belongs to.
func receiver(d *ast.FuncDecl) *ast.Ident {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x
		default:
			return ast.NewIdent("_")
		}
	}
}

func TestUndocumentedBites(t *testing.T) {
	const src = `package p
func A() {}
// B has one.
func B() {}
type T struct{}
func (t *T) M() {}
type u struct{}
func (u) M() {}
const (
	C = 1
	D = 2 // has one
)
// I has one.
type I interface { N(); O() }
// J has one.
type J interface { P() }
func c() {}
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, id := range undocumented(f) {
		names = append(names, id.Name)
	}
	if got := strings.Join(names, " "); got != "A T M C N O" {
		t.Errorf("undocumented: %s", got)
	}
}

// A file that does not fit into one's head is cut.
func TestFileLength(t *testing.T) {
	const limit = 600
	for _, p := range packages(t) {
		for _, name := range append(append(p.GoFiles, p.TestGoFiles...), p.XTestGoFiles...) {
			b, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(b), "\n"); n > limit {
				t.Errorf("%s/%s has %d lines, more than %d", p.rel(), name, n, limit)
			}
		}
	}
}

// Every module that go.mod names directly has a line in docs/dependencies.md, and
// nothing else has.
func TestDependenciesAreExplained(t *testing.T) {
	root := root(t)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mod)) {
		f := strings.Fields(line)
		if len(f) == 2 && strings.HasPrefix(f[1], "v") && !strings.Contains(string(doc), "| "+f[0]+" |") {
			t.Errorf("docs/dependencies.md has no line for %s", f[0])
		}
	}
	for line := range strings.Lines(string(doc)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " ")
		if strings.Contains(name, "/") && strings.HasPrefix(line, "| ") && !strings.Contains(string(mod), "\t"+name+" v") {
			t.Errorf("docs/dependencies.md has a line for %s, which go.mod does not name", name)
		}
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
