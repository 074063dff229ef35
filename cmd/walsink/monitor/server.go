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

// Options are what a Handler serves beside the monitor's own.
type Options struct {
	// Metrics serves /metrics; nil for none.
	Metrics http.Handler
	// Status returns what /status serves as JSON: of the output of that name, or of
	// all if the name is empty.
	Status func(output string) any
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
	return guarded(mux)
}

// guarded adds the headers that keep a browser from doing anything but showing what
// this server sent.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy())
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
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
