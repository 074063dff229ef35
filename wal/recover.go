package wal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/walsink/walsink/record"
)

// A recovery collects what the generations hold, the oldest first, so that later
// entries replace earlier ones.
type recovery struct {
	l         *Log
	states    map[string]laneState
	committed map[string]committedState
	voids     map[uint64]bool
	notes     map[uint64][]uint64
	batches   []*batch
	loose     map[*batch]bool // its footer is not known to have been synced
	highest   uint64          // number in a batch id; its generation may never have come
}

// recover reads the state of the log from its generations, without blocks.
func (l *Log) recover() error {
	numbers, err := l.files.list()
	if err != nil {
		return err
	}
	r := &recovery{
		l:         l,
		states:    make(map[string]laneState),
		committed: make(map[string]committedState),
		voids:     make(map[uint64]bool),
		notes:     make(map[uint64][]uint64),
		loose:     make(map[*batch]bool),
	}
	for _, n := range numbers {
		if err := r.generation(n); err != nil {
			return err
		}
		l.number = n
	}
	l.number = max(l.number, r.highest) + 1 // for the batch ids that are given before there is a generation
	for name, state := range r.states {
		ln := r.lane(name)
		ln.laneState, ln.known, ln.stored, ln.written = state, true, true, state.head.Seq
		if c := r.committed[name]; c.floor == ln.floor {
			ln.committed = max(ln.committed, c.seq)
		}
	}
	l.completing = l.complete
	r.lanes()
	return nil
}

func (r *recovery) lane(name string) *Lane {
	ln := r.l.lanes[name]
	if ln == nil {
		ln = newLane(r.l, name)
		r.l.lanes[name] = ln
	}
	return ln
}

// generation reads the control entries of a generation. Only a format of the
// future is an error, everything else is damage.
func (r *recovery) generation(n uint64) error {
	l := r.l
	g := &generation{number: n}
	l.gens[n] = g
	if err := l.openReader(g); err != nil {
		g.damage = err
		r.damaged(n, err)
		return nil
	}
	last, synced := g.st.versions()
	g.values = g.st.size()
	g.foreign = last > synced
	if last < synced {
		r.damaged(n, fmt.Errorf("%d of %d synced entries are gone", synced-last, synced))
	}
	for _, kind := range []byte{kindAll, kindComplete, kindSealed, kindLane, kindCommitted, kindVoid, kindFooter, kindNote} {
		err := g.st.scan(kind, func(key, value []byte, version uint64) error {
			err := r.entry(g, key, value, version > synced)
			if err == nil || errors.Is(err, record.ErrVersion) {
				return err
			}
			r.damaged(n, fmt.Errorf("entry %q: %w", key, err))
			return nil
		})
		if errors.Is(err, record.ErrVersion) {
			return fmt.Errorf("generation %d: %w: %w", n, ErrFormat, err)
		}
		if err != nil {
			g.damage = err
			r.damaged(n, err)
			return nil
		}
	}
	return nil
}

// damaged notes that acknowledged entries of a generation are lost.
func (r *recovery) damaged(n uint64, err error) {
	r.l.suspect = n
	d := &Damage{Generation: n, Block: -1, Err: err}
	r.l.damage = append(r.l.damage, d)
	r.l.opts.Logger.Error("log is damaged", "dir", r.l.dir, "error", d)
}

// entry takes one control entry of a generation.
func (r *recovery) entry(g *generation, key, value []byte, loose bool) error {
	name := string(key[1:])
	switch key[0] {
	case kindAll:
		if r.l.suspect < g.number {
			r.l.suspect = 0 // all that was lost before is known again
		}
	case kindComplete:
		var c completeState
		if err := c.decode(value); err != nil {
			return err
		}
		if c.above(&r.l.complete) {
			r.l.complete = c
		}
	case kindSealed:
		var s sealedState
		if err := s.decode(value); err != nil {
			return err
		}
		if s.above(&r.l.ended) {
			r.l.ended = s
		}
	case kindLane:
		var s laneState
		if err := s.decode(value); err != nil {
			return err
		}
		r.states[name] = s
		r.highest = max(r.highest, s.floor>>32)
	case kindCommitted:
		var c committedState
		if err := c.decode(value); err != nil {
			return err
		}
		r.committed[name] = c
	default:
		return r.batchEntry(g, key, value, loose)
	}
	return nil
}

// batchEntry takes an entry about one batch.
func (r *recovery) batchEntry(g *generation, key, value []byte, loose bool) error {
	if len(key) != 9 {
		return fmt.Errorf("%w: key of %d bytes", record.ErrCorrupt, len(key))
	}
	id := keyID(key)
	r.highest = max(r.highest, id>>32)
	switch key[0] {
	case kindVoid:
		r.voids[id] = true
	case kindNote:
		r.notes[id] = append(r.notes[id], g.number)
	case kindFooter:
		var f footer
		if err := f.decode(value); err != nil {
			return err
		}
		b := &batch{Batch: f.batch, lane: r.lane(f.lane), id: id, blocks: f.blocks, segments: f.segments, footer: g.number}
		r.batches = append(r.batches, b)
		r.loose[b] = loose
	}
	return nil
}

