package committer

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A part is a run of records of one batch, numbers from up to, but not
// including, to.
type part struct {
	batch    record.Batch
	from, to uint64
	bytes    int64 // of all its records, dead ones included
	split    split // of the whole batch
	lost     bool  // passed over; split is of the records before from
}

func whole(b record.Batch, s split) part {
	return part{batch: b, to: b.Records, bytes: int64(b.Bytes), split: s}
}

// ends reports whether the batch ends in the part.
func (p part) ends() bool { return p.to == p.batch.Records }

// dead are the dead records of the part.
func (p part) dead() split { return p.split.within(p.from, p.to) }

// A step is a sinks.Step with what the engine has to know of it.
type step struct {
	sinks.Step
	parts   []part
	readErr error // why Runs ended early: the log could not be read

	rejected []sinks.Reject // by the sink, in the attempt that succeeded
	read     time.Duration  // time in Runs that was not the sink's
}

// info describes the step as it is to be.
func (st *step) info() StepInfo {
	last := st.parts[len(st.parts)-1].batch
	i := StepInfo{
		Checkpoint: last.Checkpoint, First: st.parts[0].batch.Seq, Last: last.Seq, Batches: len(st.parts),
		Records: st.Records, Dead: int64(len(st.Dead)), Lost: int64(st.Lost), Bytes: st.Bytes,
	}
	if st.Next.Partial != nil {
		i.Batches = 0
	}
	return i
}

// upTo returns the beginning of the step that is in if m is the mark, and how many
// batches end there; nil if m is nowhere inside the step. The bytes of a batch that does
// not end are not known.
func (st *step) upTo(m sinks.Mark) (in *step, ended int) {
	if st.parts[0].lost {
		return nil, 0
	}
	if m.Chain != st.Prev.Chain {
		ended = 1 + slices.IndexFunc(st.parts, func(p part) bool { return p.batch.Chain() == m.Chain })
		if ended == 0 {
			return nil, 0
		}
	}
	n, done := ended, uint64(0)
	if p := m.Partial; p != nil {
		if n == len(st.parts) || p.Batch.Chain() != st.parts[n].batch.Chain() {
			return nil, 0
		}
		n, done = n+1, p.Done
	}
	if n == 0 || done > st.parts[n-1].to || ended > 0 && !st.parts[ended-1].ends() ||
		m.Records < st.Prev.Records || m.Dead < st.Prev.Dead {
		return nil, 0
	}
	in = &step{Step: st.Step, parts: st.parts[:n]}
	in.Next, in.Records, in.Bytes, in.Dead = m, int64(m.Records-st.Prev.Records), 0, nil
	for _, p := range st.parts[:ended] {
		in.Bytes += p.bytes
	}
	for _, d := range st.Dead {
		if d.Batch < ended || d.Batch == ended && d.Number < done {
			in.Dead = append(in.Dead, d)
		}
		if d.Batch < ended {
			in.Bytes -= int64(len(d.Record))
		}
	}
	return in, ended
}

// A source reads the batches of one lane.
type source struct {
	log    Log
	key    string
	cursor cursor
	timed  bool // measure reading
}

func newSource(log Log, key string) *source {
	open := func(seq uint64) iter.Seq2[record.Block, error] { return log.Blocks(key, seq) }
	return &source{log: log, key: key, cursor: cursor{open: open}}
}

// step puts the parts after the mark into one step. Of several, each is a whole
// batch.
func (s *source) step(id sinks.LaneID, prev sinks.Mark, parts []part) (*step, error) {
	st := &step{parts: parts}
	if parts[0].lost {
		st.Step = *parts[0].lostStep(id, prev)
		return st, nil
	}
	st.ID, st.Prev, st.Next = id, prev, prev
	for i, p := range parts {
		dead := p.dead()
		letters, size, err := s.letters(i, p, dead)
		if err != nil {
			return nil, err
		}
		st.Dead = append(st.Dead, letters...)
		st.Records += int64(p.to-p.from) - int64(len(dead))
		st.Bytes += p.bytes - size
		st.Batches = append(st.Batches, sinks.Audit{Batch: p.batch, Dead: uint64(len(p.split.within(0, p.to)))})
	}
	st.Next = after(prev, parts[len(parts)-1])
	st.Next.Records += uint64(st.Records)
	st.Next.Dead += uint64(len(st.Dead))
	st.Runs = s.runs(st)
	return st, nil
}

