package sinks

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A Kind is the outcome of a store call that did not succeed. It is about what
// to do next, not about what went wrong.
type Kind uint8

const (
	// Transient: nothing was written, and the same call may succeed later. Retried
	// with back-off, for ever by default.
	Transient Kind = iota + 1
	// Ambiguous: the step was sent and no answer came. The mark decides.
	Ambiguous
	// Permanent: nothing was written and the same call will always fail. The lane
	// stops.
	Permanent
	// Poison: particular records, named in Error.Bad, will never be taken.
	Poison
	// Fenced: a newer owner of the lane exists. The lane stops.
	Fenced
	// Moved: the tip in the store is not the one that the step builds on.
	Moved
	// Cancelled: the caller's context ended first. Neither success nor failure of
	// the store; whether the step happened is for the mark to say.
	Cancelled
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	names := [...]string{"unknown", "transient", "ambiguous", "permanent", "poison", "fenced", "moved", "cancelled"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// An Error is the outcome of a store call, classified by the adapter in one
// function, and its coordinates.
type Error struct {
	Kind Kind
	// Op is what was being done, as "flush", "acquire", "mark".
	Op string
	// Lane is the lane; zero if the call was not about one.
	Lane LaneID
	// Checkpoint is that of the first batch of the step; 0 if none.
	Checkpoint uint64
	// Bad are the records at fault, ascending, for Kind Poison. A sink names as
	// many as it can find at little cost, and at least one.
	Bad []Reject
	// Err is the cause. Its text must hold neither secrets nor record contents.
	Err error
}

// Error returns "op lane checkpoint n: kind: cause", with the first bad record.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Lane != (LaneID{}) {
		fmt.Fprintf(&b, " lane %s", e.Lane)
	}
	if e.Checkpoint != 0 {
		fmt.Fprintf(&b, " checkpoint %d", e.Checkpoint)
	}
	fmt.Fprintf(&b, ": %s", e.Kind)
	if len(e.Bad) > 0 {
		r := e.Bad[0]
		fmt.Fprintf(&b, ": record %d", r.Number)
		if r.Field != "" {
			fmt.Fprintf(&b, " field %q", r.Field)
		}
		if r.Code != "" {
			fmt.Fprintf(&b, " code %s", r.Code)
		}
		if r.Reason != "" {
			fmt.Fprintf(&b, ": %s", r.Reason)
		}
		if len(e.Bad) > 1 {
			fmt.Fprintf(&b, " (and %d more)", len(e.Bad)-1)
		}
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first *Error in err's tree. A bare end of a
// context is Cancelled; anything else that is not classified is Ambiguous, since
// nobody said that nothing was written. KindOf(nil) is 0.
func KindOf(err error) Kind {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Cancelled
	}
	return Ambiguous
}
