package main

import (
	"strings"
	"testing"
)

// A command that is printed to be copied names the user, and no secret.
func TestResetCommandHidesSecretsAlone(t *testing.T) {
	for to, want := range map[string]string{
		"postgres://me:hunter2@db.example:5432/events?table=t": "postgres://me:REDACTED@db.example:5432/events?table=t",
		"postgres://me:hunt@er2@db.example/events?table=t":     "postgres://me:REDACTED@db.example/events?table=t",
		"postgres://me@db.example/events?table=t":              "postgres://me@db.example/events?table=t",
		"postgres:///events?table=t&password=hunter2":          "postgres:///events?table=t&password=REDACTED",
		"redis://:hunter2@127.0.0.1:6379/0?key=k:{id}":         "redis://:REDACTED@127.0.0.1:6379/0?key=k:{id}",
		"file:out?format=ndjson":                               "file:out?format=ndjson",
	} {
		to, err := parseTarget(to)
		if err != nil {
			t.Fatal(err)
		}
		o := &output{target: to, place: place{state: "state", id: "walsink"}}
		got := o.resetCommand(&job{})
		if !strings.Contains(got, want) || strings.Contains(got, "hunt") {
			t.Errorf("got %q, want it to name %q", got, want)
		}
	}
}
