package checkpoint

import (
	"errors"
	"fmt"
)

// A Mode says whether a task holds inputs back.
type Mode uint8

const (
	// ExactlyOnce holds back an input that has delivered a barrier until all inputs
	// have, so that the cut has no record of a later checkpoint.
	ExactlyOnce Mode = iota
	// AtLeastOnce holds nothing back. Records that overtake a slow input's barrier
	// are part of the cut and come again after a restore.
	AtLeastOnce
)

// String returns the mode as it is printed to users.
func (m Mode) String() string {
	if m == AtLeastOnce {
		return "at-least-once"
	}
	return "exactly-once"
}

// Errors of an Aligner: the stream before it is broken.
var (
	// ErrEnded says that an input delivered something after its end.
	ErrEnded = errors.New("input has ended")
	// ErrHeld says that a record was taken from an input that is held back.
	ErrHeld = errors.New("input is held back")
)

// An Aligner finds the cut through the inputs of one task. Make one with
// NewAligner.
type Aligner struct {
	mode  Mode
	seen  []uint64 // highest barrier of each input
	ended []bool
	begun uint64 // highest barrier of any input
	done  uint64 // highest cut that was made or given up
}

// NewAligner returns an Aligner of so many inputs, none of which has delivered
// anything.
func NewAligner(inputs int, mode Mode) *Aligner {
	return &Aligner{mode: mode, seen: make([]uint64, inputs), ended: make([]bool, inputs)}
}

// Barrier says that an input delivered the barrier id. It returns the checkpoint
// whose cut is complete with that, or 0. A barrier of a checkpoint that was made
// or given up means nothing. A barrier above the one that the task waits for
// gives the lower one up.
func (a *Aligner) Barrier(input int, id uint64) uint64 {
	if id <= a.done || id <= a.seen[input] {
		return 0
	}
	a.seen[input] = id
	a.begun = max(a.begun, id)
	return a.cut()
}

// Record says that an input delivers a record, and fails with ErrEnded or ErrHeld
// if it must not.
func (a *Aligner) Record(input int) error {
	switch {
	case a.ended[input]:
		return fmt.Errorf("record from input %d: %w", input, ErrEnded)
	case a.Held(input):
		return fmt.Errorf("record from input %d at barrier %d: %w", input, a.seen[input], ErrHeld)
	}
	return nil
}

// End says that an input delivers no more records. Barriers may still come.
func (a *Aligner) End(input int) { a.ended[input] = true }

// Ended reports whether all inputs have ended.
func (a *Aligner) Ended() bool {
	for _, e := range a.ended {
		if !e {
			return false
		}
	}
	return true
}

// Abort gives up all cuts up to id and lets go of the inputs that wait for them.
func (a *Aligner) Abort(id uint64) { a.done = max(a.done, id) }

// Held reports whether nothing may be taken from the input now.
func (a *Aligner) Held(input int) bool {
	return a.mode == ExactlyOnce && a.seen[input] > a.done && a.seen[input] == a.begun
}

// cut returns the newest checkpoint that all inputs have delivered, if it is new.
// An exactly-once cut has no record behind the barrier, so only the barrier that
// the held inputs stand at counts.
func (a *Aligner) cut() uint64 {
	low := a.begun
	for _, id := range a.seen {
		low = min(low, id)
	}
	if low <= a.done || (a.mode == ExactlyOnce && low != a.begun) {
		return 0
	}
	a.done = low
	return low
}
