package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestOperationsPageHasEveryRefusal: docs/operations.md has a section per exit code, and in
// it the text of each error that ends so.
func TestOperationsPageHasEveryRefusal(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	got, want := map[string]bool{}, map[string]bool{}
	section := ""
	heading := regexp.MustCompile(`^### (\d+ .+)$`)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := heading.FindStringSubmatch(line); m != nil {
			section = m[1]
			got[section] = true
		} else if strings.HasPrefix(line, "## ") {
			section = ""
		}
		item, _, found := strings.Cut(line, "`: ")
		if item, ok := strings.CutPrefix(item, "- `"); ok && found && section != "" {
			for name := range strings.SplitSeq(item, "`, `") {
				got[section+": "+name] = true
			}
		}
	}
	name := map[code]string{}
	for _, c := range codes {
		name[c.code] = fmt.Sprintf("%d %s", c.code, c.name)
		want[name[c.code]] = true
	}
	for _, s := range sentinels {
		want[name[s.code]+": "+s.err.Error()] = true
	}
	for _, row := range slices.Sorted(maps.Keys(want)) {
		if !got[row] {
			t.Errorf("docs/operations.md lacks %q", row)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(got)) {
		if !want[row] {
			t.Errorf("docs/operations.md has %q, the command has not", row)
		}
	}
}

// TestOperationsPageNamesWhatThereIs: every walsink command and flag on the page exists.
func TestOperationsPageNamesWhatThereIs(t *testing.T) {
	for _, page := range []string{"../../docs/operations.md", "../../docs/moving.md"} {
		commandsExist(t, page)
	}
}

func commandsExist(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	root := (&app{}).rootCommand()
	known := map[string]bool{}
	for _, c := range root.Commands() {
		known[c.Name()] = true
	}
	for _, m := range regexp.MustCompile("(?m)(?:`|^)walsink ([a-z]+)([^`#\n]*)").FindAllStringSubmatch(string(text), -1) {
		if !known[m[1]] {
			t.Errorf("%s: there is no walsink %s", page, m[1])
			continue
		}
		cmd, _, err := root.Find(append([]string{m[1]}, strings.Fields(m[2])...))
		if err != nil {
			t.Errorf("%s: %s: %v", page, m[0], err)
			continue
		}
		cmd.InheritedFlags()
		for _, f := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(m[2], -1) {
			if cmd.Flags().Lookup(f[1]) == nil {
				t.Errorf("%s: walsink %s has no flag --%s", page, cmd.Name(), f[1])
			}
		}
	}
}

// TestMovingPageIsValid: what docs/moving.md gives as a configuration is one.
func TestMovingPageIsValid(t *testing.T) {
	t.Setenv("PGPASSWORD", "secret")
	text, err := os.ReadFile("../../docs/moving.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(# walsink\n.*?)```").FindAllSubmatch(text, -1)
	if len(found) == 0 {
		t.Fatal("there is no configuration")
	}
	for _, m := range found {
		t.Chdir(t.TempDir())
		accepted(t, []string{"run", "--config", config(t, string(m[1]))})
	}
}
