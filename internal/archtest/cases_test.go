package archtest

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ids are the behaviours (C) and faults (E, B, P, R, F, Q, K) that the project is
// held to, one a line.
//
//go:embed testdata/ids.txt
var ids string

// reason is a row of the table in docs/guarantees.md.
var reason = regexp.MustCompile(`(?m)^\| ((?:[A-Z]\d{2,3}(?:, )?)+) \| .+ \|$`)

// TestEveryCaseIsTested: each id is in the name, the comment or a text of a test,
// or has a line in docs/guarantees.md that says why not.
func TestEveryCaseIsTested(t *testing.T) {
	tested := testedIDs(t)
	doc, err := os.ReadFile(filepath.Join(root(t), "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	excused := map[string]bool{}
	for _, row := range reason.FindAllStringSubmatch(string(doc), -1) {
		for id := range strings.SplitSeq(row[1], ", ") {
			excused[id] = true
		}
	}
	for id := range strings.FieldsSeq(ids) {
		if !tested[id] && !excused[id] {
			t.Errorf("%s: no test names it, and docs/guarantees.md does not say why", id)
		}
		if tested[id] && excused[id] {
			t.Errorf("%s: a test names it, and docs/guarantees.md says that there is none", id)
		}
		delete(excused, id)
	}
	for id := range excused {
		t.Errorf("docs/guarantees.md excuses %s, which is not in the list", id)
	}
}

// testedIDs are the ids that test functions name.
func testedIDs(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root(t), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "archtest") {
			err = inFile(path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func inFile(path string, found map[string]bool) error {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(fn.Name.Name, "Test") && !strings.HasPrefix(fn.Name.Name, "Fuzz") {
			continue
		}
		texts := []string{strings.TrimPrefix(fn.Name.Name, "Test"), fn.Doc.Text()}
		ast.Inspect(fn, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				texts = append(texts, lit.Value)
			}
			return true
		})
		for _, c := range f.Comments {
			if fn.Pos() <= c.Pos() && c.Pos() < fn.End() {
				texts = append(texts, c.Text())
			}
		}
		for _, id := range idIn(texts) {
			found[id] = true
		}
	}
	return nil
}

var anID = regexp.MustCompile(`[CEBPRFQK]\d{2,3}`)

// idIn returns the ids in texts. An id is not followed by a digit, nor part of a
// longer word in capitals and digits, as a hash is, unless that is another id.
func idIn(texts []string) (out []string) {
	for _, text := range texts {
		end := 0
		for _, at := range anID.FindAllStringIndex(text, -1) {
			before := end
			end = at[1]
			if at[0] > before && strings.ContainsAny(text[at[0]-1:at[0]], "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") {
				continue
			}
			if at[1] < len(text) && strings.ContainsAny(text[at[1]:at[1]+1], "0123456789") {
				continue
			}
			out = append(out, text[at[0]:at[1]])
		}
	}
	return out
}

func TestIDInBites(t *testing.T) {
	for text, want := range map[string]string{
		"C021AbortNeverDiscards": "C021", "TestB17": "B17", "see C016, C017": "C016 C017", "AC021": "", "C0211": "", "0xC021": "C021",
		"TestC032C040Fail": "C032 C040",
	} {
		if got := strings.Join(idIn([]string{text}), " "); got != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}
