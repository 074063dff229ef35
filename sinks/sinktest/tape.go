package sinktest

import (
	"fmt"
	"slices"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A tape is what is to be written to one lane, in batches. It stands for the log.
type tape struct {
	*env
	id      sinks.LaneID
	batches []record.Batch
	items   [][]item
	// split holds the records that were found bad, by batch index and number.
	split map[[2]int]sinks.Reject
	// offered is how far steps went that the sink was asked to write.
	offered place
	// loose says that the last step that was under way did not succeed: the mark may
	// show its first batch pinned.
	loose bool
	made  int
}

// An item is one record.
type item struct {
	payload, wire []byte
	bad           bool // the store refuses it
	lost          bool // it was given up
}

// dead says that the record is not among those that are visible.
func (it item) dead() bool { return it.bad || it.lost }

// A place is a point between two records: so many batches, and so many records of
// the next one.
type place struct {
	batches int
	records int
}

func (p place) before(q place) bool {
	return p.batches < q.batches || p.batches == q.batches && p.records < q.records
}

func (e *env) tape(lane string) *tape {
	return &tape{env: e, id: sinks.LaneID{Sink: e.sink, Lane: lane}, split: map[[2]int]sinks.Reject{}}
}

// fill seals a batch for each size.
func (t *tape) fill(sizes ...int) *tape {
	for _, n := range sizes {
		items := make([]item, n)
		for i := range items {
			items[i] = t.item()
		}
		t.seal(items)
	}
	return t
}

func (t *tape) item() item {
	t.made++
	return t.carry(fmt.Appendf(nil, "%s-%06d", t.id.Lane, t.made))
}

func (t *tape) carry(payload []byte) item {
	return item{payload: payload, wire: t.h.encode(t.id, payload)}
}

func (t *tape) badItem() item {
	it := t.item()
	return item{payload: it.payload, wire: t.h.Bad(t.id, it.payload), bad: true}
}

// seal ends a batch; change, if given, has the last word on its footer.
func (t *tape) seal(items []item, change ...func(*record.Batch)) {
	h := record.NewHasher()
	for _, it := range items {
		h.Add(record.BlockOf(it.wire))
	}
	b := record.Batch{
		Seq: 1, Checkpoint: 10, Prev: t.id.Genesis(), Records: h.Records(), Bytes: h.Bytes(), Digest: h.Sum(),
		Format: t.info.Format, SealedAt: 1_700_000_000_123,
	}
	if n := len(t.batches); n > 0 {
		last := t.batches[n-1]
		b.Seq, b.Checkpoint, b.Prev = last.Seq+1, last.Checkpoint+10, last.Chain()
	}
	b.Position = fmt.Appendf(nil, "after batch %d", b.Seq)
	for _, f := range change {
		f(&b)
	}
	t.batches, t.items = append(t.batches, b), append(t.items, items)
}

// end is the place behind the last batch.
func (t *tape) end() place { return place{batches: len(t.batches)} }

// between returns the items from one place to another.
func (t *tape) between(from, to place) (out []item) {
	for i := from.batches; i <= to.batches && i < len(t.items); i++ {
		first, last := 0, len(t.items[i])
		if i == from.batches {
			first = from.records
		}
		if i == to.batches {
			last = to.records
		}
		out = append(out, t.items[i][first:last]...)
	}
	return out
}

// good are the payloads that are visible when all up to p is in.
func (t *tape) good(p place) (out [][]byte) {
	for _, it := range t.between(place{}, p) {
		if !it.dead() {
			out = append(out, it.payload)
		}
	}
	return out
}

// mark is the mark of a place, without fence and time.
func (t *tape) mark(p place) sinks.Mark {
	m := sinks.Mark{Chain: t.id.Genesis()}
	if p.batches > 0 {
		h := t.batches[p.batches-1].Head()
		m.Seq, m.Chain, m.Checkpoint, m.Position = h.Seq, h.Chain, h.Checkpoint, h.Position
	}
	for _, it := range t.between(place{}, p) {
		if it.dead() {
			m.Dead++
		} else {
			m.Records++
		}
	}
	if p.records > 0 {
		m.Partial = &sinks.Partial{Batch: t.batches[p.batches], Done: uint64(p.records)}
		for n, it := range t.items[p.batches][:p.records] {
			if it.bad {
				m.Partial.Dead = append(m.Partial.Dead, uint64(n))
			}
		}
	}
	return m
}

// place is where a mark stands. A mark that is not of the tape breaks the rule.
func (t *tape) place(m sinks.Mark) place {
	t.Helper()
	p := place{batches: int(m.Seq)}
	if m.Partial != nil {
		p.records = int(m.Partial.Done)
	}
	if p.batches > len(t.batches) || p.records > 0 && (p.batches == len(t.batches) || p.records > len(t.items[p.batches])) {
		t.violated("the mark is at batch %d, record %d, which was never written", p.batches, p.records)
	}
	want := t.mark(p)
	if pinned(m) && p.before(t.offered) {
		want.Partial = &sinks.Partial{Batch: t.batches[p.batches]}
	}
	if why := differs(want, m); why != "" {
		t.violated("the mark of batch %d, record %d: %s", p.batches, p.records, why)
	}
	return p
}

// untouched reports whether the mark leaves open which batch comes first.
func (t *tape) untouched(m sinks.Mark) bool { return m.Tip() == t.id.Genesis() }

// pinned reports whether the mark shows a batch of which nothing is in.
func pinned(m sinks.Mark) bool { return m.Partial != nil && m.Partial.Done == 0 }

// step is the step from a mark to a place, in runs of at most 3 records.
func (t *tape) step(from sinks.Mark, to place) *sinks.Step { return t.stepIn(from, to, 3) }

func (t *tape) stepIn(from sinks.Mark, to place, size int) *sinks.Step {
	st := &sinks.Step{ID: t.id, Prev: from}
	at := place{batches: int(from.Seq)}
	if from.Partial != nil {
		at.records = int(from.Partial.Done)
	}
	var runs []run
	for i, first := at.batches, at.records; i < to.batches || i == to.batches && to.records > 0; i, first = i+1, 0 {
		last := len(t.items[i])
		if i == to.batches {
			last = to.records
		}
		index := len(st.Batches)
		st.Batches = append(st.Batches, sinks.Audit{Batch: t.batches[i], Dead: t.dead(i, last)})
		for n := first; n < last; n++ {
			wire := t.items[i][n].wire
			if why, ok := t.split[[2]int{i, n}]; ok {
				why.Batch, why.Number = index, uint64(n)
				st.Dead = append(st.Dead, sinks.DeadLetter{Reject: why, Checkpoint: t.batches[i].Checkpoint, Record: slices.Clone(wire)})
				continue
			}
			runs = appendRun(runs, index, n, wire, size)
			st.Records, st.Bytes = st.Records+1, st.Bytes+int64(len(wire))
		}
	}
	st.Next = t.after(from, to)
	st.Next.Records += uint64(st.Records)
	st.Next.Dead += uint64(len(st.Dead))
	st.Runs = func(yield func(sinks.Run, error) bool) {
		for _, r := range runs {
			if !yield(sinks.Run{Batch: r.batch, First: uint64(r.first), Block: record.BlockOf(r.recs...)}, nil) {
				return
			}
		}
	}
	return st
}

// after is the mark behind a step, without the counts of the step.
func (t *tape) after(from sinks.Mark, to place) sinks.Mark {
	m := t.mark(to)
	m.Fence, m.UpdatedAt, m.Records, m.Dead = from.Fence, from.UpdatedAt, from.Records, from.Dead
	if m.Partial != nil {
		m.Partial.Dead = nil
		for n := range to.records {
			if _, ok := t.split[[2]int{to.batches, n}]; ok {
				m.Partial.Dead = append(m.Partial.Dead, uint64(n))
			}
		}
	}
	return m
}

// dead counts the records before n of batch i that are known to be bad.
func (t *tape) dead(i, n int) (count uint64) {
	for at := range t.split {
		if at[0] == i && at[1] < n {
			count++
		}
	}
	return count
}

// adopt takes a mark's word for which records of a batch in progress are dead. A
// batch may be pinned only by a step that failed.
func (t *tape) adopt(m sinks.Mark) {
	t.Helper()
	if pinned(m) && !t.loose {
		t.violated("the mark pins batch %d, and no step has failed since it moved", m.Partial.Batch.Seq)
	}
	if m.Partial == nil {
		return
	}
	for _, n := range m.Partial.Dead {
		at := [2]int{int(m.Seq), int(n)}
		if _, ok := t.split[at]; !ok {
			t.split[at] = sinks.Reject{Number: n, Reason: "found by the sink"}
		}
	}
}

// A run is what becomes a sinks.Run.
type run struct {
	batch, first int
	recs         [][]byte
}

func appendRun(runs []run, batch, n int, wire []byte, size int) []run {
	if k := len(runs) - 1; k >= 0 {
		if r := &runs[k]; r.batch == batch && r.first+len(r.recs) == n && len(r.recs) < size {
			r.recs = append(r.recs, wire)
			return runs
		}
	}
	return append(runs, run{batch, n, [][]byte{wire}})
}

// hook calls f before each run of the step, with the number of the run from 0, and
// once more behind the last. An error of f ends the runs.
func hook(st *sinks.Step, f func(n int) error) *sinks.Step {
	inner := st.Runs
	st.Runs = func(yield func(sinks.Run, error) bool) {
		n := 0
		for r, err := range inner {
			if herr := f(n); herr != nil {
				yield(sinks.Run{}, herr)
				return
			}
			if !yield(r, err) {
				return
			}
			n++
		}
		if err := f(n); err != nil {
			yield(sinks.Run{}, err)
		}
	}
	return st
}
