package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// A fake is an output that says what it is told to.
type fake struct{ st walsink.Status }

func (f *fake) Status() walsink.Status { return f.st }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// healthz and readyz say what docs/monitoring.md says that they mean.
func TestProbes(t *testing.T) {
	lane := func(s committer.State, bytes uint64) committer.LaneStatus {
		return committer.LaneStatus{Lane: "000", State: s, PendingBytes: bytes, LastError: "because"}
	}
	for _, tt := range []struct {
		name           string
		st             *walsink.Status // nil: not open
		health, ready  int
		reason, notice string
	}{
		{"not open", nil, 200, 503, "", "its lanes are not acquired yet"},
		{"idle", &walsink.Status{Lanes: []committer.LaneStatus{lane(committer.StateIdle, 0)}}, 200, 200, "", ""},
		{"store down", &walsink.Status{
			Lanes: []committer.LaneStatus{lane(committer.StateRetrying, 80)}, Log: wal.Stat{MaxBytes: 100},
		}, 200, 200, "", ""},
		{"backlog past its limit", &walsink.Status{
			Lanes: []committer.LaneStatus{lane(committer.StateRetrying, 8100)}, Log: wal.Stat{MaxBytes: 10000},
		}, 200, 503, "", "the limit is 80%"},
		{"lane stopped", &walsink.Status{Lanes: []committer.LaneStatus{lane(committer.StateStopped, 0)}}, 503, 503, "lane 000: stopped: because", "stopped"},
		{"log failed", &walsink.Status{Log: wal.Stat{Failed: errors.New("fsync: input/output error")}}, 503, 503, "input/output error", "input/output error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := New("job", "v1")
			o := m.Output("orders", "memory:x")
			if tt.st != nil {
				o.Opened(&fake{*tt.st})
			}
			m.sample()
			h := m.Handler(Options{})
			if code, text := get(t, h, "/healthz"); code != tt.health || !strings.Contains(text, tt.reason) {
				t.Errorf("healthz: %d %s", code, text)
			}
			if code, text := get(t, h, "/readyz"); code != tt.ready || !strings.Contains(text, tt.notice) {
				t.Errorf("readyz: %d %s", code, text)
			}
			if code, text := get(t, h, "/"); code != 200 || !strings.Contains(text, "<h1>job ") {
				t.Errorf("page: %d", code)
			}
		})
	}
}

// A status that does not come makes the process unhealthy, and the page is served all
// the same.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New("job", "v1")
		block := make(chan struct{})
		m.Output("orders", "memory:x").Opened(blocked(block))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		time.Sleep(stuckAfter)
		if why := m.Health(); len(why) != 0 {
			t.Errorf("stuck too early: %q", why)
		}
		time.Sleep(time.Second)
		if why := m.Health(); len(why) != 1 || !strings.HasPrefix(why[0], "stuck: ") {
			t.Errorf("got %q", why)
		}
		if code, _ := get(t, m.Handler(Options{}), "/"); code != 200 {
			t.Errorf("page: %d", code)
		}
		close(block)
		time.Sleep(2 * interval)
		if why := m.Health(); len(why) != 0 {
			t.Errorf("still %q", why)
		}
		cancel()
		<-done
	})
}

type blocked chan struct{}

func (b blocked) Status() walsink.Status { <-b; return walsink.Status{} }

// What is kept is bounded, however long it runs and whatever happens.
func TestMemoryIsBounded(t *testing.T) {
	m := New("job", "v1")
	o := m.Output("orders", "memory:x")
	o.Opened(&fake{})
	opts := o.Instrument(walsink.Options{})
	for i := range uint64(5000) {
		o.sample()
		opts.Observer.Sealed("000", record.Batch{Seq: i + 1, Checkpoint: i + 1})
		opts.Flush.Observer.Retrying("000", committer.Retry{Kind: sinks.Transient, Err: fmt.Errorf("error %d", i)})
	}
	if len(o.fine.list()) != fineSize || len(o.coarse.list()) != 5000/coarseStep+1 || len(o.batches.list()) != batchSize || len(m.errors.list()) != errorSize {
		t.Errorf("%d, %d, %d, %d", len(o.fine.list()), len(o.coarse.list()), len(o.batches.list()), len(m.errors.list()))
	}
	if b := o.batches.list(); b[0].seq != 5000-batchSize+1 || b[batchSize-1].seq != 5000 {
		t.Errorf("batches %d to %d", b[0].seq, b[batchSize-1].seq)
	}
}

