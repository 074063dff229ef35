package sim

import (
	"slices"

	"github.com/walsink/walsink/sinks/memory"
)

// Faults that are not the outcome of a call.
const (
	killed      = "killed"
	powerLost   = "power cut"
	stopped     = "stopped"
	storeDown   = "store down"
	rolledBack  = "store rolled back"
	diskLost    = "disk lost"
	diskOld     = "old disk put back"
	secondOwner = "second owner"
)

// disturb does, rarely, something that nobody has asked for.
func (w *world) disturb() bool {
	w.arrive()
	if w.rng.IntN(40) == 0 {
		w.backup()
	}
	if w.chance(4, storeDown) {
		w.down = true
	} else if w.down && w.rng.IntN(20) == 0 {
		w.down = false
	}
	if w.chance(5, rolledBack) {
		w.rollBack()
		return true
	}
	if len(w.procs) == 0 {
		w.loseDisk()
		return false
	}
	p := w.procs[w.rng.IntN(len(w.procs))]
	switch {
	case w.crashes < w.cfg.crashes && w.chance(12, killed):
		w.remove(p, kill9)
	case w.crashes < w.cfg.crashes && w.chance(12, powerLost):
		w.remove(p, powerCut)
	case w.chance(4, stopped):
		w.note("%s is told to stop", p.name)
		p.cancel()
	case len(w.procs) == 1 && w.chance(8, secondOwner):
		w.second(p)
	default:
		return false
	}
	return true
}

func (w *world) remove(p *proc, how string) {
	w.procs = slices.DeleteFunc(w.procs, func(o *proc) bool { return o == p })
	w.kill(p, how)
}

// arrive lets a step that was sent arrive at a time of its own.
func (w *world) arrive() {
	for i, s := range w.stores {
		if len(s.flying) > 0 && w.rng.IntN(20) == 0 {
			n := w.rng.IntN(len(s.flying))
			f := s.flying[n]
			s.flying = slices.Delete(s.flying, n, n+1)
			_, err := s.land(f)
			w.note("a step arrives at store %d lane %s: %v", i, f.step.ID, err == nil)
		}
	}
}

// backup remembers what there is, for a loss to come back to.
func (w *world) backup() {
	for _, s := range w.stores {
		s.saved = append(s.saved, s.Snapshot())
	}
	if len(w.procs) == 0 {
		w.copies = append(w.copies, w.disks[0].clone(false))
	}
}

// rollBack takes a store back to what it was.
func (w *world) rollBack() {
	s := w.stores[w.rng.IntN(len(w.stores))]
	if len(s.saved) == 0 {
		return
	}
	n := w.rng.IntN(len(s.saved))
	if s.emptied(s.saved[n]) {
		return
	}
	keep := len(w.procs) > 0 || w.rng.IntN(2) == 0
	w.note("a store goes back, fences stay: %v", keep)
	if !keep {
		s.flying = nil
	}
	s.Restore(s.saved[n], keep)
	s.saved = s.saved[:n+1]
	s.changed, w.refused = true, true
}

// emptied reports whether a lane of the store that has something in would have
// nothing: that a ledger is gone is for a person to decide about.
func (s *store) emptied(by memory.Snapshot) bool {
	before := memory.NewStore()
	before.Restore(by, false)
	in := map[string]bool{}
	for i := range 2 {
		for _, m := range marks(before, i) {
			in[m.String()] = m.Seq > 0
		}
		for _, m := range marks(s.Store, i) {
			if m.Seq > 0 && !in[m.String()] {
				return true
			}
		}
	}
	return false
}

// loseDisk loses a disk, or puts an older copy in its place. What a person can
// put back is kept.
func (w *world) loseDisk() {
	i := w.rng.IntN(len(w.disks))
	old := w.disks[i]
	switch {
	case w.cfg.person() && w.saved != nil:
		return
	case w.chance(150, diskLost):
		w.disks[i] = newDisk()
	case len(w.copies) > 0 && w.chance(300, diskOld):
		w.disks[i] = w.copies[w.rng.IntN(len(w.copies))].clone(false)
	default:
		return
	}
	w.note("disk %d is lost", i)
	if w.cfg.person() {
		w.mayRefuse = true
		w.saved = func() { w.disks = append(w.disks, old) }
	}
}

// givenUp is counted with the faults: a world that ends in a refusal.
const givenUp = "given up"

// hopeless reports whether a person can do nothing but start over, which ends the world
// without the check that all rows are there: if the newest checkpoint is damaged, and an
// output of several has it complete, none fits them all, and neither does one where two
// owners have each left a part in another output; see docs/reliability.md. Nothing wrong
// may be in a store even so.
func (w *world) hopeless() bool {
	return w.calm && w.refusals > 200 && w.cfg.stateful && w.cfg.outputs > 1 && (w.faults["checkpoint damaged"] > 0 || w.fences)
}

// putBack is what a person does after a refusal.
func (w *world) putBack(p *proc) {
	d, n := p.disk, len(p.disk.snaps)
	switch {
	case d.lost != nil && n > 0 && d.snaps[n-1].ID < d.lost.ID: // the outputs may have it complete
		d.snaps, d.lost, d.doubt = append(d.snaps, *d.lost), nil, true
	case d.doubt && n > 0: // or not
		d.snaps, d.doubt = d.snaps[:n-1], false
	}
	if w.saved != nil {
		w.saved()
		w.saved = func() {}
	}
}

// second starts another process on a copy of the disk of p, or on an empty one.
func (w *world) second(p *proc) {
	w.fences = true
	d := newDisk()
	if w.cfg.person() || w.rng.IntN(2) == 0 {
		d = p.disk.clone(w.rng.IntN(2) == 0)
	}
	w.mayRefuse = w.mayRefuse || w.cfg.person()
	w.disks = append(w.disks, d)
	w.launch(d)
}
