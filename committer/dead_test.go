package committer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// badRecord rejects records that contain "bad".
func badRecord(rec []byte) *sinks.Reject {
	if !strings.Contains(string(rec), "bad") {
		return nil
	}
	return &sinks.Reject{Field: "amount", Code: "22P02", Reason: "not a number"}
}

// spoil makes the records with the given numbers bad.
func spoil(list []string, numbers ...int) []string {
	for _, n := range numbers {
		list[n] = fmt.Sprintf("bad%d", n)
	}
	return list
}

func goodOnes(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return badRecord([]byte(s)) != nil })
}

func (w *world) wantDead(numbers ...uint64) {
	w.t.Helper()
	var got []uint64
	for _, d := range w.store.DeadLetters(laneA) {
		if want := fmt.Sprintf("bad%d", d.Number); string(d.Record) != want || d.Field != "amount" || d.Code != "22P02" || d.Reason == "" {
			w.t.Fatalf("dead letter %+v, want %s", d, want)
		}
		got = append(got, d.Number)
	}
	if !slices.Equal(got, numbers) {
		w.t.Fatalf("dead letters %v, want %v", got, numbers)
	}
}

func (w *world) wantCounts(records, dead uint64) {
	w.t.Helper()
	if m, st := w.mark(), w.status(); m.Records != records || m.Dead != dead || st.Records != records || st.Dead != dead {
		w.t.Fatalf("mark %d+%d, status %d+%d, want %d+%d", m.Records, m.Dead, st.Records, st.Dead, records, dead)
	}
}

func TestC109E21PolicyStop(t *testing.T) {
	w := newWorld(t)
	w.mopts.Reject = badRecord
	w.open()
	w.add(1, spoil(recs(0, 99), 57)...)
	w.wantStop(nil, "checkpoint 1", "record 57", `"amount"`, "22P02")
	w.want()
	if f, _ := w.sink.calls(); f != 1 {
		t.Fatalf("%d flushes: it loops", f)
	}
}

func TestC109E21PolicyDeadLetter(t *testing.T) {
	for _, tolerate := range []bool{false, true} {
		for _, chunk := range []int64{0, 16} {
			t.Run(fmt.Sprintf("tolerate=%v/chunk=%d", tolerate, chunk), func(t *testing.T) {
				w := newWorld(t)
				w.mopts = memory.Options{Reject: badRecord, Tolerate: tolerate, StepBytes: chunk, Chunked: chunk > 0}
				w.opts.DeadLetters = true
				w.open()
				first, last := spoil(recs(0, 99), 57), spoil(recs(100, 119), 0, 1, 19)
				w.log.add(key, 1, first...)
				w.log.add(key, 2, last...)
				w.c.Notify()
				w.drain()
				all := append(goodOnes(first), goodOnes(last)...)
				w.want(all...)
				w.wantDead(57, 0, 1, 19)
				w.wantCounts(116, 4)
				w.wantAudit(1, 3)

				// A store that lost both replays the same split.
				w.close()
				w.store = memory.NewStore()
				w.opts.Accept = committer.AcceptDuplicates
				w.open()
				w.drain()
				w.want(all...)
				w.wantDead(57, 0, 1, 19)
				if n := w.status().Errors["poison"]; n > 0 {
					t.Fatalf("the split was made again, %d times", n)
				}
			})
		}
	}
}

func (w *world) wantAudit(dead ...uint64) {
	w.t.Helper()
	var got []uint64
	for row, err := range w.sink.Sink.(sinks.Ledger).Audit(w.t.Context(), laneA, 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		got = append(got, row.Dead)
	}
	if !slices.Equal(got, dead) {
		w.t.Fatalf("audit rows count %v dead, want %v", got, dead)
	}
}

// The split is in the log before the batch is tried without the bad record.
func TestSplitIsDurableBeforeTheRetry(t *testing.T) {
	w := newWorld(t)
	w.mopts.Reject = badRecord
	w.opts.DeadLetters = true
	w.open()
	w.log.fail = func(op string) error {
		if op == "putnote" {
			return errors.New("disk")
		}
		return nil
	}
	w.add(1, spoil(recs(0, 9), 3)...)
	w.wantStop(nil, "note dead letters lane orders/a checkpoint 1", "disk")
	w.want()
	if f, _ := w.sink.calls(); f != 1 {
		t.Fatalf("%d flushes", f)
	}
}

// A batch that was decided under one policy is written like that under another.
func TestSplitSurvivesRestart(t *testing.T) {
	w := newWorld(t)
	w.mopts.Reject = badRecord
	w.opts.DeadLetters = true
	w.opts.MaxAttempts = 1
	w.open()
	w.sink.flush = func(n int, _ *sinks.Step) fault {
		if n == 2 {
			return fault{err: kind(sinks.Transient)}
		}
		return fault{}
	}
	w.add(1, spoil(recs(0, 9), 3)...)
	w.wantStop(nil, "after 1 attempts")
	w.mopts.Reject, w.opts.DeadLetters = nil, false // it would take the record now
	w.restart()
	w.drain()
	w.wantDead(3)
	w.wantCounts(9, 1)
}

