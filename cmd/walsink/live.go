package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
)

// A liveReport is what only a running process knows of an output.
type liveReport struct {
	PID       int       `json:"pid"`
	Started   time.Time `json:"started"`
	URL       string    `json:"url"`
	Target    string    `json:"target"`
	Sink      string    `json:"sink,omitempty"`
	Guarantee string    `json:"guarantee,omitempty"`
	Acquired  bool      `json:"acquired"` // the lanes are; nothing else is known before
	LogFailed string    `json:"log_failed,omitempty"`
	At        time.Time `json:"at,omitzero"`
}

// A liveLane is what only a running process knows of a lane.
type liveLane struct {
	State       string    `json:"state"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	NextRetry   time.Time `json:"next_retry,omitzero"`
	committer.Counters
}

// describe writes a line about the process.
func (r *liveReport) describe(w io.Writer) {
	if !r.Acquired {
		fmt.Fprintf(w, "process %d, up %v, waits for %s: its lanes are not acquired yet\n", r.PID, time.Since(r.Started).Round(time.Second), r.Target)
		return
	}
	fmt.Fprintf(w, "process %d, up %v, to %s, %s; %s\n", r.PID, time.Since(r.Started).Round(time.Second), r.Target, r.Guarantee, r.URL)
	if r.LogFailed != "" {
		fmt.Fprintf(w, "the log has failed: %s\n", r.LogFailed)
	}
}

// describe writes a line about a lane that has had an error.
func (l *liveLane) describe(w io.Writer, name string) {
	if l.LastError == "" {
		return
	}
	next := l.State
	if !l.NextRetry.IsZero() {
		next += fmt.Sprintf(", next try in %v", max(0, time.Until(l.NextRetry)).Round(time.Millisecond))
	}
	fmt.Fprintf(w, "lane %s: %s; last error %v ago: %s\n", name, next, time.Since(l.LastErrorAt).Round(time.Second), l.LastError)
}

// fill adds the status of an open output.
func (r *stateReport) fill(st walsink.Status) {
	r.Checkpoint, r.Log = st.Completed, st.Log
	r.Live.Sink, r.Live.Guarantee, r.Live.Acquired, r.Live.At = st.Sink, st.Guarantee, true, st.At
	if st.Log.Failed != nil {
		r.Live.LogFailed = st.Log.Failed.Error()
	}
	for _, d := range st.Log.Damage {
		r.Damage = append(r.Damage, d.Error())
	}
	for _, l := range st.Lanes {
		r.Lanes = append(r.Lanes, laneReport{
			Lane: st.ID + "/" + l.Lane, Head: l.Head, Committed: l.Mark.Seq,
			Batches: l.PendingBatches, Records: l.PendingRecords, Bytes: l.PendingBytes, Oldest: l.OldestAge,
			Live: &liveLane{
				State: l.State.String(), LastError: l.LastError, LastErrorAt: l.LastErrorAt, NextRetry: l.NextRetry, Counters: l.Counters,
			},
		})
	}
}

// liveStatus asks the process that holds a state directory. Locked is why the directory
// could not be opened, and is returned if no process answers.
func liveStatus(ctx context.Context, dir string, locked error) (r stateReport, err error) {
	address, err := os.ReadFile(filepath.Join(dir, addressFile))
	if err != nil {
		return r, fmt.Errorf("%w; it was not started with --http, so that it cannot be asked", locked)
	}
	body, err := fetchStatus(ctx, strings.TrimSpace(string(address)))
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	if err != nil {
		return r, fmt.Errorf("%w; it does not answer: %w", locked, err)
	}
	return r, nil
}

// fetchTimeout is how long a process may take to answer.
const fetchTimeout = 10 * time.Second

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 20

func fetchStatus(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy: the process is on this machine, or named
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", address, answer.Status)
	}
	return body, err
}

// remoteStatus prints what the process at address says of all its outputs.
func (a *app) remoteStatus(ctx context.Context, address string) error {
	if !strings.Contains(address, "://") {
		local, err := listenAddress(address)
		if err != nil {
			return usagef("--http %s: %w", address, err)
		}
		address = "http://" + local
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return usagef("--http %s: want the URL of a status page", address)
	}
	body, err := fetchStatus(ctx, u.JoinPath("status").String())
	if err != nil {
		return usagef("--http: no walsink run answers there: %w", err)
	}
	if a.json {
		_, err := io.Copy(a.out, bytes.NewReader(body))
		return err
	}
	var one stateReport
	if err := json.Unmarshal(body, &one); err == nil && one.Live != nil {
		return a.printStatus(one)
	}
	var several map[string]stateReport
	if err := json.Unmarshal(body, &several); err != nil {
		return usagef("--http %s: this is no status of walsink: %w", address, err)
	}
	for _, name := range slices.Sorted(maps.Keys(several)) {
		fmt.Fprintf(a.out, "output %s\n", name)
		if err := a.printStatus(several[name]); err != nil {
			return err
		}
	}
	return nil
}
