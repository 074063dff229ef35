package sinks

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/walsink/walsink/record"
)

// A Guarantee says what a sink makes of a replayed flush. Larger is stronger.
type Guarantee uint8

const (
	// AtLeastOnce: a replayed step may write its records again.
	AtLeastOnce Guarantee = iota + 1
	// Idempotent: a replayed step leaves the store as the first one did, but the
	// mark is not written in the same atomic step as the records.
	Idempotent
	// ExactlyOnce: records and mark change in one atomic step.
	ExactlyOnce
)

// String returns the name of the guarantee as it is printed to users.
func (g Guarantee) String() string {
	switch g {
	case AtLeastOnce:
		return "at-least-once"
	case Idempotent:
		return "idempotent"
	case ExactlyOnce:
		return "exactly-once"
	}
	return fmt.Sprintf("guarantee(%d)", uint8(g))
}

// A LaneID names a lane for ever: it is the key of the ledger entry. Both parts
// are given by the user, so that a resubmitted job finds its own marks.
type LaneID struct {
	Sink string `json:"sink"`
	Lane string `json:"lane"`
}

// MaxName is the longest sink id or lane name, in bytes.
const MaxName = 100

// Validate refuses names that some store could not keep apart: both parts must
// have 1 to MaxName characters out of letters, digits, '.', '_' and '-', and not
// begin with a dot.
func (id LaneID) Validate() error {
	for _, s := range [...]struct{ what, name string }{{"sink id", id.Sink}, {"lane", id.Lane}} {
		if s.name == "" || len(s.name) > MaxName {
			return fmt.Errorf("%s %q: want 1 to %d characters", s.what, s.name, MaxName)
		}
		if s.name[0] == '.' || strings.Trim(s.name, nameChars) != "" || strings.ContainsFunc(s.name, notNameChar) {
			return fmt.Errorf("%s %q: want letters, digits, '.', '_' or '-', and no dot in front", s.what, s.name)
		}
	}
	return nil
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

func notNameChar(r rune) bool { return !strings.ContainsRune(nameChars, r) }

// String returns "sink/lane", which is unambiguous for a valid id.
func (id LaneID) String() string { return id.Sink + "/" + id.Lane }

// Genesis is the chain value, and the tip, of the lane before its first batch.
func (id LaneID) Genesis() record.Chain { return record.Genesis(id.Sink, id.Lane) }

// Info describes an open sink.
type Info struct {
	// Name is the adapter's name: "file", "postgres".
	Name string
	// Target says where the records go, for messages. It holds no secret.
	Target string
	// Guarantee is what the sink declares and is held to.
	Guarantee Guarantee
	// Format is the fingerprint of the wire form that the sink wants records in,
	// at most 255 bytes. A batch sealed under another one is not given to Flush,
	// unless the sink is a Taker and takes it.
	Format string
	// StepBytes is the most record bytes that the sink wants in one step; 0 means
	// no limit. Small batches are put together up to it.
	StepBytes int64
	// Chunked says that a batch over StepBytes may be cut, so that a reader can
	// see a part of a checkpoint. Otherwise a batch is never cut.
	Chunked bool
}

// A Sink is a store, opened by an adapter's own constructor. All methods are safe
// for concurrent use.
type Sink interface {
	// Info describes the sink. It does not change after opening and does no I/O.
	Info() Info

	// Acquire takes the lane over: it raises the fence in the store, durably, and
	// returns a handle that writes under the new fence together with the mark. From
	// its return no handle acquired before changes the lane again, in this or
	// any other process. A lane never seen before gets an entry whose mark is
	// Mark{Chain: id.Genesis()}.
	Acquire(ctx context.Context, id LaneID) (Lane, Mark, error)

	// Close releases what the constructor took. Lanes are closed before.
	Close() error
}

// A Lane is a handle on an acquired lane. Its methods are called from one
// goroutine at a time; those of different lanes concurrently.
type Lane interface {
	// Flush performs the step atomically, see the package comment, and returns
	// when it is as durable as the store makes it. It must not keep the step or its
	// bytes. The same step may come again after an error of any kind.
	//
	// A step that was refused because the tip is another one is an error of Kind
	// Moved, because the fence is another one of Kind Fenced; if both differ,
	// Fenced. A step that does not take place for another reason may leave its first
	// batch pinned in the mark, see Partial. After any error the engine calls Mark and decides by what it says;
	// for Poison with Bad set, and Kind Poison means that nothing beyond what the
	// mark says was written.
	Flush(ctx context.Context, step *Step) (Result, error)

	// Mark reads the mark as the store has it now, over a connection that no
	// failed Flush has used, with the outcome of every earlier Flush of this handle
	// settled: a step still in flight in the store either shows or can no longer
	// happen. It fails with Kind Fenced if a newer owner exists.
	Mark(ctx context.Context) (Mark, error)

	// Close releases the handle. It neither gives up the fence nor changes the mark.
	Close() error
}

// A Ledger is an optional ability of a Sink: listing its marks. It does not
// need an acquired lane and does not disturb one. A pipeline of several lanes
// needs it to start without local state.
type Ledger interface {
	// Marks returns the mark of every lane of the sink id, ordered by lane.
	Marks(ctx context.Context, sink string) ([]LaneMark, error)

	// Audit ranges over the retained audit rows of a lane in order, starting with
	// the first batch whose Seq is above after. The first error ends it.
	Audit(ctx context.Context, id LaneID, after uint64) iter.Seq2[Audit, error]
}

// A LaneMark is a mark with the lane it belongs to.
type LaneMark struct {
	LaneID
	Mark
}

// An Audit is what the ledger remembers about one batch that is in.
type Audit struct {
	record.Batch
	// Dead is the number of the batch's records that went to the dead letters.
	Dead uint64 `json:"dead,omitempty"`
	// FlushedAt is the time of the step, by the clock of the machine or the store.
	FlushedAt time.Time `json:"flushed_at"`
}

// A DeadLetterBox is an optional ability of a Sink: giving out what went to the dead
// letters, and removing it. It does not need an acquired lane and does not disturb
// one. Removing letters moves no mark: Dead counts what went in.
type DeadLetterBox interface {
	// DeadLetters ranges over the dead letters of a lane in the order of LetterID,
	// starting with the first above after. Batch is 0. Record is the wire form of what
	// the store has not got of the record, and valid until the next letter is asked for.
	// The first error ends it.
	DeadLetters(ctx context.Context, id LaneID, after LetterID) iter.Seq2[DeadLetter, error]

	// DropDeadLetters removes dead letters for ever, durably. Those that are not there
	// are passed over. After an error some may be gone.
	DropDeadLetters(ctx context.Context, id LaneID, letters []LetterID) error
}

// A LetterID names a dead letter of a lane: the checkpoint of its batch, and its
// number there. They ascend as the lane goes on.
type LetterID struct {
	Checkpoint uint64 `json:"checkpoint"`
	Number     uint64 `json:"number"`
}

// Compare orders letters of a lane.
func (l LetterID) Compare(m LetterID) int {
	return cmp.Or(cmp.Compare(l.Checkpoint, m.Checkpoint), cmp.Compare(l.Number, m.Number))
}

// String returns "checkpoint:number".
func (l LetterID) String() string { return fmt.Sprintf("%d:%d", l.Checkpoint, l.Number) }

// A Reconciler is an optional ability of a Sink that is a Ledger: comparing what is at
// the destination with the ledger.
type Reconciler interface {
	// Reconcile compares what the destination holds with the lanes of one sink id, as the
	// ledger has them. It reads only, and does not disturb an owner; what an owner writes
	// meanwhile can show as a difference. Errors are about the looking.
	Reconcile(ctx context.Context, lanes []LaneRows) (Reconciliation, error)
}

// LaneRows are a lane's mark and its retained audit rows, in order.
type LaneRows struct {
	LaneMark
	Rows []Audit
}

// A Reconciliation says what was compared, and what came of it.
type Reconciliation struct {
	// Compared says what was compared, and Unchecked what the store cannot tell, each a
	// short text for people.
	Compared, Unchecked []string
	// Differences are in the order of the lanes, and of Seq within a lane.
	Differences []Difference
}

// A Difference is one thing of which ledger and destination say different things.
type Difference struct {
	// Lane is the lane; zero if the difference is about all of them.
	Lane LaneID
	// Seq and Checkpoint are of the batch, or of the first of several; 0 if none.
	Seq, Checkpoint uint64
	// What is compared, as "records", and what each side says.
	What, Ledger, Found string
}

// A Validator is an optional ability of a Sink: refusing a record while whoever
// appends it is at hand. What it lets pass can still turn out as Poison.
type Validator interface {
	// Validate returns why the sink will never take rec, or nil. It is called for
	// each record that is appended, from any goroutine, does no I/O, and does not
	// keep rec.
	Validate(rec []byte) error
}

// A Taker is an optional ability of a Sink: flushing batches whose records are in a
// wire form of an earlier version, or were made for an earlier shape of the target.
type Taker interface {
	// Takes reports whether Flush takes records of another Format than Info tells.
	// Steps can mix them: each batch has its own. It does no I/O.
	Takes(format string) bool
}

// A Prober is an optional ability of a Sink: finding out what the store really
// does. It may write, but only to what belongs to the ledger.
type Prober interface {
	Probe(ctx context.Context) ([]Finding, error)
}

// A Finding is one thing that a probe looked at.
type Finding struct {
	// Subject is what was looked at, as "synchronous_commit" or "eviction policy".
	Subject string `json:"subject"`
	// Found is what it is.
	Found string `json:"found"`
	// Guarantee is the most that the sink can give because of it.
	Guarantee Guarantee `json:"guarantee"`
	// Refuse says that running like this would break a promise silently.
	Refuse bool `json:"refuse,omitempty"`
	// Advice says what to change; empty if nothing.
	Advice string `json:"advice,omitempty"`
}
