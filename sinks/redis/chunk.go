package redis

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
)

// A chunk is one script call of a flush.
type chunk struct {
	args  []any // the call, but for the items, which go to place itemsArg
	items pack
	nonce string
	units int // see pace
	cmd   *goredis.Cmd
}

// itemsArg is the place of the items in a call of the script: behind its name and
// digest, the number of keys, the keys, and 13 arguments.
const itemsArg = 3 + 3 + 13

// A slab holds strings at fixed addresses, so that a pointer to one can be an
// argument without an allocation.
type slab struct {
	pages [][]string
	page  int
}

const slabPage = 4096

func (s *slab) put(v string) *string {
	if s.page < len(s.pages) && len(s.pages[s.page]) == slabPage {
		s.page++
	}
	if s.page == len(s.pages) {
		s.pages = append(s.pages, make([]string, 0, slabPage))
	}
	p := &s.pages[s.page]
	*p = append(*p, v)
	return &(*p)[len(*p)-1]
}

func (s *slab) reset() {
	for i := range s.pages {
		clear(s.pages[i])
		s.pages[i] = s.pages[i][:0]
	}
	s.page = 0
}

// A cutter cuts a step into chunks: each says which tip it builds on, so that a
// chunk that fails stops those behind it.
type cutter struct {
	lane *lane
	step *sinks.Step
	view view
	slab slab

	// Where the lane is after all that was cut so far.
	tip           tip
	batch         int // index in step.Batches
	records, dead uint64
	flush         string // tells this call of Flush from others
	at            string

	open   *chunk   // being filled; nil if none
	begun  bool     // it names the batch
	run    run      // at its end
	series series   // that the last command is of
	chunks []*chunk // those that are full
	bad    []sinks.Reject
	free   []*chunk
}

// begin makes c ready for a step.
func (c *cutter) begin(l *lane, step *sinks.Step) {
	c.lane, c.step, c.tip = l, step, tipOf(step.Prev)
	c.batch, c.bad = 0, c.bad[:0]
	c.series.reset()
	c.records = step.Next.Records - uint64(step.Records)
	c.dead = step.Next.Dead - uint64(len(step.Dead))
	c.flush = newNonce()
	at := step.Next.UpdatedAt
	if at.IsZero() {
		at = time.Now()
	}
	c.at = at.UTC().Format(time.RFC3339Nano)
}

// release forgets the step and keeps the memory of the chunks.
func (c *cutter) release() {
	c.close()
	c.free = append(c.free, c.chunks...)
	c.chunks, c.step = c.chunks[:0], nil
	c.series.reset()
	c.slab.reset()
	for _, ch := range c.free {
		clear(ch.args)
		ch.cmd = nil
	}
}

// arg puts one more argument into the open chunk.
func (c *cutter) arg(a string) { c.open.args = append(c.open.args, c.slab.put(a)) }

// add puts more items into the open chunk and returns how many of them are long.
func (c *cutter) add(items ...string) (long int) {
	for _, s := range items {
		if !c.open.items.text(s) {
			c.open.items.long()
			c.arg(s)
			long++
		}
	}
	return long
}

// number puts a number as one more item into the open chunk, and returns its place.
func (c *cutter) number(n int) int { return c.open.items.number(n) }

// need makes room for units more in a chunk that names the batch.
func (c *cutter) need(units int) error {
	if c.open != nil && c.open.units > 0 && c.open.units+units > c.lane.pace.units {
		c.close()
	}
	if c.open == nil {
		c.start()
	}
	c.open.units += units
	if c.begun {
		return nil
	}
	b := c.step.Batches[c.batch]
	batch, err := json.Marshal(b.Batch)
	if err != nil {
		return fmt.Errorf("batch %d: %w", b.Seq, err)
	}
	chain := b.Chain().String()
	c.open.items.op("B")
	c.number(c.batch)
	c.add(strconv.FormatUint(b.Checkpoint, 10), string(batch), chain)
	c.tip.part, c.begun = chain, true
	return nil
}

