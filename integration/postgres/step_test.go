package postgres_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

func TestStepIsAtomicAndReplayIsRefused(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	lane.seal(rowsOf(t, s, 10, 15)...)
	lane.seal()
	l, m0 := acquire(t, s, lane.id)
	if m0.Chain != lane.id.Genesis() || m0.Fence != 1 {
		t.Fatalf("first mark %+v", m0)
	}
	m1 := flush(t, l, lane.step(m0, 1))
	refuse(t, l, lane.step(m0, 1), sinks.Moved)
	wantIDs(d, 0, 10)
	m3 := flush(t, l, lane.step(m1, 3)) // two batches in one step, one of them empty
	wantIDs(d, 0, 15)
	if m3.Records != 15 || m3.Seq != 3 || string(m3.Position) != "position 3" {
		t.Errorf("mark %+v", m3)
	}
	var seqs []uint64
	for a, err := range s.Audit(testContext(t), lane.id, 1) {
		if err != nil {
			t.Fatal(err)
		}
		want := lane.batches[a.Seq-1]
		if a.Chain() != want.Chain() || a.Digest != want.Digest || a.Format != want.Format {
			t.Errorf("audit row %+v, want %+v", a, want)
		}
		seqs = append(seqs, a.Seq)
	}
	if !slices.Equal(seqs, []uint64{2, 3}) {
		t.Errorf("audit rows %v", seqs)
	}
	marks, err := s.Marks(testContext(t), "orders")
	if err != nil || len(marks) != 1 || marks[0].Tip() != m3.Tip() || marks[0].LaneID != lane.id {
		t.Errorf("marks %+v, %v", marks, err)
	}
}

func TestChunksAndDeadLetters(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.open(postgres.Options{Table: "t", Chunked: true})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	lane.seal(rowsOf(t, s, 10, 20)...)
	l, m := acquire(t, s, lane.id)
	m = flush(t, l, lane.chunk(m, 4))
	if m.Partial == nil || m.Partial.Done != 4 || m.Seq != 0 {
		t.Fatalf("mark %+v", m)
	}
	wantIDs(d, 0, 4)
	refuse(t, l, lane.chunk(sinks.Mark{Chain: lane.id.Genesis()}, 4), sinks.Moved)
	m = flush(t, l, lane.step(m, 2, sinks.Reject{Batch: 0, Number: 9}, sinks.Reject{Batch: 1, Number: 0}))
	if m.Partial != nil || m.Seq != 2 || m.Dead != 2 || m.Records != 18 {
		t.Fatalf("mark %+v", m)
	}
	if n := one[int](d, "select count(*) from t where id in (9, 10)"); n != 0 {
		t.Errorf("%d dead records in the table", n)
	}
	got := column[[]byte](d, "select record from walsink.dead_letter order by seq, number")
	if len(got) != 2 || !slices.Equal(got[0], lane.records[0][9]) || !slices.Equal(got[1], lane.records[1][0]) {
		t.Errorf("dead letters %q", got)
	}
}

func TestC112TipDecidesWhoeverWrites(t *testing.T) {
	d := newDB(t, plainTable)
	a, b := d.open(postgres.Options{Table: "t"}), d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, a, 0, 10)...)
	lane.seal(rowsOf(t, a, 10, 20)...)
	old, m0 := acquire(t, a, lane.id)
	m1 := flush(t, old, lane.step(m0, 1))
	fresh, m := acquire(t, b, lane.id)
	if m.Tip() != m1.Tip() || m.Fence != 2 {
		t.Fatalf("mark %+v", m)
	}
	refuse(t, old, lane.step(m1, 2), sinks.Fenced)
	refuse(t, old, lane.step(m0, 1), sinks.Fenced)
	if _, err := old.Mark(testContext(t)); sinks.KindOf(err) != sinks.Fenced {
		t.Errorf("mark of a fenced owner: %v", err)
	}
	refuse(t, fresh, lane.step(m0, 1), sinks.Moved)
	flush(t, fresh, lane.step(m1, 2))
	wantIDs(d, 0, 20)
}

func TestLanesDoNotTouchEachOther(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.open(postgres.Options{Table: "t"})
	for i, id := range []sinks.LaneID{{Sink: "a", Lane: "0"}, {Sink: "a", Lane: "1"}, {Sink: "b", Lane: "0"}} {
		lane := newTape(id.Sink, id.Lane)
		lane.seal(rowsOf(t, s, i*10, i*10+10)...)
		l, m := acquire(t, s, id)
		flush(t, l, lane.step(m, 1))
	}
	wantIDs(d, 0, 30)
}

func TestC108LogErrorGoesBackAsItIs(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	l, m := acquire(t, s, lane.id)
	step := lane.step(m, 1)
	damage := errors.New("block 7 is damaged")
	whole := step.Runs
	step.Runs = func(yield func(sinks.Run, error) bool) {
		for r := range whole {
			yield(r, nil)
		}
		yield(sinks.Run{}, damage)
	}
	if _, err := l.Flush(testContext(t), step); !errors.Is(err, damage) || sinks.KindOf(err) != sinks.Ambiguous {
		t.Errorf("flush: %v", err)
	}
	wantIDs(d, 0, 0)
	flush(t, l, lane.step(m, 1))
}

func TestForeignBytesAreRefused(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.open(postgres.Options{Table: "t"})
	good := rowsOf(t, s, 0, 3)
	for name, rec := range map[string][]byte{
		"no end": []byte("1\tx"), "two lines": []byte("1\tx\n2\ty\n"), "empty": {}, "end of data": []byte("\\.\n"),
		"too few": []byte("1\n"), "too many": []byte("1\tx\ty\n"), "NUL": []byte("1\tx\x00\n"), "UTF-8": []byte("1\t\xff\n"),
	} {
		t.Run(name, func(t *testing.T) {
			lane := newTape("foreign", "0")
			lane.seal(good[0], rec, good[1], rec, good[2])
			l, m := acquire(t, s, lane.id)
			e := refuse(t, l, lane.step(m, 1), sinks.Poison)
			if len(e.Bad) != 2 || e.Bad[0].Number != 1 || e.Bad[1].Number != 3 {
				t.Errorf("bad records %+v", e.Bad)
			}
		})
	}
	wantIDs(d, 0, 0)
}
