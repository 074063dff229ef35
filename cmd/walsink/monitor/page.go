package monitor

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // the page is part of the command
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

var parsed = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"css": func() template.CSS { return template.CSS(pageCSS) },
		"js":  func() template.JS { return template.JS(pageJS) },
	}).Parse(pageHTML))
})

// policy is the Content-Security-Policy: the one style and the one script of the page,
// by their hashes, and requests to this server alone.
var policy = sync.OnceValue(func() string {
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; style-src " + hash(pageCSS) + "; script-src " + hash(pageJS) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

// Windows of time that the charts can show.
const (
	fineWindow   = fineSize * interval
	coarseWindow = coarseSize * coarseStep * interval
	leastWindow  = time.Minute
)

// A view is what the page is made of.
type view struct {
	Title, Version string
	Up, At         string
	State, Level   string // of the whole, in words and as a class
	Reasons        []string
	Refresh        int
	Day            bool
	Tiles          []tile
	Outputs        []outputView
	Errors         []errorView
}

// A tile is one figure.
type tile struct{ Name, Value, Note, Level string }

type outputView struct {
	Name, Target, Sink, Guarantee string
	Open                          bool
	Tiles                         []tile
	Charts                        []chart
	Timeline                      timeline
	Lanes                         []laneView
	More                          int // lanes that are not listed
}

type laneView struct {
	Name, State, Level         string
	Checkpoint, Batch          uint64
	Batches, Size, Oldest      string
	Records, Dead, Errors      string
	LastError, LastAt, NextTry string
}

type errorView struct {
	At, Output, Lane, Kind, Text, Next string
	Count                              int
	Checkpoint                         uint64
}

func (m *Monitor) page(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	if err := parsed().Execute(&b, m.view(r.URL.Query().Get("window") == "day")); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = b.WriteTo(w) // a client that has gone is no error
}

func (m *Monitor) view(day bool) view {
	now := time.Now()
	m.mu.Lock()
	flow, failures, sampled := m.flow, m.errors.list(), m.sampled
	m.mu.Unlock()
	v := view{
		Title: m.title, Version: m.version, Up: short(now.Sub(m.started)), At: sampled.UTC().Format("2006-01-02 15:04:05 UTC"),
		Refresh: int(interval / time.Second), Day: day,
	}
	v.State, v.Level, v.Reasons = m.state()
	v.Tiles = []tile{
		{Name: "Read", Value: group(flow.Records), Note: size(int64(flow.Bytes)) + " since the start"},
		{Name: "Checkpoints", Value: group(flow.Checkpoints), Note: checkpointNote(flow.Last, flow.LastAt, now)},
		{Name: "Aborted", Value: group(flow.Aborted), Note: cmp.Or(flow.LastAbort, "none"), Level: level(flow.Aborted > 0, "warn")},
	}
	for _, o := range m.outputs {
		v.Outputs = append(v.Outputs, o.view(now, day))
	}
	slices.SortStableFunc(failures, func(a, b failure) int { return b.last.Compare(a.last) })
	for _, f := range failures {
		e := errorView{
			At: f.last.UTC().Format("15:04:05"), Output: f.output, Lane: f.lane, Kind: f.kind, Text: f.text, Count: f.count,
			Checkpoint: f.checkpoint, Next: "stopped",
		}
		if !f.next.IsZero() {
			e.Next = nextTry(f.next, now)
		}
		v.Errors = append(v.Errors, e)
	}
	return v
}

func checkpointNote(last uint64, at, now time.Time) string {
	if at.IsZero() {
		return "none complete yet"
	}
	return fmt.Sprintf("number %d, %s ago", last, short(now.Sub(at)))
}

// level is the class name if the condition holds.
func level(cond bool, name string) string {
	if cond {
		return name
	}
	return ""
}

func nextTry(at, now time.Time) string {
	if d := at.Sub(now); d > 0 {
		return "in " + short(d)
	}
	return "tried since"
}

// state says in a word how the job is.
func (m *Monitor) state() (word, level string, reasons []string) {
	if why := m.Health(); len(why) > 0 {
		return "failing", "bad", why
	}
	retrying := false
	for _, o := range m.outputs {
		st, _ := o.snapshot()
		for _, l := range st.Lanes {
			retrying = retrying || l.State == committer.StateRetrying || l.State == committer.StateVerifying
		}
	}
	why := m.Ready()
	switch {
	case len(why) > 0:
		return "not ready", "warn", why
	case retrying:
		return "retrying", "warn", []string{"a store does not take what is sent; input goes on into the log"}
	}
	return "working", "good", nil
}

// maxListed bounds the lanes that are listed.
const maxListed = 100

func (o *Output) view(now time.Time, day bool) outputView {
	o.mu.Lock()
	st, open := o.last, !o.at.IsZero()
	samples, window := o.fine.list(), fineWindow
	rate := rates(samples[max(0, len(samples)-6):], func(s sample) uint64 { return s.in })
	out := rates(samples[max(0, len(samples)-6):], func(s sample) uint64 { return s.out })
	if day {
		samples, window = o.coarse.list(), coarseWindow
	}
	batches := o.batches.list()
	o.mu.Unlock()
	v := outputView{Name: o.name, Target: o.target, Sink: st.Sink, Guarantee: st.Guarantee, Open: open}
	if !open {
		return v
	}
	v.Tiles = outputTiles(st, mean(rate), mean(out), now)
	begin := now.Add(-window)
	if first := samples[0].at; first.After(begin) {
		begin = first
		if least := now.Add(-leastWindow); begin.After(least) {
			begin = least
		}
	}
	v.Charts = []chart{
		newChart("Throughput", "records per second", begin, now, numbers,
			series{"in", "into the log", rates(samples, func(s sample) uint64 { return s.in })},
			series{"out", "into the store", rates(samples, func(s sample) uint64 { return s.out })}),
		newChart("Backlog", "complete, not in the store", begin, now, sizes,
			series{"backlog", "pending", values(samples, func(s sample) float64 { return float64(s.bytes) })}),
		newChart("Oldest batch", "how far the store is behind", begin, now, times,
			series{"age", "oldest", values(samples, func(s sample) float64 { return s.oldest.Seconds() })}),
	}
	v.Timeline = newTimeline(batches, now)
	lanes := slices.SortedStableFunc(slices.Values(st.Lanes), func(a, b committer.LaneStatus) int {
		return cmp.Or(cmp.Compare(urgency(b), urgency(a)), strings.Compare(a.Lane, b.Lane))
	})
	v.More = max(0, len(lanes)-maxListed)
	for _, l := range lanes[:len(lanes)-v.More] {
		v.Lanes = append(v.Lanes, newLaneView(l, now))
	}
	return v
}

// urgency puts lanes that need a look first, if there are too many to list.
func urgency(l committer.LaneStatus) int {
	switch l.State {
	case committer.StateStopped:
		return 2
	case committer.StateRetrying, committer.StateVerifying:
		return 1
	}
	return 0
}

func mean(ps []point) (m float64) {
	for _, p := range ps {
		m += p.v / float64(len(ps))
	}
	return m
}

func outputTiles(st walsink.Status, in, out float64, now time.Time) []tile {
	var batches int
	var records, dead, skipped, settled uint64
	var oldest time.Duration
	for _, l := range st.Lanes {
		batches += l.PendingBatches
		records += l.Records
		dead += l.Dead
		skipped += l.Skipped
		settled += l.Settled
		oldest = max(oldest, l.OldestAge+now.Sub(st.At)*time.Duration(min(1, l.PendingBatches)))
	}
	waiting := ""
	if st.Log.Waiting > 0 {
		waiting = "warn"
	}
	return []tile{
		{Name: "Into the log", Value: number(in) + "/s", Note: "records, last 10 s"},
		{Name: "Into the store", Value: number(out) + "/s", Note: group(records) + " records in all"},
		{Name: "Backlog", Value: size(pending(st)), Note: fmt.Sprintf("%d batches", batches)},
		{Name: "Oldest batch", Value: short(oldest), Note: "since it was sealed", Level: level(oldest > time.Minute, "warn")},
		{Name: "Log", Value: percent(st.Log.Bytes, st.Log.MaxBytes), Note: size(st.Log.Bytes) + " of " + size(st.Log.MaxBytes), Level: waiting},
		{Name: "Dead letters", Value: group(dead), Note: "put aside", Level: level(dead > 0, "warn")},
		{Name: "Replays skipped", Value: group(skipped), Note: fmt.Sprintf("%d outcomes settled", settled)},
	}
}

func newLaneView(l committer.LaneStatus, now time.Time) laneView {
	v := laneView{
		Name: l.Lane, State: l.State.String(), Checkpoint: l.Mark.Checkpoint, Batch: l.Mark.Seq,
		Batches: group(uint64(l.PendingBatches)), Size: size(int64(l.PendingBytes)), Oldest: "–",
		Records: group(l.Records), Dead: group(l.Dead), LastError: l.LastError,
	}
	if l.PendingBatches > 0 {
		v.Oldest = short(l.OldestAge)
	}
	v.Level = [...]string{"good", "warn", "bad"}[urgency(l)]
	errors := uint64(0)
	for _, n := range l.Errors {
		errors += n
	}
	v.Errors = group(errors)
	if !l.LastErrorAt.IsZero() {
		v.LastAt = short(now.Sub(l.LastErrorAt)) + " ago"
	}
	if !l.NextRetry.IsZero() {
		v.NextTry = nextTry(l.NextRetry, now)
	}
	return v
}