// start opens a chunk that builds on where the lane is.
func (c *cutter) start() {
	if n := len(c.free); n > 0 {
		c.open, c.free = c.free[n-1], c.free[:n-1]
	} else {
		c.open = new(chunk)
	}
	*c.open = chunk{args: c.open.args[:0], items: c.open.items, nonce: newNonce()}
	c.open.items.reset()
	l := c.lane
	c.open.args = append(c.open.args, "evalsha", l.sink.scripts.flush.sha, 3)
	part := c.tip.part
	if c.tip.done == 0 && !c.pinned() {
		part = ""
	}
	for _, a := range [...]string{
		l.keys.mark, l.keys.audit, l.keys.dead,
		c.open.nonce, strconv.FormatUint(l.fence, 10), l.owner, l.session,
		c.tip.chain, part, strconv.FormatUint(c.tip.done, 10), c.flush, strconv.Itoa(c.step.Tolerate),
		strconv.FormatUint(c.records, 10), strconv.FormatUint(c.dead, 10), strconv.Itoa(l.sink.opts.AuditRows), c.at,
	} {
		c.arg(a)
	}
	c.open.args = append(c.open.args, nil) // itemsArg
	c.begun, c.run = false, run{}
}

// pinned reports whether the mark shows the batch in progress though none of its
// records is done.
func (c *cutter) pinned() bool { return c.batch == 0 && c.step.Prev.Partial != nil }

// close ends the open chunk.
func (c *cutter) close() {
	if c.open == nil {
		return
	}
	c.seal()
	c.open.args[itemsArg] = c.open.items.buf
	c.chunks = append(c.chunks, c.open)
	c.open = nil
}

// take adds the records of a run. Once one was found that is no record, the rest
// of the step is only looked through for more.
func (c *cutter) take(r sinks.Run) error {
	text := string(r.Block.Payload())
	for i := range r.Block.Len() {
		n := len(r.Block.Record(i))
		rec := text[:n]
		text = text[n:]
		err := c.view.parse(rec)
		if err == nil {
			err = c.lane.sink.ownKeys(&c.view)
		}
		if err != nil {
			c.bad = append(c.bad, sinks.Reject{Batch: r.Batch, Number: r.First + uint64(i), Reason: err.Error()})
		}
		if len(c.bad) > 0 {
			continue
		}
		if err := c.record(len(rec)); err != nil {
			return err
		}
	}
	return nil
}

// record adds the record that the view holds.
func (c *cutter) record(size int) error {
	if err := c.need(len(c.view.ends) + size/unitBytes); err != nil {
		return err
	}
	if len(c.view.ends) == 1 {
		c.single()
	} else {
		c.multi()
	}
	c.tip.done++
	c.records++
	return nil
}

// letter adds a record that was found bad before.
func (c *cutter) letter(d sinks.DeadLetter) error {
	if err := c.need(1 + len(d.Record)/unitBytes); err != nil {
		return err
	}
	c.seal()
	c.open.items.op("D")
	c.add(d.Field, d.Code, d.Reason, string(d.Record))
	c.tip.done++
	c.dead++
	return nil
}

// end ends the batch.
func (c *cutter) end() error {
	b := c.step.Batches[c.batch]
	if c.tip.done != b.Records {
		return fmt.Errorf("batch %d ends after record %d of %d", b.Seq, c.tip.done, b.Records)
	}
	if err := c.need(0); err != nil {
		return err
	}
	c.seal()
	if b.FlushedAt.IsZero() {
		b.FlushedAt = time.Now().UTC().Truncate(time.Millisecond)
	}
	b.Dead = 0 // the script counts
	head, err := json.Marshal(b.Head())
	if err != nil {
		return fmt.Errorf("batch %d: %w", b.Seq, err)
	}
	row, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("batch %d: %w", b.Seq, err)
	}
	c.open.items.op("E")
	c.add(string(head), string(row))
	c.tip = tip{chain: b.Chain().String()}
	c.batch, c.begun = c.batch+1, false
	return nil
}
