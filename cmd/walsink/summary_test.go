package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/walsink/walsink/pipeline"
)

func TestSummaryLine(t *testing.T) {
	exact := pipeline.Promise{Guarantee: pipeline.ExactlyOnce}
	tests := []struct {
		sum    pipeline.Summary
		want   string
		failed bool
	}{
		{pipeline.Summary{Records: 1707, Bytes: 2048, Checkpoints: 2, Elapsed: 120 * time.Millisecond, Promise: exact},
			"1,707 records (2 KiB) in 2 checkpoints and 120ms, exactly-once", false},
		{pipeline.Summary{Records: 1, Bytes: 9, Checkpoints: 1, Skipped: 1, Promise: exact},
			"1 record (9 B) in 1 checkpoint and 0s, exactly-once; 1 record was committed before", false},
		{pipeline.Summary{Skipped: 1707}, "nothing new: 1,707 records are already committed", false},
		{pipeline.Summary{Skipped: 1}, "nothing new: 1 record is already committed", false},
		{pipeline.Summary{Promise: exact}, "0 records (0 B) in 0 checkpoints and 0s, exactly-once", false},
		{pipeline.Summary{Records: 5, Skipped: 5, Checkpoints: 3, Repeated: 2, Aborted: 1, Promise: exact},
			"5 records (0 B) in 3 checkpoints and 0s, exactly-once; 5 records were committed before; 2 checkpoints repeated after a loss of state; 1 checkpoint aborted", false},
		{pipeline.Summary{Records: 1500, Bytes: 2048, Promise: exact},
			"1,500 records (2 KiB) read, 0 checkpoints completed in 0s, exactly-once", true},
	}
	for _, tt := range tests {
		if got := summaryLine(tt.sum, landed{}, tt.failed); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}

func TestSummaryLineOfWhatLanded(t *testing.T) {
	exact := pipeline.Promise{Guarantee: pipeline.ExactlyOnce}
	for _, tt := range []struct {
		sum  pipeline.Summary
		n    landed
		want string
	}{
		{pipeline.Summary{Skipped: 3000}, landed{997, 3}, "nothing new was read; 997 records were flushed from the log; 3 records are dead letters: walsink deadletters list"},
		{pipeline.Summary{Skipped: 1}, landed{1, 0}, "nothing new was read; 1 record was flushed from the log"},
		{pipeline.Summary{Records: 2, Checkpoints: 1, Promise: exact}, landed{1, 1},
			"2 records (0 B) in 1 checkpoint and 0s, exactly-once; 1 record is a dead letter: walsink deadletters list"},
	} {
		if got := summaryLine(tt.sum, tt.n, false); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}

func TestSummaryJSON(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out, json: true}
	sum := pipeline.Summary{Records: 7, Skipped: 3, Last: 9, Ended: true, Elapsed: 1500 * time.Millisecond}
	if err := a.printSummary(sum, landed{6, 1}, errors.New("store gone")); err != nil {
		t.Fatal(err)
	}
	var got summary
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Records != 7 || got.Skipped != 3 || got.Last != 9 || !got.Ended || got.Seconds != 1.5 || got.Flushed != 6 || got.Dead != 1 || got.Error != "store gone" {
		t.Errorf("got %+v", got)
	}
}
