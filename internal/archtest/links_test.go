package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// link is a link to a file of the repository, with the names of tests that follow it.
	link     = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)((?:,? Test\w+)*)`)
	testName = regexp.MustCompile(`Test\w+`)
)

// TestLinks: what a page links to exists, and so do the tests that it names beside.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := filepath.Join(filepath.Dir(page), m[1])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			for _, name := range testName.FindAllString(m[2], -1) {
				if !hasTest(t, target, name) {
					t.Errorf("%s names %s, which %s has not", page, name, m[1])
				}
			}
		}
	}
}

// TestGuaranteesNameTheirTests: each row of the table of guarantees links to a test.
func TestGuaranteesNameTheirTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| guarantee | test |\n| --- | --- |\n")
	if !found {
		t.Fatal("docs/guarantees.md has no table of guarantees")
	}
	for row := range strings.Lines(table) {
		if !strings.HasPrefix(row, "|") {
			break
		}
		links := link.FindAllStringSubmatch(row, -1)
		if len(links) == 0 {
			t.Errorf("no test: %s", row)
		}
		for _, m := range links {
			if m[2] == "" && !strings.HasSuffix(m[1], ".txtar") {
				t.Errorf("%s: which test? %s", m[1], row)
			}
		}
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "cmd/walsink/*.md"} {
		names, err := filepath.Glob(filepath.Join(root(t), pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, names...)
	}
	return all
}

func hasTest(t *testing.T, file, name string) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == name {
			return true
		}
	}
	return false
}

func TestLinkBites(t *testing.T) {
	m := link.FindStringSubmatch("x [a](../b_test.go) TestA, TestB; [c](d)")
	if m == nil || m[1] != "../b_test.go" || strings.Join(testName.FindAllString(m[2], -1), " ") != "TestA TestB" {
		t.Errorf("%q", m)
	}
}
