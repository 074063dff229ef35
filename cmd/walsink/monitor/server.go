package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"
)

// How long an answer may take before its connection is closed: a reader that stalls holds
// nothing for ever.
const (
	answerTime = 30 * time.Second
	// profileTime leaves room for a profile of some minutes.
	profileTime = 10 * time.Minute
)

// Options are what a Handler serves beside the monitor's own.
type Options struct {
	// Metrics serves /metrics; nil for none.
	Metrics http.Handler
	// Status returns what /status serves as JSON: of the output of that name, or of
	// all if the name is empty.
	Status func(output string) any
	// Host is the host name of the address that is served. If set, a request for another
	// one is refused, unless for localhost or an IP address: a web page cannot make a name
	// of its own mean this machine, and so read what is served to its browser alone.
	Host string
	// Pprof serves the profiles of the process under /debug/pprof/, but not its command
	// line, which may hold a password.
	Pprof bool
}

// Handler serves the page and what programs ask for. It answers GET and HEAD alone.
func (m *Monitor) Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", m.page)
	mux.HandleFunc("GET /healthz", probe(m.Health))
	mux.HandleFunc("GET /readyz", probe(m.Ready))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		serveJSON(w, o.Status(r.URL.Query().Get("output")))
	})
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}
	if o.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return guarded(mux, o.Host)
}

// guarded adds the headers that keep a browser from doing anything but showing what
// this server sent, refuses foreign hosts, and bounds the time of an answer.
func guarded(next http.Handler, host string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := answerTime
		if strings.HasPrefix(r.URL.Path, "/debug/pprof/") {
			limit = profileTime
		}
		// What cannot bound it is no connection, as in a test.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
		h := w.Header()
		h.Set("Content-Security-Policy", policy())
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if host != "" && !sameHost(r.Host, host) {
			http.Error(w, "this address is not served under that name: ask for localhost, an IP address, or the host of --http", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameHost reports whether a Host header may mean the server of that host name.
func sameHost(header, host string) bool {
	name, _, err := net.SplitHostPort(header)
	if err != nil {
		name = strings.Trim(header, "[]") // no port
	}
	return net.ParseIP(name) != nil || strings.EqualFold(name, "localhost") || strings.EqualFold(name, host)
}

// probe answers 200 if there is no reason against it, else 503 with the reasons.
func probe(reasons func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		why := reasons()
		if len(why) == 0 {
			_, _ = w.Write([]byte("ok\n")) // a client that has gone is no error
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(strings.Join(why, "\n") + "\n"))
	}
}

func serveJSON(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = b.WriteTo(w)
}

// Serve serves h on ln until ctx ends. It closes ln, and returns when all requests are
// answered, or shortly after.
func Serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := s.Shutdown(bound)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.Close()
	}
	if serr := <-done; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}
