package sinktest

import (
	"testing"

	"github.com/walsink/walsink/sinks"
)

// A Harness is the store under test. Open and Visible are required; a case that
// needs another ability is skipped without it. The functions are called from the
// goroutine of the test, and fail it if the store cannot be asked.
type Harness struct {
	// Open opens one more sink on the same store, as another process would. The
	// suite closes it.
	Open func(t testing.TB) sinks.Sink

	// Visible returns the payloads of the lane's records that a reader of the store
	// sees now, in the order of the store. It must not go through a sink.
	Visible func(t testing.TB, id sinks.LaneID) [][]byte

	// Encode returns the record, in the wire form of the sink, that carries the
	// payload. Payloads are short and of letters, digits and '-', unless Binary is
	// set, and no two of a lane are equal. Nil means that the payload is the record.
	Encode func(id sinks.LaneID, payload []byte) []byte

	// Binary says that a payload may be any bytes, none included, and a megabyte.
	Binary bool

	// Unordered says that the store does not keep the order of records, as a table
	// does not.
	Unordered bool

	// Bad returns a record, other for each payload, that the store always refuses.
	Bad func(id sinks.LaneID, payload []byte) []byte

	// DeadLetters returns the dead letters of the lane: their Checkpoint, Number and
	// Record.
	DeadLetters func(t testing.TB, id sinks.LaneID) []sinks.DeadLetter

	// Snapshot remembers the whole contents of the store; restore brings them back,
	// as a backup does, while sinks are open.
	Snapshot func(t testing.TB) (restore func())

	// Break makes the store fail every call, until heal.
	Break func(t testing.TB) (heal func())

	// LoseAnswers makes the store do what it is asked for and not say so, until heal.
	LoseAnswers func(t testing.TB) (heal func())
}

func (h Harness) encode(id sinks.LaneID, payload []byte) []byte {
	if h.Encode == nil {
		return payload
	}
	return h.Encode(id, payload)
}
