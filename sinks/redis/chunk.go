package redis

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
)

// A chunk is one script call of a flush.
type chunk struct {
	args  []any // what follows the digest of the script
	nonce string
	units int // see pace
	cmd   *goredis.Cmd
}

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
	count  *string  // number of records in the run at its end; nil if there is none
	n      int      // the same
	op     string   // what the run is
	width  int      // arguments of its commands, the name included
	name   string   // of the last command
	argc   int      // its arguments
	same   int      // commands before it that had both
	chunks []*chunk // those that are full
	bad    []sinks.Reject
	free   []*chunk
}

// begin makes c ready for a step.
func (c *cutter) begin(l *lane, step *sinks.Step) {
	c.lane, c.step, c.tip = l, step, tipOf(step.Prev)
	c.batch, c.bad = 0, c.bad[:0]
	c.name, c.argc, c.same = "", 0, 0
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
	c.slab.reset()
	for _, ch := range c.free {
		clear(ch.args)
		ch.cmd = nil
	}
}

// add puts one more argument into the open chunk.
func (c *cutter) add(args ...string) {
	for _, a := range args {
		c.open.args = append(c.open.args, c.slab.put(a))
	}
}

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
	c.add("B", strconv.Itoa(c.batch), strconv.FormatUint(b.Checkpoint, 10), string(batch), chain)
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
	*c.open = chunk{args: c.open.args[:0], nonce: newNonce()}
	l := c.lane
	c.open.args = append(c.open.args, "evalsha", l.sink.scripts.flush.sha, 3)
	part := c.tip.part
	if c.tip.done == 0 && !c.pinned() {
		part = ""
	}
	c.add(l.keys.mark, l.keys.audit, l.keys.dead,
		c.open.nonce, strconv.FormatUint(l.fence, 10), l.owner, l.session,
		c.tip.chain, part, strconv.FormatUint(c.tip.done, 10), c.flush, strconv.Itoa(c.step.Tolerate),
		strconv.FormatUint(c.records, 10), strconv.FormatUint(c.dead, 10), strconv.Itoa(l.sink.opts.AuditRows), c.at)
	c.begun, c.count = false, nil
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
	c.chunks = append(c.chunks, c.open)
	c.open = nil
}

// seal ends a run of equal commands.
func (c *cutter) seal() {
	if c.count != nil {
		*c.count = strconv.Itoa(c.n)
		c.count = nil
	}
}

// run adds the records of a run. Once one was found that is no record, the rest
// of the step is only looked through for more.
func (c *cutter) run(r sinks.Run) error {
	text := string(r.Block.Payload())
	suspect := strings.Contains(text, c.lane.sink.opts.Prefix)
	for i := range r.Block.Len() {
		n := len(r.Block.Record(i))
		rec := text[:n]
		text = text[n:]
		err := c.view.parse(rec)
		if err == nil && suspect {
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

// sameAfter is how many commands of one kind in a row make it worth while to name
// them once.
const sameAfter = 8

// single adds a record of one command to the run at the end of the chunk, or
// begins another one.
func (c *cutter) single() {
	args := c.view.args
	if c.same++; args[0] != c.name || len(args) != c.argc {
		c.name, c.argc, c.same = args[0], len(args), 0
	}
	op := "C"
	switch {
	case c.same >= sameAfter && c.name == "SET" && c.argc == 3:
		op = "S"
	case c.same >= sameAfter:
		op = "N"
	}
	if c.count == nil || c.op != op || c.width != c.argc {
		c.beginRun(op)
	}
	if op != "C" {
		args = args[1:]
	}
	c.add(args...)
	c.n++
}

// beginRun begins a run of commands.
func (c *cutter) beginRun(op string) {
	c.seal()
	c.op, c.width, c.n = op, c.argc, 0
	c.add(op, "")
	c.count, _ = c.open.args[len(c.open.args)-1].(*string)
	if op != "S" {
		c.add(strconv.Itoa(c.argc))
	}
	if op == "N" {
		c.add(c.name)
	}
}

func (c *cutter) multi() {
	c.seal()
	c.add("M", strconv.Itoa(len(c.view.ends)))
	for _, args := range c.view.commands() {
		c.add(strconv.Itoa(len(args)))
		c.add(args...)
	}
}

// letter adds a record that was found bad before.
func (c *cutter) letter(d sinks.DeadLetter) error {
	if err := c.need(1 + len(d.Record)/unitBytes); err != nil {
		return err
	}
	c.seal()
	c.add("D", d.Field, d.Code, d.Reason, string(d.Record))
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
	c.add("E", string(head), string(row))
	c.tip = tip{chain: b.Chain().String()}
	c.batch, c.begun = c.batch+1, false
	return nil
}
