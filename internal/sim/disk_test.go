package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/walsink/walsink/checkpoint"
)

// A disk holds what a process keeps: a journal for each log, and checkpoints. It
// outlives the process.
type disk struct {
	logs     map[string]*journal
	open     []*log                // of the process that runs on it
	snaps    []checkpoint.Snapshot // the newest last
	saving   *checkpoint.Snapshot  // not known to be there
	lost     *checkpoint.Snapshot  // the newest, which was damaged; a person has a copy
	doubt    bool                  // that copy was put back
	complete uint64                // highest checkpoint that was ever complete on it
}

// A journal is what has been written to a log. What is beyond synced may be lost.
type journal struct {
	entries []entry
	synced  int
}

func newDisk() *disk { return &disk{logs: map[string]*journal{}} }

// clone is the disk as a copy of it would be: with all that was written, or with
// nothing that was not synced.
func (d *disk) clone(synced bool) *disk {
	c := &disk{logs: map[string]*journal{}, snaps: slices.Clone(d.snaps), lost: d.lost, doubt: d.doubt, complete: d.complete}
	for dir, j := range d.logs {
		n := len(j.entries)
		if synced {
			n = j.synced
		}
		c.logs[dir] = &journal{entries: slices.Clone(j.entries[:n]), synced: min(n, j.synced)}
	}
	return c
}

// crash ends the life of the process. If its power was cut, what was not synced is
// lost from some entry on.
func (d *disk) crash(w *world, how string) {
	for _, l := range d.open {
		l.mu.Lock()
		l.dead = true
		l.mu.Unlock()
	}
	d.open = nil
	if s := d.saving; s != nil {
		d.saving = nil
		if w.rng.IntN(2) == 0 {
			d.keep(*s, w.cfg.snaps)
		}
	}
	if how != powerCut {
		return
	}
	for _, dir := range slices.Sorted(maps.Keys(d.logs)) {
		j := d.logs[dir]
		j.cut(w.rng.IntN(len(j.entries) - j.synced + 1))
		w.note("%s keeps %d entries", dir, len(j.entries))
	}
}

// cut forgets what was not synced, but for the first so many entries.
func (j *journal) cut(keep int) {
	j.entries = j.entries[:j.synced+keep]
	j.synced = len(j.entries) // what is there after a power cut stays
}

// ended forgets the logs of a process that has closed them.
func (d *disk) ended() { d.open, d.saving = nil, nil }

func (d *disk) keep(s checkpoint.Snapshot, retain int) {
	d.snaps = append(d.snaps, s)
	d.snaps = d.snaps[max(0, len(d.snaps)-retain):]
	d.complete = max(d.complete, s.ID)
}

// A storage is the checkpoints on a disk.
type storage struct{ proc *proc }

func (s *storage) Save(ctx context.Context, snap checkpoint.Snapshot) (uint64, error) {
	p := s.proc
	snap.Parts = slices.Clone(snap.Parts)
	for i, part := range snap.Parts {
		snap.Parts[i].Data = bytes.Clone(part.Data)
	}
	p.disk.saving = &snap
	v, err := p.wait(ctx, "save", "")
	if err != nil {
		return 0, err
	}
	p.disk.saving = nil
	if v.fault == "save fails" {
		return 0, fmt.Errorf("save: %w", errInjected)
	}
	p.disk.keep(snap, p.w.cfg.snaps)
	if v.fault != "" {
		return 0, fmt.Errorf("save: no answer: %w", errInjected)
	}
	return p.disk.snaps[0].ID, nil
}

func (s *storage) Load(ctx context.Context) (snap checkpoint.Snapshot, damaged []error, err error) {
	v, err := s.proc.wait(ctx, "load", "")
	d := s.proc.disk
	switch {
	case err != nil:
		return snap, nil, err
	case len(d.snaps) == 0:
		return snap, nil, nil
	}
	n := len(d.snaps) - 1
	switch {
	case v.fault == "checkpoint unread":
		return snap, nil, fmt.Errorf("load: %w", errInjected)
	case v.fault != "" && n > 0: // for good
		damaged = append(damaged, errors.Join(checkpoint.ErrCorrupt, errInjected))
		d.lost, d.doubt, d.snaps = &d.snaps[n], false, slices.Clip(d.snaps[:n])
		n--
		s.proc.w.mayRefuse = true
	}
	return d.snaps[n], damaged, nil
}
