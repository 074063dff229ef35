package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/walsink/walsink"

// A rule says what the packages that a pattern of path.Match names may import.
type rule struct {
	pattern string
	own     []string // of this module, below its root; "" is the root; patterns
	foreign []string // modules of others, by prefix
}

// instruments may be used everywhere: they are nothing in a normal build.
var instruments = []string{"internal/crash", "internal/plant"}

// The rules, the first that matches counts. A package without a rule is an error.
var rules = []rule{
	{"record", nil, []string{"github.com/cespare/xxhash/v2"}},
	{"checkpoint", nil, nil},
	{"checkpoint/*", []string{"checkpoint"}, nil},
	{"internal/seam", []string{"record", "committer", "wal"}, nil},
	{"internal/*", nil, nil},
	{"sinks", []string{"record"}, nil},
	{"sinks/sinktest", []string{"record", "sinks"}, nil},
	{"sinks/memory", []string{"record", "sinks"}, nil},
	{"sinks/file", []string{"record", "sinks"}, []string{"github.com/cespare/xxhash/v2", "github.com/klauspost/compress", "golang.org/x/sync", "golang.org/x/sys"}},
	{"sinks/postgres", []string{"record", "sinks"}, []string{"github.com/jackc/pgx/v5"}},
	{"sinks/redis", []string{"record", "sinks", "internal/jsontext"}, []string{"github.com/redis/go-redis/v9"}},
	{"faults", []string{"record", "sinks"}, nil},
	{"wal", []string{"record"}, []string{"github.com/dgraph-io/badger/v4", "golang.org/x/sys"}},
	{"committer", []string{"record", "sinks"}, nil},
	{"committer/*", []string{"record", "sinks", "committer"}, nil},
	{"", []string{"record", "sinks", "committer", "wal", "internal/seam"}, nil},
	{"pipeline", []string{"", "record", "sinks", "committer", "checkpoint"}, []string{"github.com/cespare/xxhash/v2"}},
	{"pipeline/state", []string{"committer", "pipeline", "checkpoint", "record"}, []string{"github.com/dgraph-io/badger/v4"}},
	{"sources", []string{"record", "committer", "pipeline", "checkpoint", "internal/jsontext"}, []string{"github.com/cespare/xxhash/v2", "github.com/klauspost/compress"}},
	{"sources/*", []string{"record", "committer", "pipeline", "checkpoint", "sources"}, []string{"github.com/twmb/franz-go"}},
	{"telemetry", []string{"", "record", "sinks", "committer"}, []string{"go.opentelemetry.io/otel"}},
	{"cmd/*", []string{"*", "*/*", "cmd/*/*"}, []string{""}},
	{"cmd/*/*", []string{"*", "*/*", "*/*/*"}, []string{""}},
	{"integration/*", []string{"*", "*/*"}, []string{""}},
	{"examples/*", []string{"*", "*/*"}, []string{""}},
	{"tools/*", []string{"internal/campaign"}, nil},
}

// notInCore are packages of the standard library that a core package has no use
// for: flags and a global log are for commands, testing for tests.
var notInCore = []string{"flag", "log", "expvar", "net/http", "testing", "os/signal", "plugin"}

// mayTest are packages made to be imported by tests.
var mayTest = []string{"sinks/sinktest", "internal/loopdev", "internal/campaign", "internal/paired", "committer/committertest", "checkpoint/checkpointtest"}

// A pkg is what go list says about a package.
type pkg struct {
	ImportPath, Name, Dir, Doc                         string
	GoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
	Imports                                            []string
	Deps                                               []string
}

// rel is the path below the module's root; "" for the root.
func (p pkg) rel() string { return rel(p.ImportPath) }

func rel(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func isOwn(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

func isStd(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

var list = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil, errors.New(string(e.Stderr))
		}
		return nil, err
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
})

func packages(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := list()
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

// forbidden returns the imports that the package's rule does not allow.
func forbidden(p pkg) (found []string, ruled bool) {
	i := slices.IndexFunc(rules, func(r rule) bool { return matches(r.pattern, p.rel()) })
	if i < 0 {
		return nil, false
	}
	r := rules[i]
	core := !slices.Contains(r.foreign, "") && r.pattern != "tools/*"
	for _, imp := range p.Imports {
		ok := true
		switch {
		case isOwn(imp):
			ok = slices.Contains(instruments, rel(imp)) || slices.ContainsFunc(r.own, func(o string) bool { return matches(o, rel(imp)) })
		case !isStd(imp):
			ok = slices.ContainsFunc(r.foreign, func(f string) bool { return strings.HasPrefix(imp, f) })
		case core && !slices.Contains(mayTest, p.rel()):
			ok = !slices.Contains(notInCore, imp)
		}
		if !ok {
			found = append(found, imp)
		}
	}
	return found, true
}

func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name)
	return ok
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		found, ruled := forbidden(p)
		if !ruled {
			t.Errorf("%s: no rule says what it may import", p.ImportPath)
		}
		for _, imp := range found {
			t.Errorf("%s imports %s", p.ImportPath, imp)
		}
	}
}

// The author of an adapter compiles the contract and nothing else.
func TestContractsAreLight(t *testing.T) {
	for _, p := range packages(t) {
		if !slices.Contains([]string{"record", "sinks", "sinks/memory", "sinks/sinktest", "checkpoint", "faults", "committer"}, p.rel()) {
			continue
		}
		for _, dep := range p.Deps {
			if !isStd(dep) && !isOwn(dep) && !strings.HasPrefix(dep, "github.com/cespare/xxhash/v2") {
				t.Errorf("%s needs %s", p.ImportPath, dep)
			}
		}
	}
}

// The rules can fail.
func TestRulesBite(t *testing.T) {
	for _, tt := range []struct{ from, imp string }{
		{"record", module + "/sinks"},
		{"sinks", module + "/committer"},
		{"sinks/file", module + "/committer"},
		{"sinks/file", module + "/sinks/memory"},
		{"sinks", "github.com/dgraph-io/badger/v4"},
		{"wal", module + "/sinks"},
		{"committer", module + "/wal"},
		{"checkpoint", module + "/record"},
		{"", module + "/pipeline"},
		{"", module + "/sinks/postgres"},
		{"pipeline", module + "/wal"},
		{"sinks/postgres", "github.com/spf13/cobra"},
		{"committer", "testing"},
		{"record", "pgregory.net/rapid"},
		{"committer", "go.opentelemetry.io/otel/metric"},
		{"telemetry", "github.com/prometheus/client_golang/prometheus"},
	} {
		p := pkg{ImportPath: strings.TrimSuffix(module+"/"+tt.from, "/"), Imports: []string{tt.imp}}
		if found, ruled := forbidden(p); !ruled || len(found) != 1 {
			t.Errorf("%q may import %s", tt.from, tt.imp)
		}
	}
	if _, ruled := forbidden(pkg{ImportPath: module + "/util"}); ruled {
		t.Error("a package nobody planned has a rule")
	}
}

func TestNoDrawers(t *testing.T) {
	for _, p := range packages(t) {
		for name := range strings.SplitSeq(p.rel(), "/") {
			if slices.Contains([]string{"pkg", "util", "utils", "common", "types", "helpers", "misc"}, name) {
				t.Errorf("%s: %q says nothing about what is in it", p.ImportPath, name)
			}
		}
	}
}
