package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// configured loads a configuration file with the text, and flags beside it.
func configured(t testing.TB, text string, flags ...string) (*job, *jobFlags, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var f jobFlags
	cmd := &cobra.Command{}
	f.register(cmd, "to write to")
	if err := cmd.Flags().Parse(append([]string{"--config", path}, flags...)); err != nil {
		t.Fatal(err)
	}
	j, err := f.load()
	return j, &f, err
}

const twoOutputs = `
from: ndjson:a.ndjson
lanes: 4
max-bytes: 1GiB
retain: 5m
state: st
outputs:
  - name: one
    to: file:out
    options: {format: csv, columns: [a, b], part-bytes: 4096}
    retain: 7m
  - to: redis://h/0?op=set
    options:
      key: k:{id}
    id: mine
    state: elsewhere
`

func TestConfigFills(t *testing.T) {
	j, _, err := configured(t, twoOutputs)
	if err != nil {
		t.Fatal(err)
	}
	one, two := j.outputs[0], j.outputs[1]
	if !slices.Equal(j.from, []string{"ndjson:a.ndjson"}) || j.lanes != 4 || j.interval != time.Second || len(j.outputs) != 2 {
		t.Errorf("job %+v", j)
	}
	if one.name != "one" || one.id != "walsink" || one.state != filepath.Join("st", "one") || one.log.maxBytes != 1<<30 || one.log.retain != 7*time.Minute {
		t.Errorf("one %+v", one)
	}
	if q := one.target.query; q.Get("format") != "csv" || q.Get("columns") != "a,b" || q.Get("part-bytes") != "4096" {
		t.Errorf("options of one: %v", q)
	}
	if two.name != "redis" || two.id != "mine" || two.state != "elsewhere" || two.log.retain != 5*time.Minute || two.target.query.Get("op") != "set" {
		t.Errorf("two %+v", two)
	}
}

// TestFlagsGoBeforeTheFile: also before what an output says of its own.
func TestFlagsGoBeforeTheFile(t *testing.T) {
	j, _, err := configured(t, twoOutputs, "--lanes", "2", "--retain", "1h", "--from", "x.ndjson", "--from", "y.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	if j.lanes != 2 || !slices.Equal(j.from, []string{"x.ndjson", "y.ndjson"}) || j.outputs[0].log.retain != time.Hour || j.outputs[1].log.retain != time.Hour {
		t.Errorf("%+v", j)
	}
	j, _, err = configured(t, twoOutputs, "--to", "a=file:x", "--to", "b=file:y")
	if err != nil || len(j.outputs) != 2 || j.outputs[0].name != "a" || j.outputs[1].to != "file:y" || j.outputs[1].state != filepath.Join("st", "b") {
		t.Errorf("%+v, %v", j, err)
	}
	if err := j.pick([]string{"b"}); err != nil || len(j.outputs) != 1 || j.outputs[0].name != "b" {
		t.Errorf("picked %+v, %v", j.outputs, err)
	}
	if err := j.pick([]string{"c"}); classify(err) != codeUsage || !strings.Contains(err.Error(), "there are b") {
		t.Error(err)
	}
}

