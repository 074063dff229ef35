package wal

import (
	"fmt"
	"slices"

	"github.com/walsink/walsink/record"
)

// Restarted reports whether a lane was moved by Reset, other than to begin, and
// Rewind was not called since: Completed does not say where the source resumes.
func (l *Log) Restarted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.lanes {
		if ln.restarted {
			return true
		}
	}
	return false
}

// Rewind makes an earlier checkpoint the completed one, for a start from what the
// store holds: the source goes back to position. All batches are set aside and
// each lane goes on from its head, which may be of a later checkpoint. Call it when
// nothing is left to flush. It is durable on return; after a crash in between,
// Restarted is still true, or the completed checkpoint the new one. It must not
// run beside anything else but reading.
func (l *Log) Rewind(checkpoint uint64, position []byte) error {
	if err := l.rewind(checkpoint, position); err != nil {
		return fmt.Errorf("rewind log to checkpoint %d: %w", checkpoint, err)
	}
	return nil
}

func (l *Log) rewind(checkpoint uint64, position []byte) error {
	if len(position) > record.MaxPosition {
		return fmt.Errorf("%w: position of %d bytes, the limit is %d", record.ErrTooLarge, len(position), record.MaxPosition)
	}
	lanes := l.settled()
	if err := l.setBack(checkpoint, position); err != nil {
		return err
	}
	if err := l.Sync(); err != nil { // the checkpoint first: see above
		return err
	}
	if err := l.restartAll(lanes); err != nil {
		return err
	}
	return l.Sync()
}

func (l *Log) setBack(checkpoint uint64, position []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failure(); err != nil {
		return err
	}
	c := completeState{era: l.complete.era + 1, checkpoint: checkpoint, position: slices.Clone(position)}
	if _, err := l.control(normal, entry{[]byte{kindComplete}, c.encode()}); err != nil {
		return err
	}
	l.complete, l.completing = c, c
	return nil
}

func (l *Log) restartAll(lanes []*Lane) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range lanes {
		state := laneState{floor: l.newID(), head: ln.head, committed: ln.head.Seq, durable: ln.head.Seq}
		if _, err := l.control(normal, entry{laneKey(kindLane, ln.name), state.encode()}); err != nil {
			return err
		}
		l.restart(ln, state)
	}
	return nil
}
