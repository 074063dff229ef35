package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// everything is the status of an output of which every figure has a value.
type everything struct{}

func (everything) Status() walsink.Status {
	return walsink.Status{
		Lanes: []committer.LaneStatus{{Lane: "000", State: committer.StateIdle, Counters: committer.Counters{Errors: map[string]uint64{"transient": 1}}}},
		Log:   wal.Stat{Failed: errors.New("failed")},
	}
}

// scraped returns the figures of walsink that /metrics has, with their types.
func scraped(t *testing.T) map[string]string {
	t.Helper()
	s := new(server)
	h, shutdown, err := s.meters()
	if err != nil {
		t.Fatal(err)
	}
	defer shutdown()
	o := s.figures.Output("orders")
	defer o.Watch(everything{})()
	f := o.Instrument(walsink.Options{}).Flush.Observer
	f.Flushed("000", committer.StepInfo{Lost: 1}, time.Second)
	f.Dead("000", 1, sinks.Reject{})
	f.Retrying("000", committer.Retry{Kind: sinks.Transient})
	f.Stopped("000", &sinks.Error{Kind: sinks.Fenced})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	types := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" && strings.HasPrefix(f[2], "walsink_") {
			types[f[2]] = f[3]
		}
	}
	if len(types) < 20 {
		t.Fatalf("only %d figures:\n%s", len(types), w.Body.String())
	}
	return types
}

func fileText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// docs/monitoring.md lists the figures that there are, each with its type, and no other.
func TestFiguresAreDocumented(t *testing.T) {
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(walsink_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(fileText(t, "docs/monitoring.md"), -1) {
		listed[m[1]] = m[2]
	}
	got := scraped(t)
	for name, kind := range got {
		if listed[name] != kind {
			t.Errorf("%s is a %s, the table says %q", name, kind, listed[name])
		}
	}
	for name := range listed {
		if got[name] == "" {
			t.Errorf("the table has %s, which is none", name)
		}
	}
}

// The dashboard is made of all figures that there are, and of no other.
func TestDashboardShowsTheFigures(t *testing.T) {
	text := fileText(t, "deploy/grafana/walsink.json")
	if !json.Valid([]byte(text)) {
		t.Fatal("the dashboard is no JSON")
	}
	types, shown := scraped(t), map[string]bool{}
	for _, name := range regexp.MustCompile(`walsink_\w+`).FindAllString(text, -1) {
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, end); types[base] == "histogram" {
				name = base
			}
		}
		shown[name] = true
		if types[name] == "" {
			t.Errorf("the dashboard asks for %s, which is no figure", name)
		}
	}
	for name := range types {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}

func TestListenAddress(t *testing.T) {
	for text, want := range map[string]string{
		"8080": "127.0.0.1:8080", ":8080": "127.0.0.1:8080", "0": "127.0.0.1:0", "0.0.0.0:80": "0.0.0.0:80", "[::1]:80": "[::1]:80",
		"localhost:80": "localhost:80", "localhost": "", "": "", "a:b": "", "99999": "", "1.2.3.4:": "",
	} {
		got, err := listenAddress(text)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestReachAt(t *testing.T) {
	for ip, want := range map[string]string{
		"::": "http://127.0.0.1:80", "0.0.0.0": "http://127.0.0.1:80", "::1": "http://[::1]:80", "10.1.2.3": "http://10.1.2.3:80",
	} {
		a := &net.TCPAddr{IP: net.ParseIP(ip), Port: 80}
		if got := reachAt(a); got != want || isPublic(a) != (ip != "::1") {
			t.Errorf("%s: %s, public %v", ip, got, isPublic(a))
		}
	}
}

// A lockedBuffer is written and read at the same time.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// running starts a run and returns the URL of its page, what it prints, and what stops
// it and returns its error.
func running(t *testing.T, args ...string) (url string, errs *lockedBuffer, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	errs = new(lockedBuffer)
	a := &app{in: strings.NewReader(""), out: io.Discard, err: errs}
	root := a.rootCommand()
	root.SetArgs(append([]string{"run"}, args...))
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { stop() })
	page := regexp.MustCompile(`status page at (\S+)`)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if m := page.FindStringSubmatch(errs.String()); m != nil && strings.Contains(errs.String(), "lane open") {
			return m[1], errs, stop
		}
		select {
		case err := <-done:
			t.Fatalf("the run ended: %v\n%s", err, errs.String())
		default:
		}
	}
	return "", nil, nil
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// eventually asks until the answer has the text.
func eventually(t *testing.T, url, text string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, last := fetch(t, url); strings.Contains(last, text) {
			return
		}
	}
}