// An error that comes again and again is one line.
func TestErrorsAreCounted(t *testing.T) {
	m := New("job", "v1")
	opts := m.Output("orders", "memory:x").Instrument(walsink.Options{})
	for range 7 {
		opts.Flush.Observer.Retrying("000", committer.Retry{Kind: sinks.Transient, Err: errors.New("refused"), Wait: time.Minute, Checkpoint: 4})
		opts.Flush.Observer.Retrying("001", committer.Retry{Kind: sinks.Ambiguous, Err: errors.New("reset"), Wait: time.Minute})
	}
	opts.Flush.Observer.Stopped("001", errors.New("given up"))
	v := m.view(false)
	var got []string
	for _, e := range v.Errors {
		got = append(got, fmt.Sprintf("%s %s %s %d", e.Lane, e.Kind, e.Text, e.Count))
	}
	slices.Sort(got)
	if want := []string{"000 transient refused 7", "001 ambiguous given up 1", "001 ambiguous reset 7"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// A checkpoint is in the store when all its batches are.
func TestTimelineOfCheckpoints(t *testing.T) {
	o := New("job", "v1").Output("orders", "memory:x")
	at := time.Now().Add(-time.Minute)
	for _, lane := range []string{"000", "001"} {
		for n := range uint64(2) {
			o.sealed(lane, record.Batch{Seq: n + 1, Checkpoint: 10 * (n + 1), Records: 5, Bytes: 100, SealedAt: at.UnixMilli()})
		}
	}
	o.flushed("000", committer.StepInfo{Batches: 2, Last: 2}, 0)
	o.flushed("001", committer.StepInfo{Batches: 0, Last: 2}, 0)
	o.flushed("001", committer.StepInfo{Batches: 1, Last: 1}, 0)
	batches := o.batches.list()
	slices.SortStableFunc(batches, func(a, b batch) int { return int(a.checkpoint) - int(b.checkpoint) })
	tl := newTimeline(batches, time.Now())
	if tl.Landed != 1 || tl.Pending != 1 || len(tl.Bars) != 2 {
		t.Fatalf("got %+v", tl)
	}
	if b := tl.Bars[0]; b.Class != "landed" || !strings.HasPrefix(b.Text, "checkpoint 10: 10 records, 200 B in 2 batches; in the store after") {
		t.Errorf("got %+v", b)
	}
	if b := tl.Bars[1]; b.Class != "waiting" || !strings.HasPrefix(b.Text, "checkpoint 20: ") {
		t.Errorf("got %+v", b)
	}
}

func TestAxes(t *testing.T) {
	for _, tt := range []struct {
		a    axis
		top  float64
		want string
	}{
		{numbers, 0, "0 1"},
		{numbers, 4000, "0 1000 2000 3000 4000"},
		{numbers, 73, "0 20 40 60 80"},
		{sizes, 150 << 10, "0 B 50 KiB 100 KiB 150 KiB"},
		{sizes, 3 << 30, "0 B 1 GiB 2 GiB 3 GiB"},
		{times, 3.3, "0 s 1.0 s 2.0 s 3.0 s 4.0 s"},
		{times, 300, "0 s 2 min 4 min 6 min"},
	} {
		now := time.Now()
		c := newChart("", "", now.Add(-time.Minute), now, tt.a, series{values: []point{{now, tt.top}}})
		var got []string
		for _, y := range c.Y {
			got = append(got, y.Label)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%v: %q, want %q", tt.top, got, tt.want)
		}
	}
}

func TestWhatIsServed(t *testing.T) {
	m := New("job", "v1")
	status := func(output string) any { return map[string]string{"asked": output} }
	h := m.Handler(Options{Status: status})
	if code, text := get(t, h, "/status?output=a"); code != 200 || !json.Valid([]byte(text)) || !strings.Contains(text, `"asked": "a"`) {
		t.Errorf("status: %d %s", code, text)
	}
	for path, want := range map[string]int{"/metrics": 404, "/debug/pprof/": 404, "/other": 404, "/?window=day": 200} {
		if code, _ := get(t, h, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	if code, _ := get(t, m.Handler(Options{Pprof: true}), "/debug/pprof/"); code != 200 {
		t.Errorf("pprof: %d", code)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	csp := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(csp, "default-src 'none'; ") || strings.Contains(csp, "unsafe") {
		t.Errorf("policy %q", csp)
	}
}

// A page of the web that has its own name mean this machine reads nothing.
func TestForeignHost(t *testing.T) {
	asked := func(served, host string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		New("job", "v1").Handler(Options{Host: served}).ServeHTTP(w, r)
		return w.Code
	}
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "127.0.0.1": 200, "[::1]:8080": 200, "[::1]": 200, "localhost:8080": 200, "LOCALHOST": 200,
		"walsink.example:8080": 200, "walsink.example": 200, "evil.example:8080": 403, "evil.example": 403,
		"localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "": 403,
	} {
		if got := asked("walsink.example", host); got != want {
			t.Errorf("%q: %d, want %d", host, got, want)
		}
	}
	if got := asked("", "any.example"); got != 200 {
		t.Errorf("no host to compare with: %d", got)
	}
}

// deadlines is a ResponseWriter that knows how long it is given.
type deadlines struct {
	*httptest.ResponseRecorder
	at time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error { d.at = at; return nil }

// A reader that stalls holds a connection for a time, and a profile may take its own.
func TestAnswersAreBounded(t *testing.T) {
	h := New("job", "v1").Handler(Options{Pprof: true})
	for path, want := range map[string]time.Duration{"/": answerTime, "/none": answerTime, "/debug/pprof/symbol": profileTime} {
		begin, w := time.Now(), &deadlines{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.at.Before(begin.Add(want)) || w.at.After(time.Now().Add(want)) {
			t.Errorf("%s: until %v, begun at %v, want %v", path, w.at, begin, want)
		}
	}
}

// Serve ends with its context, also while a client keeps a connection open.
func TestServeEnds(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, New("job", "v1").Handler(Options{})) }()
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("http://" + ln.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if string(body) != "ok\n" {
		t.Errorf("got %q", body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
