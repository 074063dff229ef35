package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/walsink/walsink/pipeline"
)

// A summary is what a run did, for programs.
type summary struct {
	Records     uint64  `json:"records"`
	Bytes       uint64  `json:"bytes"`
	Skipped     uint64  `json:"skipped"`
	Checkpoints uint64  `json:"checkpoints"`
	Aborted     uint64  `json:"aborted"`
	Last        uint64  `json:"last_checkpoint"`
	Repeated    uint64  `json:"repeated_checkpoints"`
	Guarantee   string  `json:"guarantee"`
	Ended       bool    `json:"end_of_input"`
	Seconds     float64 `json:"seconds"`
	Error       string  `json:"error,omitempty"`
}

// printSummary prints the line that ends a run. A run that failed says what it did
// before it did; one that never began says nothing.
func (a *app) printSummary(s pipeline.Summary, failed error) error {
	if a.json {
		out := summary{
			Records: s.Records, Bytes: s.Bytes, Skipped: s.Skipped, Checkpoints: s.Checkpoints, Aborted: s.Aborted, Last: s.Last,
			Repeated: s.Repeated, Guarantee: s.Promise.Guarantee.String(), Ended: s.Ended, Seconds: s.Elapsed.Seconds(),
		}
		if failed != nil {
			out.Error = failed.Error()
		}
		return a.printJSON(out)
	}
	if failed == nil || s.Records > 0 {
		a.note(summaryLine(s, failed != nil))
	}
	return nil
}

// summaryLine is the line for people. Of a run that failed, what was read after its last
// checkpoint is in no store.
func summaryLine(s pipeline.Summary, failed bool) string {
	if s.Records == 0 && s.Skipped > 0 {
		return fmt.Sprintf("nothing new: %s already committed", counted(s.Skipped, "record", "is", "are"))
	}
	var b strings.Builder
	format := "%s (%s) in %s and %v, %v"
	if failed {
		format = "%s (%s) read, %s completed in %v, %v"
	}
	fmt.Fprintf(&b, format, count(s.Records, "record"), formatSize(int64(s.Bytes)),
		count(s.Checkpoints, "checkpoint"), s.Elapsed.Round(time.Millisecond), s.Promise.Guarantee)
	if s.Skipped > 0 {
		fmt.Fprintf(&b, "; %s committed before", counted(s.Skipped, "record", "was", "were"))
	}
	if s.Repeated > 0 {
		fmt.Fprintf(&b, "; %s repeated after a loss of state", count(s.Repeated, "checkpoint"))
	}
	if s.Aborted > 0 {
		fmt.Fprintf(&b, "; %s aborted", count(s.Aborted, "checkpoint"))
	}
	return b.String()
}

// count is a number with its noun.
func count(n uint64, noun string) string { return countOf(n, noun, noun+"s") }

func countOf(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return group(n) + " " + many
}

// counted is a number with its noun and verb.
func counted(n uint64, noun, one, many string) string {
	if n == 1 {
		return count(n, noun) + " " + one
	}
	return count(n, noun) + " " + many
}