// A run is asked by its state directory or its address, and both say the same.
func TestStatusOfARunningProcess(t *testing.T) {
	dir := t.TempDir()
	state, in := filepath.Join(dir, "state"), filepath.Join(dir, "in.ndjson")
	if err := os.WriteFile(in, bytes.Repeat([]byte("{\"a\":1}\n"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	url, errs, stop := running(t, "--from", "ndjson:"+in, "--to", "file:"+filepath.Join(dir, "out")+"?format=ndjson", "--state", state,
		"--follow", "--checkpoint-interval", "50ms", "--http", "0", "--id", "job")
	eventually(t, url+"metrics", `walsink_records_out_total{output="file"} 100`)
	eventually(t, url+"readyz", "ok\n")
	eventually(t, url, `<h1>job <span class="pill good" id="state">working</span>`)
	if code, _ := fetch(t, url+"debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles without --pprof: %d", code)
	}
	var byState, byAddress, served stateReport
	for _, tt := range []struct {
		into *stateReport
		args []string
	}{
		{&byState, []string{"status", "--state", state, "--json"}}, {&byAddress, []string{"status", "--http", url, "--json"}},
	} {
		c, out, text := command(t, tt.args...)
		if c != codeOK {
			t.Fatalf("%q: code %d: %s", tt.args, c, text)
		}
		if err := json.Unmarshal([]byte(out), tt.into); err != nil {
			t.Fatal(err)
		}
	}
	_, text := fetch(t, url+"status")
	if err := json.Unmarshal([]byte(text), &served); err != nil {
		t.Fatal(err)
	}
	for _, r := range []stateReport{byState, byAddress, served} {
		if r.Live == nil || r.Live.PID != os.Getpid() || !r.Live.Acquired || r.State != state || r.Live.Guarantee != "exactly-once" {
			t.Fatalf("got %+v", r)
		}
		if len(r.Lanes) != 1 || r.Lanes[0].Lane != "job/000" || r.Lanes[0].Live.Records != 100 || r.Lanes[0].Batches != 0 {
			t.Errorf("got %+v", r.Lanes)
		}
	}
	if c, out, _ := command(t, "status", "--state", state); c != codeOK || !strings.Contains(out, "exactly-once; "+url) || !strings.Contains(out, "job/000") {
		t.Errorf("code %d: %s", c, out)
	}
	if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
		t.Logf("%s", errs.String())
	}
	if _, err := os.Stat(filepath.Join(state, addressFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the address stays: %v", err)
	}
	// What a process that is gone has left is the same, and nobody is asked.
	c, out, text := command(t, "status", "--state", state, "--json")
	var dead stateReport
	if err := json.Unmarshal([]byte(out), &dead); c != codeOK || err != nil || dead.Live != nil || len(dead.Lanes) != 1 {
		t.Errorf("code %d: %v %s %s", c, err, out, text)
	}
	if dead.Lanes[0].Head.Seq != byState.Lanes[0].Head.Seq || dead.Lanes[0].Head.Chain != byState.Lanes[0].Head.Chain {
		t.Errorf("the dead state is at %+v, the live one was at %+v", dead.Lanes[0].Head, byState.Lanes[0].Head)
	}
}

// Each of several outputs is shown, on the page, to status and in the figures.
func TestStatusOfSeveralOutputs(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.ndjson")
	if err := os.WriteFile(in, []byte("{\"a\":1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, _, _ := running(t, "--from", "ndjson:"+in, "--to", "one=file:"+filepath.Join(dir, "1")+"?format=ndjson",
		"--to", "two=file:"+filepath.Join(dir, "2")+"?format=ndjson", "--state", filepath.Join(dir, "state"),
		"--follow", "--checkpoint-interval", "50ms", "--http", "0", "--pprof")
	for _, name := range []string{"one", "two"} {
		eventually(t, url+"metrics", `walsink_records_out_total{output="`+name+`"} 1`)
		if _, text := fetch(t, url+"status?output="+name); !strings.Contains(text, `"acquired": true`) {
			t.Errorf("status of %s: %s", name, text)
		}
	}
	eventually(t, url, `data-output="two"`)
	_, text := fetch(t, url+"status")
	var all map[string]stateReport
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 2 || all["one"].Live == nil || all["two"].Live == nil {
		t.Errorf("%v: %s", err, text)
	}
	if c, out, errs := command(t, "status", "--http", url); c != codeOK || !strings.Contains(out, "output one\n") || !strings.Contains(out, "output two\n") {
		t.Errorf("code %d: %s%s", c, out, errs)
	}
	if code, _ := fetch(t, url+"debug/pprof/heap"); code != http.StatusOK {
		t.Errorf("profiles: %d", code)
	}
	if code, _ := fetch(t, url+"debug/pprof/cmdline"); code != http.StatusNotFound {
		t.Errorf("the command line, which may hold a password: %d", code)
	}
}

// A state directory in use by a process that does not serve its status, or no longer,
// is an error that says so.
func TestStatusOfASilentProcess(t *testing.T) {
	dir := stateWith(t)
	l, err := wal.Open(dir, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, _, errs := command(t, "status", "--state", dir)
	if c != codeInUse || !strings.Contains(errs, "it was not started with --http") {
		t.Errorf("code %d: %s", c, errs)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if err := os.WriteFile(filepath.Join(dir, addressFile), []byte(gone.URL+"/status?output=x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, _, errs := command(t, "status", "--state", dir); c != codeInUse || !strings.Contains(errs, "it does not answer") {
		t.Errorf("code %d: %s", c, errs)
	}
	if c, _, _ := command(t, "status", "--http", gone.URL); c != codeUsage {
		t.Errorf("code %d", c)
	}
}

// Nothing but what the command line asks for is served.
func TestHTTPFlagsAreChecked(t *testing.T) {
	base := []string{"run", "--from", "ndjson:x", "--to", "file:" + filepath.Join(t.TempDir(), "out")}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--pprof"}, "--http"},
		{[]string{"--http", "nowhere"}, "want PORT or HOST:PORT"},
	} {
		if c, _, errs := command(t, slices.Concat(base, tt.args)...); c != codeUsage || !strings.Contains(errs, tt.want) {
			t.Errorf("%q: code %d: %s", tt.args, c, errs)
		}
	}
}

// A name is compared where one place is listened at, and not where every place is.
func TestServedHost(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1", "localhost:80": "localhost", "[::1]:80": "::1", "db.example:80": "db.example",
		"0.0.0.0:80": "", "[::]:80": "",
	} {
		if got := servedHost(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
