package walsink_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// A clinic is a store that refuses some records, and a lane with dead letters.
type clinic struct {
	*rig
	lane sinks.LaneID
	ill  func(n int) bool // numbers of records that are refused
}

// newClinic reads records up to to, of which those that ill names are dead.
func newClinic(t *testing.T, to int, ill func(int) bool) *clinic {
	c := &clinic{rig: newRig(t, 1), ill: ill}
	c.lane = c.id(0)
	opts := c.options()
	opts.Flush.DeadLetters = true
	out, err := walsink.Open(t.Context(), c.sink(), opts)
	if err != nil {
		t.Fatal(err)
	}
	c.drive(out, to, 10)
	drain(t, out)
	closed(t, out)
	return c
}

func (c *clinic) sink() *memory.Sink {
	return memory.Open(c.store, memory.Options{StepBytes: 64, Chunked: true, Reject: func(rec []byte) *sinks.Reject {
		n, err := strconv.Atoi(string(bytes.TrimPrefix(rec, []byte("record "))))
		if err == nil && c.ill(n) {
			return &sinks.Reject{Reason: "ill"}
		}
		return nil
	}})
}

func (c *clinic) replayOptions(dir string) walsink.Options {
	opts := c.options()
	opts.Dir = dir
	return opts
}

func (c *clinic) letters(lane sinks.LaneID) (out []sinks.LetterID) {
	for d, err := range c.sink().DeadLetters(c.t.Context(), lane, sinks.LetterID{}) {
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, d.ID())
	}
	return out
}

// once makes sure that each record up to to is in the store exactly once, but for those
// that missing names.
func (c *clinic) once(to int, missing func(int) bool) {
	c.t.Helper()
	times := map[string]int{}
	for _, lane := range []sinks.LaneID{c.lane, walsink.ReplayLane(c.lane), walsink.ReplayLane(walsink.ReplayLane(c.lane))} {
		for _, rec := range c.store.Records(lane) {
			times[string(rec)]++
		}
	}
	for n := range to {
		want := 1
		if missing(n) {
			want = 0
		}
		if got := times[string(record(n))]; got != want {
			c.t.Errorf("record %d is in %d times, want %d", n, got, want)
		}
	}
}

func TestReplayDeadLetters(t *testing.T) {
	const to = 400
	third := func(n int) bool { return n%3 == 0 }
	c := newClinic(t, to, third)
	c.once(to, third)
	if n := len(c.letters(c.lane)); n != 134 {
		t.Fatalf("%d dead letters, want 134", n)
	}

	// Nothing was mended: all are refused again, and none is lost.
	r, err := walsink.ReplayDeadLetters(t.Context(), c.sink(), c.lane, c.replayOptions(t.TempDir()))
	if err != nil || r.Letters != 134 || r.Again != 134 || r.Dropped != 134 {
		t.Fatalf("%+v, %v", r, err)
	}
	again := walsink.ReplayLane(c.lane)
	if len(c.letters(c.lane)) != 0 || len(c.letters(again)) != 134 {
		t.Fatal("the letters have not moved to the lane of the replay")
	}

	// Half of them are mended, then all.
	c.ill = func(n int) bool { return n%6 == 0 }
	if r, err = walsink.ReplayDeadLetters(t.Context(), c.sink(), again, c.replayOptions(t.TempDir())); err != nil || r.Letters != 134 || r.Again != 67 {
		t.Fatalf("%+v, %v", r, err)
	}
	c.once(to, c.ill)
	c.ill = func(int) bool { return false }
	last := walsink.ReplayLane(again)
	if r, err = walsink.ReplayDeadLetters(t.Context(), c.sink(), last, c.replayOptions(t.TempDir())); err != nil || r.Letters != 67 || r.Again != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, rec := range c.store.Records(walsink.ReplayLane(last)) {
		if n, _ := strconv.Atoi(string(bytes.TrimPrefix(rec, []byte("record ")))); n%6 != 0 {
			t.Errorf("%s was replayed twice", rec)
		}
	}
	if n := len(c.store.Records(walsink.ReplayLane(last))); n != 67 {
		t.Errorf("%d records at last, want 67", n)
	}

	// New dead letters of the same lane, behind those that were replayed.
	c.ill = func(n int) bool { return n == 405 }
	opts := c.options()
	opts.Flush.DeadLetters = true
	out, err := walsink.Open(t.Context(), c.sink(), opts)
	if err != nil {
		t.Fatal(err)
	}
	c.drive(out, 410, 10)
	drain(t, out)
	closed(t, out)
	c.ill = func(int) bool { return false }
	if r, err = walsink.ReplayDeadLetters(t.Context(), c.sink(), c.lane, c.replayOptions(t.TempDir())); err != nil || r.Letters != 1 || r.Again != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if recs := c.store.Records(again); !slices.EqualFunc(recs[len(recs)-1:], [][]byte{record(405)}, bytes.Equal) {
		t.Errorf("the last record replayed is %s", recs[len(recs)-1])
	}
}

var errDied = errors.New("the process died")

