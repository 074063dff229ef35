package pipeline

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/walsink/walsink/checkpoint"
)

// A worker runs the transforms of one lane.
type worker struct {
	job   *job
	owner Owner
	chain *chain
	lanes []Lane          // by output; nil for one that gets nothing
	from  [][]uint64      // by output and source, the first record it gets; nil for all
	ctx   context.Context // of the phase, for Append
	buf   []byte          // encoded record

	// The record in hand, for messages.
	source int
	number uint64

	emitted, bytes uint64 // not yet accounted for

	// What follows is used by the running phase only.
	inputs  []chan message // by source; nil for a source that does not feed the lane
	align   *checkpoint.Aligner
	events  chan<- event
	resumed atomic.Uint64 // the lane goes on after this cut
	aborted atomic.Uint64 // cuts up to this one are given up
	wake    chan struct{} // says that one of the two has changed
	done    bool          // Finish was called
	cases   []reflect.SelectCase
}

func (j *job) newWorker(ctx context.Context, owner Owner, lanes []Lane) (*worker, error) {
	w := &worker{job: j, owner: owner, lanes: lanes, ctx: ctx, wake: make(chan struct{}, 1)}
	var err error
	if w.chain, err = newChain(j.p.Stages, owner, w.emit); err != nil {
		return nil, err
	}
	return w, w.chain.restore(ctx, j.last, j.states)
}

// process takes a record through the chain.
func (w *worker) process(source int, number uint64, rec []byte) error {
	w.source, w.number = source, number
	if err := w.chain.head(rec); err != nil {
		return w.fail(err)
	}
	return nil
}

func (w *worker) fail(err error) error {
	return fmt.Errorf("source %s record %d lane %s: %w", w.job.p.Sources[w.source].Name, w.number+1, laneName(w.owner.Lane), err)
}

// emit is the end of the chain: the record goes to every output.
func (w *worker) emit(rec []byte) error {
	for i, lane := range w.lanes {
		if lane == nil || w.from != nil && w.number < w.from[i][w.source] {
			continue
		}
		out := rec
		if encode := w.job.p.Outputs[i].Encode; encode != nil {
			b, err := encode(w.buf[:0], rec)
			if err != nil {
				return &failure{where: "encode for output " + w.job.p.Outputs[i].Name, err: err}
			}
			w.buf, out = b, b
		}
		if err := lane.Append(w.ctx, out); err != nil {
			return &failure{where: "output " + w.job.p.Outputs[i].Name, err: err}
		}
		w.emitted++
		w.bytes += uint64(len(out))
	}
	return nil
}

// account adds what the lane has emitted to the sums of the run.
func (w *worker) account() {
	w.job.p.stats.emitted.Add(w.emitted)
	w.job.p.stats.openBytes.Add(w.bytes)
	w.emitted, w.bytes = 0, 0
}

// run handles messages until the phase ends.
func (w *worker) run() {
	for {
		input, m, ok := w.receive()
		if !ok {
			return
		}
		if err := w.handle(input, m); err != nil {
			post(w.ctx, w.events, event{err: err})
			return
		}
	}
}

// receive returns the next message of an input that is not held back. It is false
// when the phase has ended.
func (w *worker) receive() (int, message, bool) {
	for {
		w.align.Abort(w.aborted.Load())
		input, m, ok := w.next()
		if !ok || input >= 0 {
			return input, m, ok
		}
	}
}

// next waits for a message, for a wake-up, which is input -1, or for the end.
func (w *worker) next() (input int, m message, ok bool) {
	if len(w.inputs) == 1 {
		select {
		case <-w.ctx.Done():
			return 0, m, false
		case <-w.wake:
			return -1, m, true
		case m = <-w.inputs[0]:
			return 0, m, true
		}
	}
	w.cases = append(w.cases[:0], recvCase(w.ctx.Done()), recvCase(w.wake))
	for i, in := range w.inputs {
		if w.align.Held(i) {
			in = nil
		}
		w.cases = append(w.cases, recvCase(in))
	}
	chosen, v, _ := reflect.Select(w.cases)
	switch chosen {
	case 0:
		return 0, m, false
	case 1:
		return -1, m, true
	}
	return chosen - 2, v.Interface().(message), true
}

func recvCase[T any](ch <-chan T) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)}
}

func (w *worker) handle(input int, m message) error {
	switch m.kind {
	case recordsMessage:
		if err := w.align.Record(input); err != nil {
			return fmt.Errorf("lane %s: %w", laneName(w.owner.Lane), err)
		}
		return w.batch(m.batch)
	case endMessage:
		w.align.End(input)
	case barrierMessage:
		if cut := w.align.Barrier(input, m.id); cut != 0 {
			return w.cut(cut, m.final)
		}
	}
	return nil
}

func (w *worker) batch(b *batch) error {
	start := 0
	for _, it := range b.items {
		if err := w.process(b.source, b.first+uint64(it.number), b.buf[start:it.end]); err != nil {
			return err
		}
		start = it.end
	}
	batches.Put(b)
	w.account()
	return nil
}

// cut is a checkpoint at this lane: the state is taken, and the lane stands still
// until every lane has come here and the outputs have sealed.
func (w *worker) cut(id uint64, final bool) error {
	if final && !w.done && w.align.Ended() {
		w.done, w.from = true, nil
		if err := w.chain.finish(); err != nil {
			return w.fail(err)
		}
		w.account()
	}
	parts, err := w.chain.snapshot(w.ctx, id)
	if err != nil {
		return fmt.Errorf("lane %s checkpoint %d: %w", laneName(w.owner.Lane), id, err)
	}
	post(w.ctx, w.events, event{kind: laneEvent, index: w.owner.Lane, id: id, parts: parts})
	for w.resumed.Load() < id && w.aborted.Load() < id {
		select {
		case <-w.wake:
		case <-w.ctx.Done():
			return nil
		}
	}
	return nil
}

// resume lets the lane go on after a cut. It does not wait.
func (w *worker) resume(id uint64) {
	w.resumed.Store(id)
	poke(w.wake)
}

// abort makes the lane give a cut up. It does not wait.
func (w *worker) abort(id uint64) {
	w.aborted.Store(max(w.aborted.Load(), id))
	poke(w.wake)
}

// poke sends unless a signal is waiting already.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
