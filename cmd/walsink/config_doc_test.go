package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestConfigurationPage: docs/configuration.md has a row for every key of the decoder,
// with its default, and no other row.
func TestConfigurationPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "## Keys of the job")
	job, rest, _ := strings.Cut(page, "## Keys of an output")
	each, _, _ := strings.Cut(rest, "## Several outputs")

	var f jobFlags
	f.register(&cobra.Command{}, "")
	own := entryFlags()
	compareRows(t, "the job", rowsOf(job), f.all, func(name string) bool { return name == "to" || own.Lookup(name) == nil }, "outputs")
	compareRows(t, "an output", rowsOf(each), own, func(string) bool { return true }, "options")
}

// rowsOf returns the defaults of a table, by key.
func rowsOf(text string) map[string]string {
	rows := map[string]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		if name, ok := strings.CutPrefix(cells[0], "| `"); ok && len(cells) == 3 {
			rows[strings.TrimSuffix(name, "`")] = strings.Trim(cells[1], "`")
		}
	}
	return rows
}

func compareRows(t *testing.T, of string, rows map[string]string, keys *pflag.FlagSet, listed func(string) bool, also string) {
	t.Helper()
	if _, ok := rows[also]; !ok {
		t.Errorf("keys of %s: no row of %s", of, also)
	}
	delete(rows, also)
	keys.VisitAll(func(flag *pflag.Flag) {
		if !listed(flag.Name) {
			return
		}
		def, ok := rows[flag.Name]
		delete(rows, flag.Name)
		fixed := flag.DefValue != "" && flag.DefValue != "[]"
		if !ok || fixed && def != flag.DefValue {
			t.Errorf("keys of %s: %s has the row %q, want the default %s", of, flag.Name, def, flag.DefValue)
		}
	})
	for name := range rows {
		t.Errorf("keys of %s: %s is no key", of, name)
	}
}
