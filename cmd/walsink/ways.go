package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/wal"
)

// A way is one way out of a refusal.
type way struct {
	// Flag is that of walsink reset; empty for what is done by other means.
	Flag string `json:"flag,omitempty"`
	// Accepts says what is taken into the bargain.
	Accepts string `json:"accepts"`
}

// refusals are the refusals of a start that reset is for, and the ways out of each. What
// restores the missing part comes before it, and is in the text of the refusal.
var refusals = []struct {
	err  error
	ways []way
}{
	{committer.ErrLedgerMissing, []way{
		{"--accept-duplicates", "everything that log and source still have is written again: right if the store is empty; what it does hold comes twice"},
		{"--accept-loss", "the log's word is taken for what is in the store: right if it holds its data; what it has lost stays missing"},
	}},
	{committer.ErrLedgerBehind, []way{
		{"--accept-duplicates", "the source is read again from what the store has; what the store has beyond its mark comes twice"},
		{"--accept-loss", "goes on with what the log still has; the batches between are missing for ever"},
	}},
	{committer.ErrStateBehind, []way{
		{"--accept-duplicates", "goes on from the local position; what the store has beyond it comes twice. Only if nothing local waits for its flush"},
		{"--accept-loss", "goes on from the store's position; what is only in the local log is set aside for ever, and what no source can send again is missing"},
	}},
	{committer.ErrReplayDiffers, []way{
		{"--accept-duplicates", "the batch of which a part is in is written as a whole; that part comes twice"},
	}},
	{committer.ErrForeignPosition, []way{
		{"--from-start --accept-duplicates", "the sources are read from their beginning under this sink id; what is in the store of them comes twice"},
	}},
}

// waysOut are those of a refusal; none if it is no matter for reset.
func waysOut(err error) []way {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.ways
		}
	}
	return nil
}

// An advised error says itself what to do.
type advised struct {
	error
	next string
}

func (e *advised) Unwrap() error { return e.error }

// advise adds the commands that lead out of a refusal of the output, or of damage that
// stops one of its lanes.
func (o *output) advise(j *job, err error) error {
	if err == nil || isA[*advised](err) {
		return err
	}
	if d, ok := errors.AsType[*wal.Damage](err); ok && d.Seq > 0 && strings.HasPrefix(d.Lane, o.id+"/") {
		return &advised{err, "to let the lane go on without the damaged batch: " + o.setAsideCommand(d.Lane, d.Seq) + " --replay, which loses nothing if the source can be " +
			"read again; without --replay it names the way out for a source that cannot"}
	}
	ways := waysOut(err)
	if len(ways) == 0 {
		return err
	}
	var b strings.Builder
	if errors.Is(err, committer.ErrForeignPosition) {
		b.WriteString("write SRC as it was, or give the new job an --id and a --state of its own; nothing was written. ")
	} else {
		b.WriteString("compare walsink ledger with walsink status; nothing was written. ")
	}
	b.WriteString("To see what is wrong and what each way out accepts: ")
	b.WriteString(o.resetCommand(j) + " --dry-run")
	for _, w := range ways {
		fmt.Fprintf(&b, "\n  %s %s\n      %s", o.resetCommand(j), w.Flag, w.Accepts)
	}
	return &advised{err, b.String()}
}

// setAsideCommand is walsink verify for a damaged batch of the output, without the way out.
func (o *output) setAsideCommand(lane string, seq uint64) string {
	return fmt.Sprintf("walsink verify --state %s --set-aside %s", shellWord(o.state), shellWord(fmt.Sprintf("%s:%d", lane, seq)))
}

// resetCommand is walsink reset for the output, without a secret: where REDACTED stands,
// the password is to be put back, or given as the store's own tools take it.
func (o *output) resetCommand(j *job) string {
	words := []string{"walsink", "reset"}
	add := func(flag, value string) { words = append(words, flag, shellWord(value)) }
	if j.config() != "" {
		add("--config", j.config())
		if len(j.outputs) > 1 {
			add("--output", o.name)
		}
		return strings.Join(words, " ")
	}
	for _, from := range j.from {
		add("--from", from)
	}
	add("--to", redactDST(o.target.raw))
	add("--state", o.state)
	if o.id != o.target.defaultID() {
		add("--id", o.id)
	}
	return strings.Join(words, " ")
}

// config is the configuration file of the job, empty if there is none.
func (j *job) config() string { return j.origins.file }
