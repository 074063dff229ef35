package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/walsink/walsink/committer"
)

const (
	// readLimit is the most records of one Read, and readBytes about how many bytes.
	readLimit = 1024
	readBytes = 1 << 20
	// batchBytes is how many bytes go to a lane at once, if one record is not more.
	batchBytes = 256 << 10
	// channelDepth is the number of batches that may wait for a lane, per source. With
	// batchBytes it bounds the memory between a source and a lane that stands still.
	channelDepth = 4
)

// A batch is records of one source on their way to one lane.
type batch struct {
	source int
	first  uint64 // number of the record that item numbers count from
	buf    []byte
	items  []item
}

type item struct {
	end    int // of the record in buf
	number uint32
}

var batches = sync.Pool{New: func() any { return new(batch) }}

type messageKind uint8

const (
	recordsMessage messageKind = iota
	barrierMessage
	endMessage
)

// A message is what goes from a source to a lane.
type message struct {
	kind  messageKind
	batch *batch
	id    uint64
	final bool
}

// A reader reads one source and spreads its records over its lanes.
type reader struct {
	job    *job
	index  int
	source Source
	layout layout
	route  Route
	ctx    context.Context
	events chan<- event
	moved  chan<- struct{}
	lanes  map[int]chan<- message
	open   []*batch // by lane, being filled
	quota  uint64   // records between barriers; 0 means no limit
	joins  []join   // where outputs come in, in order

	at    sourcePlace
	since uint64 // records since the last barrier
	limit uint64 // records of the next Read, by the size of the last ones
	ended bool

	notify chan struct{}

	mu      sync.Mutex // guards what follows
	want    message    // barrier to be sent; id 0 if none
	stopped bool
	readCtx context.Context // ended when there is something to look at
	cancel  context.CancelFunc
}

// A join is the place of a source from which on an output gets its records.
type join struct {
	output   string
	count    uint64
	position []byte
}

// trigger makes the reader send a barrier soon. It does not wait.
func (r *reader) trigger(id uint64, final bool) {
	r.interrupt(func() { r.want = message{kind: barrierMessage, id: id, final: final} })
}

// abort takes a barrier back that was not sent yet.
func (r *reader) abort(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.want.id == id {
		r.want = message{}
	}
}

// stop makes the reader read no more. It still sends barriers.
func (r *reader) stop() { r.interrupt(func() { r.stopped = true }) }

func (r *reader) interrupt(set func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	set()
	r.cancel()
	poke(r.notify)
}

// look returns the barrier to be sent, whether to read on, and the context to read
// with.
func (r *reader) look() (barrier message, stopped bool, ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	barrier, r.want = r.want, message{}
	if r.readCtx == nil || r.readCtx.Err() != nil {
		r.renew()
	}
	return barrier, r.stopped, r.readCtx
}

func (r *reader) renew() {
	if r.cancel != nil {
		r.cancel()
	}
	r.readCtx, r.cancel = context.WithCancel(r.ctx)
}

// run reads until the phase ends. After the end of the source it only sends
// barriers.
func (r *reader) run() {
	defer r.interrupt(func() {})
	for r.ctx.Err() == nil {
		barrier, stopped, ctx := r.look()
		var err error
		switch {
		case barrier.id != 0:
			r.barrier(barrier)
		case stopped || r.ended || (r.quota > 0 && r.since >= r.quota):
			select {
			case <-r.notify:
			case <-r.ctx.Done():
			}
		default:
			err = r.read(ctx)
		}
		if err != nil {
			post(r.ctx, r.events, event{err: fmt.Errorf("source %s: %w", r.at.name, err)})
			return
		}
	}
}

// read moves one batch. Being interrupted is no error.
func (r *reader) read(ctx context.Context) error {
	limit := r.limit
	if r.quota > 0 {
		limit = min(limit, r.quota-r.since)
	}
	if len(r.joins) > 0 {
		limit = min(limit, r.joins[0].count-r.at.count)
	}
	recs, err := r.source.Read(ctx, int(limit))
	switch {
	case errors.Is(err, io.EOF) && len(r.joins) > 0:
		return fmt.Errorf("%w: it ends at record %d, and output %s has %d", committer.ErrReplayDiffers, r.at.count, r.joins[0].output, r.joins[0].count)
	case errors.Is(err, io.EOF):
		r.ended = true
		r.send(message{kind: endMessage})
		post(r.ctx, r.events, event{kind: endEvent, index: r.index})
		return nil
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	}
	r.spread(recs)
	return r.meet()
}

// meet compares the place with that at which outputs come in. If it is another one,
// what they have is not what was read here up to the same number.
func (r *reader) meet() error {
	for len(r.joins) > 0 && r.joins[0].count == r.at.count {
		in := r.joins[0]
		r.joins = r.joins[1:]
		if !bytes.Equal(in.position, r.source.Position()) {
			return fmt.Errorf("%w: record %d is not where it was when output %s got it; outputs that stand at different places need jobs of their own for this source",
				committer.ErrReplayDiffers, r.at.count, in.output)
		}
	}
	return nil
}

// spread copies records into a batch per lane and sends the batches.
func (r *reader) spread(recs [][]byte) {
	size := uint64(0)
	for i, rec := range recs {
		lane := r.layout.lane(r.index, r.at.count+uint64(i), r.route, rec)
		b := r.open[lane]
		if b == nil {
			b = batches.Get().(*batch)
			*b = batch{source: r.index, first: r.at.count, buf: b.buf[:0], items: b.items[:0]}
			r.open[lane] = b
		}
		b.buf = append(b.buf, rec...)
		b.items = append(b.items, item{end: len(b.buf), number: uint32(i)})
		size += uint64(len(rec))
		if len(b.buf) >= batchBytes {
			r.hand(lane)
		}
	}
	n := uint64(len(recs))
	r.limit = max(1, min(readLimit, readBytes*n/max(size, 1)))
	r.at.count += n
	r.since += n
	r.job.p.stats.records.Add(n)
	r.job.p.stats.bytes.Add(size)
	for lane := range r.open {
		r.hand(lane)
	}
	poke(r.moved)
}

// hand delivers what has been collected for a lane.
func (r *reader) hand(lane int) {
	if b := r.open[lane]; b != nil {
		r.open[lane] = nil
		r.deliver(lane, message{kind: recordsMessage, batch: b})
	}
}

func (r *reader) deliver(lane int, m message) {
	select {
	case r.lanes[lane] <- m:
	case <-r.ctx.Done():
	}
}

// send sends a message to every lane of the source.
func (r *reader) send(m message) {
	for lane := range r.lanes {
		r.deliver(lane, m)
	}
}

// barrier sends a barrier and says where the source stands.
func (r *reader) barrier(m message) {
	r.send(m)
	r.since = 0
	r.at.position = r.source.Position()
	post(r.ctx, r.events, event{kind: sourceEvent, index: r.index, id: m.id, place: r.at})
}