// TestConfigRefusals: an error names file, line and key, and says what is allowed; nothing
// of the environment is in it.
func TestConfigRefusals(t *testing.T) {
	t.Setenv("CANARY", "canary-7f3a")
	t.Setenv("UNSET", "")
	os.Unsetenv("UNSET")
	outputs := "outputs:\n  - to: file:out\n"
	for text, want := range map[string]string{
		"lans: 1":                       `c.yaml:1: unknown key "lans": there are accept-duplicates`,
		"\n\nlanes: many":               "c.yaml:3: lanes: text: want a whole number",
		"lanes: 1.5":                    "c.yaml:1: lanes: a number: want a whole number",
		"lanes: '2'":                    "c.yaml:1: lanes: text: want a whole number",
		"lanes: [1]":                    "c.yaml:1: lanes: a list: want a whole number",
		"lanes:":                        "c.yaml:1: lanes: nothing: want a whole number",
		"lanes: 0":                      "c.yaml:1: lanes: 0: want 1 or more",
		"lanes: 99999999999999999999":   "c.yaml:1: lanes:",
		"lanes: ${CANARY}":              "c.yaml:1: lanes: ${CANARY}: want a whole number",
		"lanes: ${LANES:-0}":            "c.yaml:1: lanes: ${LANES:-0}: want 1 or more",
		"lane-by: ${CANARY}":            "c.yaml:1: lane-by: ${CANARY}: want round-robin or key:FIELD",
		"require: ${CANARY}":            "c.yaml:1: require: ${CANARY}: want exactly-once",
		"follow: yes":                   "c.yaml:1: follow: text: want true or false",
		"checkpoint-records: -1":        "c.yaml:1: checkpoint-records: -1: want a whole number, 0 or more",
		"checkpoint-interval: 5":        "c.yaml:1: checkpoint-interval: 5: want a duration",
		"checkpoint-interval: -5s":      "c.yaml:1: checkpoint-interval: -5s: want 0 or more",
		"drain-timeout: 0s":             "c.yaml:1: drain-timeout: 0s: want more than 0",
		"max-record: big":               "c.yaml:1: max-record: big: want a size",
		"from: {a: b}":                  "c.yaml:1: from: keys below it: want text, or a list of texts",
		"from:\n  - a\n  - 3":           "c.yaml:3: from: a number: want text, or a list of texts",
		"from: xml:a\n" + outputs:       "",
		"lanes: 1\nlanes: 2":            "c.yaml:2: not YAML: mapping key",
		"a: &x 1":                       `c.yaml:1: unknown key "a"`,
		"lanes: &x 1":                   "c.yaml:1: lanes: an anchor",
		"lanes: !!int 1":                "c.yaml:1: lanes: an anchor, alias or tag",
		"<<: {lanes: 1}":                "c.yaml:1: ",
		"lanes: 1\n---\nlanes: 2":       "c.yaml:3: a second document",
		"[a, b]":                        "c.yaml:1: the file: a list: want KEY: VALUE",
		"id: 'a":                        "c.yaml:1: not YAML",
		"\tlanes: 1":                    "c.yaml:1: not YAML",
		"id: $x":                        "c.yaml:1: id: a dollar sign: want ${NAME}",
		"id: ${x":                       "c.yaml:1: id: a dollar sign",
		"id: ${}":                       "c.yaml:1: id: ${...}: the name of a variable",
		"\nid: ${UNSET}":                "c.yaml:2: id: the environment has no UNSET: set it, or write ${UNSET:-DEFAULT}",
		"id: a/b\n" + outputs:           `c.yaml:1: id: sink id "a/b"`,
		"id: a/${CANARY}\n" + outputs:   `c.yaml:1: id: sink id "a/${CANARY}"`,
		"start: later\n" + outputs:      `c.yaml:1: start: "later": want beginning or now`,
		"max-bytes: 1MiB\n" + outputs:   "c.yaml:1: max-bytes: 1MiB: want 4 MiB or more",
		outputs + "    retain: -1s":     "c.yaml:3: retain: -1s: want 0 or more",
		outputs + "    lanes: 1":        `c.yaml:3: unknown key "lanes": there are accept-duplicates`,
		outputs + "    name: a b":       "c.yaml:3: name: a b: want letters",
		outputs + "to: file:x":          "c.yaml: to and outputs say the same",
		"outputs: 3":                    "c.yaml:1: outputs: want a list of outputs",
		"outputs: []":                   "c.yaml:1: outputs: want a list of outputs",
		"outputs:\n  - 3":               "c.yaml:2: an item of outputs: a number: want KEY: VALUE",
		"outputs:\n  - name: a":         "c.yaml:2: outputs: to is missing",
		outputs + "    options: 3":      "c.yaml:3: options: a number: want KEY: VALUE",
		outputs + "    options: {x: 3}": "c.yaml:3: options: x: unknown: there are bucket",
		outputs + "    options:\n      format: xml":                                             `c.yaml:4: options: format: "xml" is not one of ndjson`,
		outputs + "    options:\n      format: ${CANARY}":                                       `c.yaml:4: options: format: "${CANARY}" is not one of ndjson`,
		outputs + "    options:\n      format: {}":                                              "c.yaml:4: format: keys below it: want text",
		"outputs:\n  - to: out":                                                                 `c.yaml:2: to: "out": want SCHEME:WHERE`,
		"outputs:\n  - to: ${CANARY}":                                                           `c.yaml:2: to: "${CANARY}": want SCHEME:WHERE`,
		"outputs:\n  - to: ftp:out":                                                             `c.yaml:2: to: unknown scheme "ftp"`,
		"outputs:\n  - to: postgres://u:${CANARY}@h/d":                                          "c.yaml:2: to: postgres: option table: is missing",
		"outputs:\n  - to: postgres://u:${CANARY}@h:x/d?table=t":                                "c.yaml:2: to: postgres: the address is not a URL",
		"outputs:\n  - to: redis://h/0\n    options:\n      key: a{\n      value: '{${CANARY}'": "c.yaml:2: to:",
		"outputs:\n  - to: file:a\n  - to: file:b":                                              "c.yaml:3: to: name file: two outputs are called so",
		"outputs:\n  - {name: a, to: file:x}\n  - {name: b, to: file:x}":                        "c.yaml:3: to: id walsink: outputs a and b may share a ledger",
		"outputs:\n  - {name: a, to: file:x, state: s}\n  - {name: b, to: file:y, state: ./s}":  "c.yaml:3: state: ./s: outputs a and b would share it",
	} {
		_, _, err := configured(t, text)
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if classify(err) != codeUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: a secret in %v", text, err)
		}
	}
}