// A mortal sink fails everything from a number of calls on.
type mortal struct {
	*memory.Sink
	calls int
}

func (m *mortal) die() error {
	if m.calls--; m.calls < 0 {
		return &sinks.Error{Kind: sinks.Permanent, Op: "die", Err: errDied}
	}
	return nil
}

func (m *mortal) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, mark, err := m.Sink.Acquire(ctx, id)
	return mortalLane{l, m}, mark, errors.Join(err, m.die())
}

func (m *mortal) DropDeadLetters(ctx context.Context, id sinks.LaneID, letters []sinks.LetterID) error {
	if err := m.die(); err != nil { // half of them are gone
		return errors.Join(err, m.Sink.DropDeadLetters(ctx, id, letters[:len(letters)/2]))
	}
	return m.Sink.DropDeadLetters(ctx, id, letters)
}

type mortalLane struct {
	sinks.Lane
	m *mortal
}

func (l mortalLane) Flush(ctx context.Context, st *sinks.Step) (sinks.Result, error) {
	if err := l.m.die(); err != nil {
		return sinks.Result{}, err
	}
	return l.Lane.Flush(ctx, st)
}

// A replay that dies at each of its calls of the store, with and without its directory
// the next time: each letter is in once in the end.
func TestReplayDeadLettersDies(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			const to = 180
			third := func(n int) bool { return n%3 == 0 }
			rnd := rand.New(rand.NewPCG(1, 2))
			c := newClinic(t, to, third)
			c.ill = func(n int) bool { return n%30 == 0 } // some stay ill
			dir := t.TempDir()
			for tries := 0; ; tries++ {
				if !keep {
					dir = t.TempDir()
				}
				s := &mortal{c.sink(), rnd.IntN(3 + tries/4)}
				opts := c.replayOptions(dir)
				opts.Flush.MaxAttempts = 1
				_, err := walsink.ReplayDeadLetters(t.Context(), s, c.lane, opts)
				if err == nil {
					break
				}
				if !errors.Is(err, errDied) {
					t.Fatal(err)
				}
			}
			c.once(to, c.ill)
			if n := len(c.letters(c.lane)); n != 0 {
				t.Errorf("%d dead letters are left", n)
			}
			if n := len(c.letters(walsink.ReplayLane(c.lane))); n != 6 {
				t.Errorf("%d dead letters of the replay, want 6", n)
			}
		})
	}
}

func TestReplayDeadLettersRefuses(t *testing.T) {
	c := newClinic(t, 20, func(n int) bool { return n == 3 })
	type plain struct{ sinks.Sink }
	if _, err := walsink.ReplayDeadLetters(t.Context(), plain{c.sink()}, c.lane, c.replayOptions(t.TempDir())); err == nil {
		t.Error("a sink that gives out no letters")
	}
	other := memory.Open(c.store, memory.Options{Format: "other"})
	if _, err := walsink.ReplayDeadLetters(t.Context(), other, c.lane, c.replayOptions(t.TempDir())); !errors.Is(err, committer.ErrFormat) {
		t.Errorf("letters of another form: %v, want ErrFormat", err)
	}
	if len(c.letters(c.lane)) != 1 {
		t.Error("a refusal took a letter")
	}
	if to, err := walsink.ReplayedTo(sinks.Mark{Position: []byte("elsewhere")}); !errors.Is(err, committer.ErrForeignPosition) {
		t.Errorf("ReplayedTo: %v, %v", to, err)
	}
}

// A takingSink takes records of an earlier form.
type takingSink struct {
	*memory.Sink
	takes string
}

func (s takingSink) Takes(format string) bool { return format == s.takes }

// Letters of an earlier form are replayed in it, in batches of their own.
func TestReplayDeadLettersOfAnEarlierForm(t *testing.T) {
	c := newClinic(t, 20, func(n int) bool { return n == 3 })
	open := func(format string) *memory.Sink { return memory.Open(c.store, memory.Options{Format: format}) }
	c.ill = func(n int) bool { return n == 23 }
	opts := c.options()
	opts.Flush.DeadLetters = true
	out, err := walsink.Open(t.Context(), memory.Open(c.store, memory.Options{Format: "new", Reject: func(rec []byte) *sinks.Reject {
		if string(rec) == string(record(23)) {
			return &sinks.Reject{}
		}
		return nil
	}}), opts)
	if err != nil {
		t.Fatal(err)
	}
	c.drive(out, 30, 10)
	drain(t, out)
	closed(t, out)
	r, err := walsink.ReplayDeadLetters(t.Context(), takingSink{open("new"), "bytes"}, c.lane, c.replayOptions(t.TempDir()))
	if err != nil || r.Letters != 2 || r.Again != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	c.once(30, func(int) bool { return false })
	var forms []string
	for row, err := range open("new").Audit(t.Context(), walsink.ReplayLane(c.lane), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if row.Records > 0 {
			forms = append(forms, row.Format)
		}
	}
	if !slices.Equal(forms, []string{"bytes", "new"}) {
		t.Errorf("the batches of the replay are %q, want one of each form", forms)
	}
}