// plantEmpty, a planted bug, leaves the records out and keeps the mark.
func (st *step) plantEmpty() {
	st.Records, st.Bytes, st.Dead = 0, 0, nil
	st.Next.Records, st.Next.Dead = st.Prev.Records, st.Prev.Dead
	st.Runs = func(func(sinks.Run, error) bool) {}
}

// plantAgain, a planted bug, writes the records on top of mark m, whatever it is.
func (st *step) plantAgain(m sinks.Mark) {
	st.Prev = m
	st.Next.Records, st.Next.Dead = m.Records+uint64(st.Records), m.Dead+uint64(len(st.Dead))
}

// after is the mark behind p, without its counts.
func after(prev sinks.Mark, p part) sinks.Mark {
	m := prev
	if !p.ends() {
		m.Partial = &sinks.Partial{Batch: p.batch, Done: p.to, Dead: p.split.within(0, p.to).numbers()}
		return m
	}
	h := p.batch.Head()
	m.Seq, m.Chain, m.Checkpoint, m.Position, m.Partial = h.Seq, h.Chain, h.Checkpoint, h.Position, nil
	return m
}

// letters copies the dead records of a part out of the log.
func (s *source) letters(i int, p part, dead split) (out []sinks.DeadLetter, size int64, err error) {
	if len(dead) == 0 {
		return nil, 0, nil
	}
	var first uint64
	for block, err := range s.log.Blocks(s.key, p.batch.Seq) {
		if err != nil {
			return nil, 0, err
		}
		end := first + uint64(block.Len())
		for _, r := range dead.within(first, end) {
			rec := slices.Clone(block.Record(int(r.Number - first)))
			size += int64(len(rec))
			out = append(out, sinks.DeadLetter{
				Reject:     sinks.Reject{Batch: i, Number: r.Number, Field: r.Field, Code: r.Code, Reason: r.Reason},
				Checkpoint: p.batch.Checkpoint, Record: rec,
			})
		}
		if first = end; first >= p.to {
			break
		}
	}
	if len(out) != len(dead) {
		return nil, 0, fmt.Errorf("%w: checkpoint %d ends before its dead records", ErrDamaged, p.batch.Checkpoint)
	}
	return out, size, nil
}

// runs ranges over the good records of a step, and remembers why it ended early.
func (s *source) runs(st *step) iter.Seq2[sinks.Run, error] {
	return func(yield func(sinks.Run, error) bool) {
		st.readErr = nil
		if s.timed {
			yield = st.timed(yield)
			defer st.clock(time.Now())
		}
		for i, p := range st.parts {
			read := s.cursor.part
			if p.from == 0 && p.ends() {
				read = s.whole
			}
			more, err := read(p, func(first uint64, b record.Block) bool { return good(i, p, first, b, yield) })
			if err != nil {
				st.readErr = err
				yield(sinks.Run{}, err)
			}
			if !more || err != nil {
				return
			}
		}
	}
}

// timed takes the time that yield takes off from that of reading; clock adds all of
// it.
func (st *step) timed(yield func(sinks.Run, error) bool) func(sinks.Run, error) bool {
	return func(r sinks.Run, err error) bool {
		begin := time.Now()
		defer func() { st.read -= time.Since(begin) }()
		return yield(r, err)
	}
}

func (st *step) clock(begin time.Time) { st.read += time.Since(begin) }

// good yields b without its dead records.
func good(i int, p part, first uint64, b record.Block, yield func(sinks.Run, error) bool) bool {
	at := 0
	send := func(to int) bool {
		return at == to || yield(sinks.Run{Batch: i, First: first + uint64(at), Block: b.Slice(at, to)}, nil)
	}
	for _, r := range p.split.within(first, first+uint64(b.Len())) {
		to := int(r.Number - first)
		if !send(to) {
			return false
		}
		at = to + 1
	}
	return send(b.Len())
}

// whole reads a batch and compares it with its footer before it comes to an end,
// so that an atomic step over it cannot succeed with other records.
func (s *source) whole(p part, use func(uint64, record.Block) bool) (bool, error) {
	h := record.NewHasher()
	for block, err := range s.log.Blocks(s.key, p.batch.Seq) {
		if err != nil {
			return false, err
		}
		first := h.Records()
		h.Add(block)
		if !use(first, block) {
			return false, nil
		}
	}
	return true, verify(p.batch, h)
}

