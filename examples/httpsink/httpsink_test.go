package httpsink

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	e := newEndpoint(t)
	sinktest.Run(t, sinktest.Harness{
		Open:        e.open,
		Visible:     e.visible,
		Encode:      func(_ sinks.LaneID, payload []byte) []byte { return quote(payload) },
		Bad:         func(_ sinks.LaneID, payload []byte) []byte { return append([]byte("no JSON "), payload...) },
		DeadLetters: e.deadLetters,
		Snapshot:    e.snapshot,
		Break:       func(testing.TB) func() { return e.fail(refusing) },
		LoseAnswers: func(testing.TB) func() { return e.fail(mute) },
	})
}

func quote(payload []byte) []byte {
	b, _ := json.Marshal(string(payload)) // a string always can
	return b
}

// An endpoint remembers the keys of the requests that it took.
type endpoint struct {
	*httptest.Server
	dir string // of the ledger

	mu    sync.Mutex
	fault fault
	heard int // requests since the fault began
	seen  map[string]bool
	took  []request
}

type request struct {
	path, key, body    string
	checkpoint, number uint64
}

type fault int

const (
	none     fault = iota
	refusing       // takes nothing
	mute           // takes what comes, and from the fourth request on hangs up
)

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{dir: filepath.Join(t.TempDir(), "ledger"), seen: map[string]bool{}}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) open(t testing.TB) sinks.Sink {
	ledger, err := committer.NewFileLedger(e.dir)
	if err != nil {
		t.Fatal(err)
	}
	return New(e.Client(), e.URL, ledger)
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	e.mu.Lock()
	defer e.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	switch {
	case err != nil || key == "":
		w.WriteHeader(http.StatusBadRequest)
		return
	case e.fault == refusing:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if !e.seen[key] {
		e.seen[key] = true
		took := request{path: r.URL.Path, key: key, body: string(body)}
		took.checkpoint, _ = strconv.ParseUint(r.FormValue("checkpoint"), 10, 64)
		took.number, _ = strconv.ParseUint(r.FormValue("number"), 10, 64)
		e.took = append(e.took, took)
	}
	if e.heard++; e.fault == mute && e.heard > 3 {
		panic(http.ErrAbortHandler)
	}
}

func (e *endpoint) fail(how fault) (heal func()) {
	set := func(f fault) { e.mu.Lock(); defer e.mu.Unlock(); e.fault, e.heard = f, 0 }
	set(how)
	return func() { set(none) }
}

// of returns what the endpoint took of a lane at a path.
func (e *endpoint) of(path string, id sinks.LaneID) (all []request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.took {
		if r.path == path && strings.HasPrefix(r.key, id.String()+" ") {
			all = append(all, r)
		}
	}
	return all
}

func (e *endpoint) visible(t testing.TB, id sinks.LaneID) (payloads [][]byte) {
	for _, r := range e.of("/records", id) {
		var s string
		if err := json.Unmarshal([]byte(r.body), &s); err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, []byte(s))
	}
	return payloads
}

func (e *endpoint) deadLetters(_ testing.TB, id sinks.LaneID) (all []sinks.DeadLetter) {
	for _, r := range e.of("/dead", id) {
		all = append(all, sinks.DeadLetter{Reject: sinks.Reject{Number: r.number}, Checkpoint: r.checkpoint, Record: []byte(r.body)})
	}
	return all
}

// snapshot remembers the endpoint and the ledger: as long as they are two, they have
// to be backed up as one.
func (e *endpoint) snapshot(t testing.TB) (restore func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen, took := maps.Clone(e.seen), slices.Clip(e.took)
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(e.dir)); err != nil {
		t.Fatal(err)
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen, e.took = seen, took
		if err := errors.Join(os.RemoveAll(e.dir), os.CopyFS(e.dir, os.DirFS(backup))); err != nil {
			t.Fatal(err)
		}
	}
}