// lanes gives every lane its batches.
func (r *recovery) lanes() {
	slices.SortFunc(r.batches, func(a, b *batch) int { return cmp.Compare(a.id, b.id) })
	seen := make(map[*Lane]uint64) // highest Seq of void batches
	for _, b := range r.batches {
		ln := b.lane
		if b.id < ln.floor {
			continue
		}
		if r.voids[b.id] {
			r.l.voids[b.id] = b.footer
			seen[ln] = max(seen[ln], b.Seq)
			continue
		}
		for n := len(ln.batches); n > 0 && ln.batches[n-1].Seq >= b.Seq; n-- {
			ln.batches = ln.batches[:n-1] // b took its place after a crash
		}
		b.notes = r.notes[b.id]
		ln.batches = append(ln.batches, b)
	}
	for _, ln := range r.l.lanes {
		r.check(ln, seen[ln])
		ln.completeUpTo(r.l.complete.checkpoint)
		for _, b := range slices.Concat(ln.batches, ln.cut) {
			b.since = r.l.opts.now()
			for _, n := range b.generations() {
				if g := r.l.gens[n]; g != nil {
					g.live++
				}
			}
		}
	}
}

// check cuts the batches of a lane down to those that follow each other without a
// gap from the committed ones on. What is missing and was acknowledged is damage.
func (r *recovery) check(ln *Lane, seen uint64) {
	r.trimCommitted(ln)
	r.discardTorn(ln)
	prev := ln.committed
	for i, b := range ln.batches {
		if b.Seq > ln.committed && (b.Seq != prev+1 || !ln.connects(i)) {
			ln.cut = slices.Clone(ln.batches[i:])
			ln.batches = ln.batches[:i:i]
			break
		}
		prev = max(prev, b.Seq)
	}
	want := max(ln.durable, ln.head.Seq)
	if r.l.suspect != 0 {
		ln.broken = r.l.lost(ln, r.l.suspect)
	}
	if len(ln.cut) > 0 || want > max(prev, seen) {
		ln.broken = &Damage{Lane: ln.name, Seq: prev + 1, Block: -1,
			Err: errors.New("the batch is missing, and with it all that follow; " + wayOut)}
		r.l.damage = append(r.l.damage, ln.broken)
		r.l.opts.Logger.Error("log is damaged", "dir", r.l.dir, "error", ln.broken)
	}
}

// connects reports whether batch i continues what is before it.
func (ln *Lane) connects(i int) bool {
	b := ln.batches[i]
	if i > 0 {
		return b.Prev == ln.batches[i-1].Chain()
	}
	return b.Seq != ln.head.Seq+1 || b.Prev == ln.head.Chain
}

// trimCommitted lets go of committed batches that are not wholly there any more,
// and of those before them.
func (r *recovery) trimCommitted(ln *Lane) {
	keep := 0
	for i, b := range ln.batches {
		gap := i > 0 && b.Seq != ln.batches[i-1].Seq+1
		if b.Seq <= ln.committed {
			if gap {
				keep = i
			}
			if !r.whole(b) {
				keep = i + 1
			}
		} else if gap && ln.batches[i-1].Seq <= ln.committed {
			keep = i
		}
	}
	ln.batches = ln.batches[keep:]
}

func (r *recovery) whole(b *batch) bool {
	for _, n := range b.generations() {
		if g := r.l.gens[n]; g == nil || g.damage != nil {
			return false
		}
	}
	return true
}

// discardTorn forgets batches whose footers are there, were never synced, and
// whose blocks do not read back: what a power cut leaves of a seal that was not
// acknowledged.
func (r *recovery) discardTorn(ln *Lane) {
	first := len(ln.batches)
	for first > 0 && r.loose[ln.batches[first-1]] && ln.batches[first-1].Seq > ln.durable {
		first--
	}
	for i, b := range ln.batches[first:] {
		for _, err := range r.l.blocks(b) {
			if err != nil {
				r.l.opts.Logger.Info("log: a batch that was never synced is not whole, forgetting it",
					"dir", r.l.dir, "lane", ln.name, "batch", b.Seq, "checkpoint", b.Checkpoint, "error", err)
				ln.batches = ln.batches[:first+i]
				return
			}
		}
	}
}

// wayOut says what a person can do about acknowledged batches that are gone. A
// program can Reset the lane.
const wayOut = "move the log's directory away, and the source goes on from what the store has"

// lost says that what a lane had in a generation may be lost.
func (l *Log) lost(ln *Lane, generation uint64) error {
	return &Damage{Generation: generation, Lane: ln.name, Block: -1,
		Err: errors.New("batches of the lane may be lost; " + wayOut)}
}