// TestExpand: what is put in is a value, whatever is in it.
func TestExpand(t *testing.T) {
	env := map[string]string{"A": "x", "EMPTY": "", "NASTY": "a: [b, \"c\n- d ${A} @/?&#%", "n_1": "y"}
	x := expander{func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	for text, want := range map[string]string{
		"":                    "",
		"plain {id}":          "plain {id}",
		"${A}${n_1}":          "xy",
		"a${A}b$$c$${A}":      "axb$c${A}",
		"${NO:-def}":          "def",
		"${EMPTY:-def}":       "def",
		"${EMPTY}":            "",
		"${A:-}":              "x",
		"${NO:-}":             "",
		"${NO:-a:-b $ {x}":    "a:-b $ {x",
		"${NASTY}":            env["NASTY"],
		"postgres://u:${A}@h": "postgres://u:x@h",
		"postgres://u:${NASTY}@h/d?t=${NASTY}": "postgres://u:a%3A%20%5Bb%2C%20%22c%0A-%20d%20%24%7BA%7D%20%40%2F%3F%26%23%25@h/d?t=" +
			"a%3A%20%5Bb%2C%20%22c%0A-%20d%20%24%7BA%7D%20%40%2F%3F%26%23%25",
		"file:${NASTY}": "file:" + env["NASTY"],
	} {
		got, expanded, err := x.expand(text, inDST(text))
		if err != nil || got != want || expanded != strings.Contains(strings.ReplaceAll(text, "$$", ""), "${") {
			t.Errorf("%q: got %q, %v, %v, want %q", text, got, expanded, err, want)
		}
	}
}

// TestSecretsOfTheEnvironment reach the store's client as they are, and no output.
func TestSecretsOfTheEnvironment(t *testing.T) {
	secret := `c@nary: "/?&#%+ {x}`
	t.Setenv("SECRET", secret)
	text := "from: a.ndjson\noutputs:\n  - to: postgres://u:${SECRET}@h/d\n    options: {table: t}\n" +
		"  - to: redis://:${SECRET}@h/0\n    options: {key: k}\n  - name: three\n    to: postgres://u@h/d\n    options: {table: v, password: '${SECRET}'}\n" +
		"  - name: four\n    to: postgres://u:literal-canary@h/d?table=w&sslpassword=literal-canary\n"
	j, f, err := configured(t, text)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		_, rest, err := postgresOptions(j.outputs[i].target.endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if conf, err := postgresConfig(j.outputs[i].target.endpoint, rest); err != nil || conf.ConnConfig.Password != secret {
			t.Errorf("output %d: password %q, %v", i, conf.ConnConfig.Password, err)
		}
	}
	var out bytes.Buffer
	a := &app{out: &out, err: &out}
	if err := a.validate(j, f, true); err != nil || strings.Contains(out.String(), "nary") {
		t.Errorf("printed, %v:\n%s", err, &out)
	}
}

// TestPrintIsAConfiguration: what is printed is read back as the same job.
func TestPrintIsAConfiguration(t *testing.T) {
	printed := func(text string, flags ...string) string {
		t.Helper()
		j, f, err := configured(t, text, flags...)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := (&app{out: &out, err: &out}).validate(j, f, true); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	once := printed(twoOutputs, "--max-record", "4095KiB", "--checkpoint-interval", "90s", "--dead-letters", "--lane-by", "key:a: $b")
	for _, want := range []string{"max-record: 4193280B", "checkpoint-interval: 1m30s", "dead-letters: true", "key:a: $$b", "state: st/one", "retain: 7m0s"} {
		if !strings.Contains(once, want) {
			t.Errorf("%q is not in\n%s", want, once)
		}
	}
	if twice := printed(once); twice != once {
		t.Errorf("printed\n%s\nread and printed again\n%s", once, twice)
	}
}

// FuzzConfig: any file is a job or an error that names the file.
func FuzzConfig(f *testing.F) {
	f.Add(twoOutputs)
	for _, path := range []string{"walsink.yaml", "stores.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../examples/config", path))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("a: &a [*a]\n? {b: c}\n: !!x \"\\x\"\n<<: *a\n--- |\n %TAG\n")
	top := new(jobFlags)
	top.register(&cobra.Command{}, "")
	f.Fuzz(func(t *testing.T, text string) {
		d := decoder{path: "c.yaml", expander: expander{func(string) (string, bool) { return "v", true }}, top: top.all, each: entryFlags()}
		if _, err := d.document([]byte(text)); err != nil && (classify(err) != codeUsage || !strings.HasPrefix(err.Error(), "c.yaml:")) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