func TestDeadLimit(t *testing.T) {
	for _, tolerate := range []bool{false, true} {
		w := newWorld(t)
		w.mopts = memory.Options{Reject: badRecord, Tolerate: tolerate}
		w.opts.DeadLetters, w.opts.DeadLimit = true, 2
		w.open()
		w.add(1, spoil(recs(0, 9), 3, 4)...)
		w.drain()
		w.wantDead(3, 4)
		w.add(2, spoil(recs(10, 19), 3, 4, 5)...)
		w.wantStop(nil, "3 records of batch 2 (checkpoint 2)", "limit is 2")
		w.wantDead(3, 4)
	}
}

// A sink that rejects what it was not given would make the lane loop.
func TestSinkRejectsNonsense(t *testing.T) {
	for _, bad := range [][]sinks.Reject{nil, {{Number: 10}}, {{Batch: 7, Number: 1}}, {{Number: 1}, {Number: 1}}} {
		w := newWorld(t)
		w.opts.DeadLetters = true
		w.open()
		w.sink.flush = func(int, *sinks.Step) fault {
			return fault{err: &sinks.Error{Kind: sinks.Poison, Op: "flush", Bad: bad}}
		}
		w.add(1, recs(0, 9)...)
		w.wantStop(nil, "not given")
		w.want()
	}
}

// A sink that tolerates must count in its mark what it says.
func TestRejectedMustBeInTheMark(t *testing.T) {
	w := newWorld(t)
	w.opts.DeadLetters = true
	w.mopts.Tolerate = true
	w.open()
	w.close()
	sink := lyingSink{memory.Open(w.store, w.mopts)}
	c, err := committer.New(sink, sinkID, w.log, w.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Open(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.log.add(key, 1, recs(0, 9)...)
	wantErr(t, c.Drain(t.Context()), nil, "rejected 1 records", "counts 0 dead of 10, not 1 of 10")
}

// Dead records of a part that is in are taken from the mark, not decided again.
func TestPartialDeadIsAdopted(t *testing.T) {
	w := newWorld(t)
	w.mopts = memory.Options{Reject: badRecord, StepBytes: 16, Chunked: true}
	w.opts.DeadLetters = true
	w.open()
	list := spoil(recs(0, 19), 1, 2, 18)
	w.sink.flush = func(_ int, s *sinks.Step) fault {
		if s.Prev.Partial != nil {
			return fault{err: kind(sinks.Permanent)}
		}
		return fault{}
	}
	w.add(1, list...)
	_ = w.stopped()
	w.close()
	if p := w.mark().Partial; p == nil || !slices.Equal(p.Dead, []uint64{1, 2}) {
		t.Fatalf("mark %+v", w.mark())
	}
	w.log = newLog() // the notes are gone with it
	o := w.wantOutcome(committer.Resume)
	w.add(o.Mark.Partial.Batch.Checkpoint, list...)
	w.drain()
	w.want(goodOnes(list)...)
	w.wantDead(1, 2, 18)
	w.wantAudit(3)
	if m := w.mark(); m.Records != 17 || m.Dead != 3 {
		t.Fatalf("mark %+v", m)
	}
}

// TestPartOfAStepCounts has the store take the beginning of a step, and then refuse the
// rest: a record of it counts once, as what it is, and so it does for an observer.
func TestPartOfAStepCounts(t *testing.T) {
	for _, done := range []int{0, 3} {
		t.Run(fmt.Sprint(done, " records of batch 2"), func(t *testing.T) {
			w := newWorld(t)
			w.mopts = memory.Options{Reject: badRecord, Tolerate: true, Chunked: true}
			w.opts.DeadLetters = true
			var records, dead, told int64
			w.opts.Observer.Flushed = func(_ string, s committer.StepInfo, _ time.Duration) {
				records, dead = records+s.Records, dead+s.Dead
			}
			w.opts.Observer.Dead = func(string, uint64, sinks.Reject) { told++ }
			w.open()
			w.close()
			for i := range 3 {
				w.log.add(key, uint64(i+1), spoil(recs(10*i, 10*i+9), 2, 5)...)
			}
			w.start()
			w.sink.flush = func(n int, _ *sinks.Step) fault {
				if n == 1 {
					return fault{err: kind(sinks.Transient), first: 10 + done}
				}
				return fault{}
			}
			if _, err := w.tryOpen(); err != nil {
				t.Fatal(err)
			}
			w.drain()
			w.wantCounts(24, 6)
			st := w.status()
			if st.Batches != 3 || st.Settled != 1 {
				t.Errorf("%d batches, %d steps settled, want 3 and 1", st.Batches, st.Settled)
			}
			w.close() // an observer is told last
			if records != 24 || dead != 6 || told != 6 {
				t.Errorf("observed %d records, %d dead, %d of them one by one", records, dead, told)
			}
			w.wantDead(2, 5, 2, 5, 2, 5)
		})
	}
}

func TestDamagedNote(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.close()
	w.log.add(key, 1, recs(0, 9)...)
	w.log.find(key, 1).note = []byte(`{"version":1,"dead":[{"number":10}]}`)
	w.open()
	w.wantStop(nil, "note", "checkpoint 1")
	w.want()
}
