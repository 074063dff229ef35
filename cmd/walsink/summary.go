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
	Flushed     uint64  `json:"flushed"`
	Dead        uint64  `json:"dead"`
	Guarantee   string  `json:"guarantee"`
	Ended       bool    `json:"end_of_input"`
	Seconds     float64 `json:"seconds"`
	Error       string  `json:"error,omitempty"`
}

// landed counts what a run brought into its stores: records, once per output, and dead
// letters. What earlier runs left in the log is among them.
type landed struct{ records, dead uint64 }

// landed sums up what the outputs brought in.
func (r *runner) landed() (n landed) {
	for _, out := range r.outputs {
		for _, l := range out.status().Lanes {
			n.records += l.Records
			n.dead += l.Dead
		}
	}
	return n
}

// printSummary prints the line that ends a run. A run that failed says what it did
// before it did; one that never began says nothing.
func (a *app) printSummary(s pipeline.Summary, n landed, failed error) error {
	if a.json {
		out := summary{
			Records: s.Records, Bytes: s.Bytes, Skipped: s.Skipped, Checkpoints: s.Checkpoints, Aborted: s.Aborted, Last: s.Last,
			Repeated: s.Repeated, Flushed: n.records, Dead: n.dead, Guarantee: s.Promise.Guarantee.String(), Ended: s.Ended, Seconds: s.Elapsed.Seconds(),
		}
		if failed != nil {
			out.Error = failed.Error()
		}
		return a.printJSON(out)
	}
	if failed == nil || s.Records > 0 {
		a.note(summaryLine(s, n, failed != nil))
	}
	return nil
}

// summaryLine is the line for people. Of a run that failed, what was read after its last
// checkpoint is in no store.
func summaryLine(s pipeline.Summary, n landed, failed bool) string {
	if s.Records == 0 && n != (landed{}) {
		line := "nothing new was read; " + countedRecords(n.records, "was", "were") + " flushed from the log"
		return line + n.letters()
	}
	if s.Records == 0 && s.Skipped > 0 {
		return fmt.Sprintf("nothing new: %s already committed", countedRecords(s.Skipped, "is", "are"))
	}
	var b strings.Builder
	format := "%s (%s) in %s and %v, %v"
	if failed {
		format = "%s (%s) read, %s completed in %v, %v"
	}
	fmt.Fprintf(&b, format, count(s.Records, "record"), formatSize(int64(s.Bytes)),
		count(s.Checkpoints, "checkpoint"), s.Elapsed.Round(time.Millisecond), s.Promise.Guarantee)
	if s.Skipped > 0 {
		fmt.Fprintf(&b, "; %s committed before", countedRecords(s.Skipped, "was", "were"))
	}
	if s.Repeated > 0 {
		fmt.Fprintf(&b, "; %s repeated after a loss of state", count(s.Repeated, "checkpoint"))
	}
	if s.Aborted > 0 {
		fmt.Fprintf(&b, "; %s aborted", count(s.Aborted, "checkpoint"))
	}
	return b.String() + n.letters()
}

// letters names the dead letters, if there are any.
func (n landed) letters() string {
	if n.dead == 0 {
		return ""
	}
	return "; " + countedRecords(n.dead, "is a dead letter", "are dead letters") + ": walsink deadletters list"
}

// count is a number with its noun.
func count(n uint64, noun string) string { return countOf(n, noun, noun+"s") }

func countOf(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return group(n) + " " + many
}

// countedRecords is a number of records with its verb.
func countedRecords(n uint64, one, many string) string {
	if n == 1 {
		return count(n, "record") + " " + one
	}
	return count(n, "record") + " " + many
}
