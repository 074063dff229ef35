// Package httpsink is an example: a sink for a store that has no atomic step, an HTTP
// endpoint that takes one JSON value per request, and each Idempotency-Key once.
package httpsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

// New returns a sink that posts records to url/records and dead letters to
// url/dead, and keeps its marks in the ledger.
func New(client *http.Client, url string, ledger committer.Ledger) sinks.Sink {
	return committer.WithLedger(&writer{client, url}, ledger)
}

type writer struct {
	client *http.Client
	url    string
}

func (w *writer) Info() sinks.Info {
	return sinks.Info{Name: "http", Target: w.url, Guarantee: sinks.Idempotent, Format: "json",
		StepBytes: 64 << 10, Chunked: true} // a crash repeats at most so much
}

// A post is one request.
type post struct{ path, key, body string }

func (w *writer) Write(ctx context.Context, step *sinks.Step) error {
	first := numbers(step)
	var posts []post
	for run, err := range step.Runs {
		if err != nil {
			return err
		}
		for i, rec := range run.Block.All() {
			n := run.First + uint64(i)
			if !json.Valid(rec) { // nothing was written yet, as Poison says
				bad := []sinks.Reject{{Batch: run.Batch, Number: n, Reason: "not JSON"}}
				return &sinks.Error{Kind: sinks.Poison, Op: "write", Lane: step.ID, Bad: bad}
			}
			posts = append(posts, post{"/records", fmt.Sprint(step.ID, first[run.Batch]+n), string(rec)})
		}
	}
	for _, d := range step.Dead {
		path := fmt.Sprintf("/dead?checkpoint=%d&number=%d", d.Checkpoint, d.Number)
		posts = append(posts, post{path, fmt.Sprint(step.ID, first[d.Batch]+d.Number), string(d.Record)})
	}
	for _, p := range posts {
		if kind, err := w.send(ctx, p); err != nil {
			return &sinks.Error{Kind: kind, Op: "write", Lane: step.ID, Checkpoint: step.Batches[0].Checkpoint, Err: err}
		}
	}
	return nil
}

// numbers counts the records of the lane before each batch of the step. It gives a
// record the same key however the records are cut into batches.
func numbers(step *sinks.Step) (first []uint64) {
	n := step.Prev.Records + step.Prev.Dead
	if p := step.Prev.Partial; p != nil {
		n -= p.Done
	}
	for _, b := range step.Batches {
		first, n = append(first, n), n+b.Records
	}
	return first
}

// send posts p and says of which kind an error is.
func (w *writer) send(ctx context.Context, p post) (sinks.Kind, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+p.path, strings.NewReader(p.body))
	if err != nil {
		return sinks.Permanent, err
	}
	req.Header.Set("Idempotency-Key", p.key)
	resp, err := w.client.Do(req)
	if err == nil {
		err = resp.Body.Close()
	}
	switch {
	case ctx.Err() != nil:
		return sinks.Cancelled, ctx.Err()
	case err != nil:
		return sinks.Ambiguous, err
	case resp.StatusCode < 300:
		return 0, nil
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return sinks.Transient, errors.New(resp.Status)
	}
	return sinks.Permanent, errors.New(resp.Status)
}