func verify(b record.Batch, h *record.Hasher) error {
	if h.Records() == b.Records && h.Bytes() == b.Bytes && h.Sum() == b.Digest {
		return nil
	}
	return fmt.Errorf("%w: checkpoint %d was sealed with %d records, %d bytes, digest %s; the log holds %d, %d, %s; "+
		"run verify, and set the batch aside or restore it", ErrDamaged, b.Checkpoint, b.Records, b.Bytes, b.Digest, h.Records(), h.Bytes(), h.Sum())
}

// cut divides the records of a batch from number from on into parts of about
// limit bytes, at least one record each, and compares all of it with its footer.
// Without a limit there is one part.
func (s *source) cut(b record.Batch, from uint64, limit int64) ([]part, error) {
	h, c := record.NewHasher(), cutter{batch: b, limit: limit, at: from}
	for block, err := range s.log.Blocks(s.key, b.Seq) {
		if err != nil {
			return nil, err
		}
		first := h.Records()
		h.Add(block)
		if skip := from - min(from, first); skip < uint64(block.Len()) {
			c.add(block.Slice(int(skip), block.Len()))
		}
	}
	if err := verify(b, h); err != nil {
		return nil, err
	}
	if from > b.Records {
		return nil, fmt.Errorf("%w: the mark is at record %d of checkpoint %d, which has %d", ErrReplayDiffers, from, b.Checkpoint, b.Records)
	}
	c.close(b.Records)
	return c.parts, nil
}

type cutter struct {
	batch    record.Batch
	limit    int64
	parts    []part
	at, next uint64 // first record of the open part, and the one after its last
	bytes    int64  // of the open part
}

func (c *cutter) add(b record.Block) {
	c.next = max(c.next, c.at)
	if size := int64(len(b.Payload())); c.limit <= 0 || c.bytes+size <= c.limit {
		c.bytes += size
		c.next += uint64(b.Len())
		return
	}
	for _, rec := range b.All() {
		if c.bytes+int64(len(rec)) > c.limit && c.next > c.at {
			c.close(c.next)
		}
		c.bytes += int64(len(rec))
		c.next++
	}
}

func (c *cutter) close(to uint64) {
	c.parts = append(c.parts, part{batch: c.batch, from: c.at, to: to, bytes: c.bytes})
	c.at, c.bytes = to, 0
}

// A cursor reads the parts of one batch one after the other without reading what
// came before again.
type cursor struct {
	open  func(seq uint64) iter.Seq2[record.Block, error]
	seq   uint64
	next  func() (record.Block, error, bool)
	stop  func()
	block record.Block
	first uint64 // number of the first record of block
}

// part yields the blocks of p, cut to it.
func (c *cursor) part(p part, use func(uint64, record.Block) bool) (bool, error) {
	c.seek(p.batch.Seq, p.from)
	for at := p.from; at < p.to; {
		end := c.first + uint64(c.block.Len())
		if at >= end {
			if err := c.advance(); err != nil {
				return false, err
			}
			continue
		}
		to := min(end, p.to)
		if !use(at, c.block.Slice(int(at-c.first), int(to-c.first))) {
			return false, nil
		}
		at = to
	}
	return true, nil
}

// seek makes sure that record n has not been passed.
func (c *cursor) seek(seq, n uint64) {
	if c.next != nil && c.seq == seq && c.first <= n {
		return
	}
	c.close()
	c.seq, c.first, c.block = seq, 0, record.Block{}
	c.next, c.stop = iter.Pull2(c.open(seq))
}

func (c *cursor) advance() error {
	first := c.first + uint64(c.block.Len())
	block, err, ok := c.next()
	if err == nil && !ok {
		err = fmt.Errorf("%w: batch %d ends at record %d", ErrDamaged, c.seq, first)
	}
	if err != nil {
		c.close()
		return err
	}
	c.block, c.first = block, first
	return nil
}

// close releases the batch. The cursor can be used again.
func (c *cursor) close() {
	if c.next != nil {
		c.stop()
		c.next, c.stop = nil, nil
	}
}
