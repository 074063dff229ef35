package checkpoint

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestC012RecordAfterEnd(t *testing.T) {
	a := NewAligner(2, ExactlyOnce)
	a.End(1)
	if err := a.Record(1); !errors.Is(err, ErrEnded) {
		t.Errorf("record after the end: %v", err)
	}
	if err := a.Record(0); err != nil || a.Ended() {
		t.Errorf("the other input: %v, %v", err, a.Ended())
	}
	if a.Barrier(1, 1) != 0 || a.Barrier(0, 1) != 1 {
		t.Error("an input that has ended delivers barriers")
	}
}

func TestC017LateNotice(t *testing.T) {
	now := time.Unix(0, 0)
	c := NewCoordinator(Options{Tasks: 1, MaxConcurrent: 3}, 0, now)
	for range 3 {
		c.Request(now)
	}
	for _, id := range []uint64{3, 2} {
		if _, err := c.Ack(id, 0); err != nil {
			t.Fatal(err)
		}
	}
	actions, err := c.Stored(now, 3)
	if err != nil || len(actions) != 3 || actions[2].Verb != Complete || actions[2].ID != 3 {
		t.Fatalf("%+v, %v", actions, err)
	}
	if !errors.Is(actions[0].Err, ErrSubsumed) || !errors.Is(actions[1].Err, ErrSubsumed) {
		t.Errorf("%+v", actions)
	}
	if late, err := c.Stored(now, 2); !errors.Is(err, ErrUnknown) || late != nil || c.Last() != 3 {
		t.Errorf("C025: %v, %v, last %d", late, err, c.Last())
	}
	if late, err := c.Ack(1, 0); late != nil || err != nil {
		t.Errorf("C020: %v, %v", late, err)
	}
}

func TestC044MissingAck(t *testing.T) {
	p := NewPending(7, 2, time.Time{})
	if err := p.Ack(1); err != nil {
		t.Fatal(err)
	}
	if err := p.Done(); !errors.Is(err, ErrIncomplete) || !slices.Equal(p.Missing(), []int{0}) {
		t.Errorf("%v, missing %v", err, p.Missing())
	}
	if err := p.Ack(0); err != nil {
		t.Fatal(err)
	}
	if err := p.Done(); err != nil || p.Missing() != nil {
		t.Errorf("C080: %v, missing %v", err, p.Missing())
	}
}

func TestC074AckedTwice(t *testing.T) {
	p := NewPending(7, 2, time.Time{})
	if err := p.Ack(1); err != nil {
		t.Fatal(err)
	}
	if err := p.Ack(1); !errors.Is(err, ErrAcked) {
		t.Error(err)
	}
	for _, task := range []int{-1, 2} {
		if err := p.Ack(task); !errors.Is(err, ErrUnknown) {
			t.Errorf("task %d: %v", task, err)
		}
	}
	if !slices.Equal(p.Missing(), []int{0}) {
		t.Errorf("missing %v", p.Missing())
	}
}

// TestC081Order: a checkpoint is stored when the last ack comes, not before and
// not again.
func TestC081Order(t *testing.T) {
	now := time.Unix(0, 0)
	c := NewCoordinator(Options{Tasks: 3}, 41, now)
	if a := c.Request(now); len(a) != 1 || a[0].ID != 42 {
		t.Fatal(a)
	}
	for i, task := range []int{2, 0, 1} {
		a, err := c.Ack(42, task)
		if err != nil || (len(a) == 1) != (i == 2) {
			t.Errorf("ack %d: %v, %v", i+1, a, err)
		}
	}
	if _, err := c.Ack(42, 0); !errors.Is(err, ErrAcked) {
		t.Error(err)
	}
}

// TestModeNames: they are printed at start.
func TestModeNames(t *testing.T) {
	if ExactlyOnce.String() != "exactly-once" || AtLeastOnce.String() != "at-least-once" {
		t.Error(ExactlyOnce, AtLeastOnce)
	}
	if Trigger.String() != "trigger" || Finish.String() != "finish" {
		t.Error(Trigger, Finish)
	}
}