// An amnesicSink takes several forms, and its ledger remembers no batch.
type amnesicSink struct{ takingSink }

func (amnesicSink) Audit(context.Context, sinks.LaneID, uint64) iter.Seq2[sinks.Audit, error] {
	return func(func(sinks.Audit, error) bool) {}
}

// A letter whose form is not remembered is not guessed at, where there are several.
func TestReplayDeadLettersOfAForgottenForm(t *testing.T) {
	c := newClinic(t, 20, func(n int) bool { return n == 3 })
	c.ill = func(int) bool { return false }
	sink := amnesicSink{takingSink{c.sink(), "earlier"}}
	opts := c.replayOptions(t.TempDir())
	if _, err := walsink.ReplayDeadLetters(t.Context(), sink, c.lane, opts); !errors.Is(err, walsink.ErrFormForgotten) || len(c.letters(c.lane)) != 1 {
		t.Fatalf("%v, %d letters, want ErrFormForgotten and the letter", err, len(c.letters(c.lane)))
	}
	opts.Flush.Accept = committer.AcceptForm
	if r, err := walsink.ReplayDeadLetters(t.Context(), sink, c.lane, opts); err != nil || r.Letters != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	c.once(20, func(int) bool { return false })
}

// A boxSink gives out dead letters of its own.
type boxSink struct {
	*memory.Sink
	letters []sinks.DeadLetter
}

func (s *boxSink) DeadLetters(_ context.Context, _ sinks.LaneID, after sinks.LetterID) iter.Seq2[sinks.DeadLetter, error] {
	return func(yield func(sinks.DeadLetter, error) bool) {
		for _, d := range slices.Clone(s.letters) {
			if d.ID().Compare(after) > 0 && !yield(d, nil) {
				return
			}
		}
	}
}

func (s *boxSink) DropDeadLetters(_ context.Context, _ sinks.LaneID, drop []sinks.LetterID) error {
	s.letters = slices.DeleteFunc(s.letters, func(d sinks.DeadLetter) bool { return slices.Contains(drop, d.ID()) })
	return nil
}

// The letters of a lane that was started anew have numbers that were replayed before:
// they are replayed, and not taken for those that are in and dropped.
func TestReplayDeadLettersOfALaneStartedAnew(t *testing.T) {
	r := newRig(t, 1)
	to := walsink.ReplayLane(r.id(0))
	for i, at := range []uint64{100, 1} {
		s := &boxSink{memory.Open(r.store, memory.Options{}), []sinks.DeadLetter{{Checkpoint: at, Record: record(i)}}}
		opts := r.options()
		opts.Dir = t.TempDir()
		did, err := walsink.ReplayDeadLetters(t.Context(), s, r.id(0), opts)
		if err != nil || did.Letters != 1 || did.Dropped != 1 || len(s.letters) > 0 {
			t.Fatalf("letter of checkpoint %d: %+v, %v", at, did, err)
		}
	}
	if got := r.store.Records(to); !slices.EqualFunc(got, [][]byte{record(0), record(1)}, bytes.Equal) {
		t.Errorf("the store has %q", got)
	}
}

// Letters of before and after a lane was started anew, in the order of a store that keeps
// them as they came, are refused before one of them is written or dropped.
func TestReplayDeadLettersOfTwoHistories(t *testing.T) {
	r := newRig(t, 1)
	for _, ids := range [][]sinks.LetterID{{{Checkpoint: 100, Number: 7}, {Checkpoint: 5, Number: 3}}, {{Checkpoint: 5}, {Checkpoint: 5}}} {
		s := &boxSink{Sink: memory.Open(r.store, memory.Options{})}
		for i, id := range ids {
			s.letters = append(s.letters, sinks.DeadLetter{Checkpoint: id.Checkpoint, Reject: sinks.Reject{Number: id.Number}, Record: record(i)})
		}
		opts := r.options()
		opts.Dir = t.TempDir()
		if did, err := walsink.ReplayDeadLetters(t.Context(), s, r.id(0), opts); !errors.Is(err, walsink.ErrStartedAnew) || len(s.letters) != 2 {
			t.Errorf("%v: %+v, %v, %d letters left", ids, did, err, len(s.letters))
		}
	}
	if got := r.store.Records(walsink.ReplayLane(r.id(0))); len(got) > 0 {
		t.Errorf("the store has %q", got)
	}
}

// The names of replay lanes are valid, and differ for lanes whose names run together.
func TestReplayLane(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), sinks.MaxName))
	seen := map[sinks.LaneID]bool{}
	for _, id := range []sinks.LaneID{{Sink: "a.b", Lane: "c"}, {Sink: "a", Lane: "b.c"}, {Sink: long, Lane: long}, {Sink: long, Lane: "a"}} {
		for range 3 {
			id = walsink.ReplayLane(id)
			if err := id.Validate(); err != nil || seen[id] {
				t.Errorf("%s: %v, seen %v", id, err, seen[id])
			}
			seen[id] = true
		}
	}
}
