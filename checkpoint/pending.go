package checkpoint

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a Pending checkpoint: somebody miscounts.
var (
	// ErrAcked says that a task acked a checkpoint twice.
	ErrAcked = errors.New("acked twice")
	// ErrIncomplete says that a checkpoint lacks acks.
	ErrIncomplete = errors.New("acks are missing")
	// ErrUnknown says that a task or a checkpoint was never announced.
	ErrUnknown = errors.New("unknown")
)

// A Pending is a checkpoint that waits for its tasks. Make one with NewPending.
type Pending struct {
	// ID is the checkpoint.
	ID uint64
	// Since is when it was triggered.
	Since time.Time
	acked []bool
	left  int
}

// NewPending returns a checkpoint that waits for tasks 0 to tasks-1.
func NewPending(id uint64, tasks int, now time.Time) *Pending {
	return &Pending{ID: id, Since: now, acked: make([]bool, tasks), left: tasks}
}

// Ack notes that the task has done its part. A second ack is ErrAcked, a task
// that was never announced ErrUnknown; neither changes anything.
func (p *Pending) Ack(task int) error {
	switch {
	case task < 0 || task >= len(p.acked):
		return fmt.Errorf("checkpoint %d: task %d: %w", p.ID, task, ErrUnknown)
	case p.acked[task]:
		return fmt.Errorf("checkpoint %d: task %d: %w", p.ID, task, ErrAcked)
	}
	p.acked[task] = true
	p.left--
	return nil
}

// Done returns nil if every task has acked, else ErrIncomplete with the tasks
// that have not.
func (p *Pending) Done() error {
	if p.left == 0 {
		return nil
	}
	return fmt.Errorf("checkpoint %d: tasks %v: %w", p.ID, p.Missing(), ErrIncomplete)
}

// Missing returns the tasks that have not acked, ascending.
func (p *Pending) Missing() []int {
	var tasks []int
	for task, acked := range p.acked {
		if !acked {
			tasks = append(tasks, task)
		}
	}
	return tasks
}
