package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/cmd/walsink/monitor"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/telemetry"
)

// addressFile lies beside the lock of a state directory while a run serves its status,
// and holds the URL of it.
const addressFile = "LOCK.http"

// listenAddress is the address that --http means: the loopback if there is only a port.
func listenAddress(text string) (string, error) {
	if _, err := strconv.ParseUint(text, 10, 16); err == nil {
		text = ":" + text
	}
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", errors.New("want PORT or HOST:PORT, as in 8080 or 127.0.0.1:8080")
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// servedHost is the host of an address that listens at one place, empty for one that
// listens everywhere: that goes by names which only the network knows.
func servedHost(address string) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip != nil && ip.IsUnspecified() {
		return ""
	}
	return host
}

// isPublic reports whether others than this machine may reach the address.
func isPublic(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// reachAt is the URL by which this machine reaches a listener: an address that stands
// for all of them is none to connect to.
func reachAt(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if tcp, ok := a.(*net.TCPAddr); ok && err == nil && tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// A server shows a run over HTTP. A nil server does nothing.
type server struct {
	job     *job
	log     *slog.Logger
	url     string
	started time.Time
	watch   *monitor.Monitor
	figures *telemetry.Telemetry
	outputs map[*output]*served
	stop    func() error
}

// served is an output as it is shown.
type served struct {
	shown   *monitor.Output
	figures *telemetry.Output

	mu    sync.Mutex
	open  statuser // nil until it is open
	quiet func()   // ends the figures
}

// serve starts what --http asks for.
func (a *app) serve(ctx context.Context, j *job, log *slog.Logger) (*server, error) {
	if j.http == "" {
		return nil, nil //nolint:nilnil // a nil server is one that does nothing
	}
	address, err := listenAddress(j.http)
	if err != nil {
		return nil, j.origins.bad("http", j.http, err.Error())
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, usagef("--http %s: %w", j.http, err)
	}
	s := &server{
		job: j, log: log, url: reachAt(ln.Addr()), started: time.Now(), outputs: map[*output]*served{},
		watch: monitor.New(j.title(), readVersion().Version),
	}
	metrics, shutdown, err := s.meters()
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	for _, o := range j.outputs {
		s.outputs[o] = &served{shown: s.watch.Output(o.name, j.label(o)), figures: s.figures.Output(o.name)}
	}
	if isPublic(ln.Addr()) {
		log.Warn("the status page can be read by others than this machine: put a proxy with a password in front of it, or use a loopback address",
			"address", ln.Addr().String(), "pprof", j.pprof)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	tasks.Go(func() { s.watch.Run(ctx) })
	h := s.watch.Handler(monitor.Options{Metrics: metrics, Status: s.status, Pprof: j.pprof, Host: servedHost(address)})
	tasks.Go(func() {
		if err := monitor.Serve(ctx, ln, h); err != nil {
			log.Error("the status page is gone", "error", err)
		}
	})
	s.stop = func() error {
		cancel()
		tasks.Wait()
		return shutdown()
	}
	a.note("status page at " + s.url + "/")
	return s, nil
}

// meters makes the figures and what serves them.
func (s *server) meters() (http.Handler, func() error, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, nil, err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	if s.figures, err = telemetry.New(telemetry.Options{Meters: provider}); err != nil {
		return nil, nil, err
	}
	shutdown := func() error { return provider.Shutdown(context.Background()) }
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), shutdown, nil
}

// title is what the page calls the job.
func (j *job) title() string {
	if len(j.outputs) == 1 {
		return j.outputs[0].id
	}
	var names []string
	for _, o := range j.outputs {
		names = append(names, o.name)
	}
	return strings.Join(names, ", ")
}

// instrument adds what the server needs to know of an output.
func (s *server) instrument(o *output, opts walsink.Options) walsink.Options {
	if s == nil {
		return opts
	}
	v := s.outputs[o]
	return v.shown.Instrument(v.figures.Instrument(opts))
}

// opened says that an output is open, and writes the address beside its lock.
func (s *server) opened(o *output, out statuser) {
	if s == nil {
		return
	}
	v := s.outputs[o]
	v.shown.Opened(out)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open, v.quiet = out, v.figures.Watch(out)
	if err := os.WriteFile(filepath.Join(o.state, addressFile), s.address(o), 0o600); err != nil {
		s.log.Warn("the status command will not find this process by itself: give it --http", "url", s.url, "error", err)
	}
}

// address is what the address file of an output holds.
func (s *server) address(o *output) []byte { return []byte(s.url + "/status?output=" + o.name + "\n") }

// progress shows how far the pipeline is.
func (s *server) progress(p *pipeline.Pipeline) {
	if s != nil {
		s.watch.Progress(p.Progress)
	}
}

// close ends the server.
func (s *server) close() {
	if s == nil {
		return
	}
	for o, v := range s.outputs {
		v.mu.Lock()
		if v.quiet != nil {
			v.quiet()
		}
		v.mu.Unlock()
		path := filepath.Join(o.state, addressFile)
		if b, err := os.ReadFile(path); err == nil && bytes.Equal(b, s.address(o)) {
			_ = os.Remove(path) // one that stays is found to be stale
		}
	}
	if err := s.stop(); err != nil {
		s.log.Warn("close the status page", "error", err)
	}
}

// status is what /status serves: what walsink status prints with --json.
func (s *server) status(output string) any {
	reports := map[string]stateReport{}
	for o, v := range s.outputs {
		reports[o.name] = s.report(o, v)
	}
	if r, ok := reports[output]; ok {
		return r
	}
	if len(reports) == 1 {
		return reports[s.job.outputs[0].name]
	}
	return reports
}

func (s *server) report(o *output, v *served) stateReport {
	r := stateReport{
		State: o.state, Lanes: []laneReport{},
		Live: &liveReport{PID: os.Getpid(), Started: s.started, Target: s.job.label(o), URL: s.url + "/"},
	}
	v.mu.Lock()
	open := v.open
	v.mu.Unlock()
	if open != nil {
		r.fill(open.Status())
	}
	return r
}
