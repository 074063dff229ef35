package main

import (
	"os"
	"strings"
	"testing"
)

// TestOptionsOfTheDocumentation: every option that a store asks for is in README.md.
func TestOptionsOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for scheme, names := range map[string][]string{
		"file":     fileOptionNames(t),
		"postgres": ourOptions(func(e endpoint) map[string][]string { _, rest, _ := postgresOptions(e); return rest }),
		"redis":    ourOptions(func(e endpoint) map[string][]string { _, _, rest, _ := redisOptions(e); return rest }),
	} {
		row := ""
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "| `"+scheme+"` |") {
				row = line
			}
		}
		for _, name := range names {
			if !strings.Contains(row, "`"+name+"`") {
				t.Errorf("README.md does not have option %s of %s", name, scheme)
			}
		}
	}
}

// fileOptionNames are the names in the refusal of an unknown one.
func fileOptionNames(t *testing.T) []string {
	t.Helper()
	_, err := openFile(t.Context(), endpoint{scheme: "file", path: t.TempDir(), query: map[string][]string{"?": {""}}}, nil)
	if err == nil {
		t.Fatal("an unknown option is accepted")
	}
	_, names, _ := strings.Cut(err.Error(), "there are ")
	return strings.Split(names, ", ")
}

// ourOptions are those of many names that do not stay in the rest.
func ourOptions(rest func(endpoint) map[string][]string) []string {
	names := []string{"table", "schema", "mode", "key", "columns", "create", "rest", "tombstone", "ledger", "create-ledger", "step-bytes",
		"chunked", "op", "value", "field", "score", "prefix", "wait-replicas", "wait-aof", "wait-timeout", "force-eviction", "sslmode"}
	query := map[string][]string{}
	for _, name := range names {
		query[name] = []string{""}
	}
	left := rest(endpoint{query: query})
	var ours []string
	for _, name := range names {
		if _, stays := left[name]; !stays {
			ours = append(ours, name)
		}
	}
	return ours
}
