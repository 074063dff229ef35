package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "make docs/status-page.png anew")

// browser is the command of Chromium. Without it the test is skipped, but not where
// everything must be tested.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("there is no chromium: install Debian's package of that name")
	}
	t.Skip("there is no chromium")
	return ""
}

// A visit is what a browser made of a page.
type visit struct {
	dom      string
	requests []string // URLs that a page asked for
}

// see lets a browser load the page at address and returns what came of it.
func see(t *testing.T, address string, args ...string) visit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd, dir := command(ctx, t, address, append(args, "--virtual-time-budget=9000")...)
	defer func() { _ = os.RemoveAll(dir) }() // a process of the browser may still write
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, errs.String())
	}
	return visit{dom: out.String(), requests: requests(t, filepath.Join(dir, netlog))}
}

// netlog is the name of the log of the browser's network.
const netlog = "net.json"

// command is a browser that loads the page at address, in a process group of its own,
// and the directory that it has to itself.
func command(ctx context.Context, t *testing.T, address string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "walsink-browser")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, browser(t), append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		"--user-data-dir=" + filepath.Join(dir, "profile"), "--log-net-log=" + filepath.Join(dir, netlog),
	}, append(args, address)...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, dir
}

// requests are the URLs in a log of the browser's network that a page asked for, once
// each. What the browser wants for itself has no page as its initiator, and cannot be
// resolved.
func requests(t *testing.T, netlog string) (found []string) {
	t.Helper()
	b, err := os.ReadFile(netlog)
	if err != nil {
		t.Fatal(err)
	}
	var log struct {
		Events []struct {
			Params struct {
				URL       string `json:"url"`
				Initiator string `json:"initiator"`
			} `json:"params"`
		} `json:"events"`
	}
	if err := json.Unmarshal(b, &log); err != nil {
		t.Fatalf("net log: %v", err)
	}
	seen := map[string]bool{}
	for _, e := range log.Events {
		u := e.Params.URL
		if !seen[u] && strings.Contains(e.Params.Initiator, "http") {
			seen[u] = true
			found = append(found, u)
		}
	}
	return found
}

// elsewhere returns the requests that did not go to the server at address.
func (v visit) elsewhere(address string) (found []string) {
	own, err := url.Parse(address)
	for _, r := range v.requests {
		if u, perr := url.Parse(r); err != nil || perr != nil || u.Host != own.Host {
			found = append(found, r)
		}
	}
	return found
}

// The page in a real browser, with scripts and without: what it shows, that text from
// stores stays text, and that nothing is asked for elsewhere.
func TestPageInABrowser(t *testing.T) {
	browser(t)
	w := newWorld(t)
	w.hostile()
	refreshed := regexp.MustCompile(`<html lang="en" data-refreshed="[1-9]`)
	for name, scripts := range map[string]bool{"with scripts": true, "without scripts": false} {
		t.Run(name, func(t *testing.T) {
			h := w.m.Handler(Options{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !scripts { // a switch of the browser would keep it from writing down what it shows
					w = added{w}
				}
				h.ServeHTTP(w, r)
			}))
			defer server.Close()
			v := see(t, server.URL, "--dump-dom")
			for _, want := range []string{
				`<span class="pill warn" id="state">retrying</span>`,
				`data-output="orders"`, `<td>000</td>`, `<td>001</td>`, `class="pill warn">retrying</span>`,
				`<path class="line in"`, `<path class="line backlog"`, `<rect class="waiting"`, `<rect class="landed"`,
				`&lt;script&gt;document.title='owned'&lt;/script&gt;`, `&lt;img src="http://elsewhere.invalid/x.png"&gt;`,
			} {
				if !strings.Contains(v.dom, want) {
					t.Errorf("the page has no %s", want)
				}
			}
			for _, bad := range []string{"<img", "<title>owned", "<script>document"} {
				if strings.Contains(v.dom, bad) {
					t.Errorf("the page has %s", bad)
				}
			}
			if got := refreshed.MatchString(v.dom); got != scripts || got != (len(v.requests) > 0) {
				t.Errorf("the script has refreshed the page: %v, with requests %q", got, v.requests)
			}
			if found := v.elsewhere(server.URL); len(found) > 0 {
				t.Errorf("requests to %q", found)
			}
			if t.Failed() {
				t.Logf("%s", v.dom)
			}
		})
	}
}

// added keeps the policy of the test beside that of the page.
type added struct{ http.ResponseWriter }

func (a added) WriteHeader(code int) {
	a.Header().Add("Content-Security-Policy", "sandbox")
	a.ResponseWriter.WriteHeader(code)
}

func (a added) Write(b []byte) (int, error) {
	a.Header().Add("Content-Security-Policy", "sandbox")
	return a.ResponseWriter.Write(b)
}

// A browser that runs no scripts loads the page again by itself.
func TestPageRefreshesWithoutScripts(t *testing.T) {
	browser(t)
	w := newWorld(t)
	w.m.sample()
	h, loads := w.m.Handler(Options{}), make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		loads <- r.URL.Path
	}))
	defer server.Close()
	// A browser that is told to write something down needs scripts itself; this one only
	// looks.
	cmd, dir := command(t.Context(), t, server.URL, "--blink-settings=scriptEnabled=false", "--remote-debugging-port=0")
	defer func() { _ = os.RemoveAll(dir) }()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	for n := range 3 {
		select {
		case path := <-loads:
			if path != "/" {
				t.Errorf("it asked for %s", path)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the page was loaded %d times", n)
		}
	}
}

// The check for requests to elsewhere can fail.
func TestElsewhereBites(t *testing.T) {
	browser(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<img src="http://127.0.0.1:9/x.png">`))
	}))
	defer server.Close()
	if found := see(t, server.URL, "--dump-dom").elsewhere(server.URL); len(found) != 1 || found[0] != "http://127.0.0.1:9/x.png" {
		t.Errorf("found %q", found)
	}
}

// With -update, docs/status-page.png is made: two minutes of load on three lanes,
// with a store that is away for a while.
func TestScreenshot(t *testing.T) {
	const path = "../../../docs/status-page.png"
	if !*update {
		info, err := os.Stat(path)
		if err != nil || info.Size() > 200<<10 {
			t.Fatalf("%s: %v, or more than 200 KiB", path, err)
		}
		return
	}
	w := newWorld(t)
	server := httptest.NewServer(w.m.Handler(Options{}))
	defer server.Close()
	w.load(2 * time.Minute)
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	see(t, server.URL, "--blink-settings=preferredColorScheme=1", "--window-size=1240,1290", "--screenshot="+abs)
}
