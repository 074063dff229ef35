package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

func TestStoresAreComplete(t *testing.T) {
	for _, s := range stores {
		if s.open == nil || s.name == nil || s.where == nil || !strings.HasPrefix(s.form, s.scheme+":") {
			t.Errorf("row %s is not complete", s.scheme)
		}
	}
}

func TestDefaultNames(t *testing.T) {
	tests := []struct{ dst, id, where string }{
		{"file:/data/out?format=csv", "walsink", "/data/out"},
		{"postgres://u:p@h:5432/db?table=events", "events", "//h:5432/db/.events"},
		{"postgres://h/db?table=events&schema=app", "app.events", "//h/db/app.events"},
		{"postgres://h/db?table=app.events", "app.events", "//h/db/app.events"},
		{"postgres://h/db?table=a.b&schema=app", "app.a.b", "//h/db/app.a.b"},
		{"redis://u:p@h:6379/2?op=hset&key=user:{id}", "hset-user__id_-c8340f98", "//h:6379/2?hset-user__id_-c8340f98"},
		{"redis://u:p@b:1,a:2?key=k", "set-k", "//a:2,b:1?set-k"},
	}
	for _, tt := range tests {
		target, err := parseTarget(tt.dst)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.defaultID(); got != tt.id {
			t.Errorf("%s: id %q, want %q", tt.dst, got, tt.id)
		}
		if target.where != tt.where {
			t.Errorf("%s: where %q, want %q", tt.dst, target.where, tt.where)
		}
		if err := (sinks.LaneID{Sink: target.defaultID(), Lane: "x"}).Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestStateNameIgnoresSecrets: another password is the same destination.
func TestStateNameIgnoresSecrets(t *testing.T) {
	for _, pair := range [][2]string{
		{"postgres://u:one@h/db?table=t", "postgres://v:two@h/db?table=t&sslmode=disable"},
		{"redis://u:one@h/1?key=k", "redis://u:two@h/1?key=k"},
		{"file:out", "file:./x/../out?compress=gzip"},
	} {
		a, err := parseTarget(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		b, err := parseTarget(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if a.stateName() != b.stateName() {
			t.Errorf("%q and %q: %s and %s", pair[0], pair[1], a.stateName(), b.stateName())
		}
	}
}

// TestNoSecretInErrors puts a canary where passwords are, through every error that
// needs no server, and one that needs none to answer.
func TestNoSecretInErrors(t *testing.T) {
	for _, dst := range []string{
		"postgres://u:canary@h/db",
		"postgres://u:canary@h/db?table=t&mode=merge",
		"postgres://u:canary@h/db?table=t&mode=upsert",
		"postgres://u:canary@h/db?table=t&port=canary",
		"postgres://u:canary@h:canary/db?table=t",
		"postgres://u:canary%zz@h/db?table=t",
		"postgres://u:canary@127.0.0.1:1/db?table=t&connect_timeout=1",
		"redis://u:canary@h/0",
		"redis://u:canary@h/canary?key=k",
		"redis://u:canary@h/0?key=k&op=flushall",
		"redis://u:canary@h/0?key=k{",
		"redis://u:canary@127.0.0.1:1/0?key=k",
		"mysql://u:canary@h/db",
	} {
		var out, errs bytes.Buffer
		c := run([]string{"ledger", "--to", dst}, strings.NewReader(""), &out, &errs)
		if c == codeOK || c == codeBug {
			t.Errorf("%s: code %d: %s", dst, c, errs.String())
		}
		if strings.Contains(out.String()+errs.String(), "canary") {
			t.Errorf("%s: the password is in %q", dst, errs.String())
		}
	}
}

func TestWithRest(t *testing.T) {
	a, rest := postgres.Column{Name: "a", Type: "text"}, postgres.Column{Name: "rest", Type: "jsonb"}
	for _, tt := range []struct {
		name          string
		columns, want []postgres.Column
	}{
		{"", []postgres.Column{a}, []postgres.Column{a}},
		{"rest", []postgres.Column{a}, []postgres.Column{a, rest}},
		{"a", []postgres.Column{a}, []postgres.Column{a}},
	} {
		if got := withRest(tt.columns, tt.name); !slices.Equal(got, tt.want) {
			t.Errorf("rest %q: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
