package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// An input is what one lane is to write: batches of records in the wire form. It
// plays the engine: it makes steps from a mark on.
type input struct {
	id      sinks.LaneID
	batches []record.Batch
	recs    [][][]byte
	dead    map[[2]int]sinks.Reject // batch index, number: found bad before
}

func newInput(lane string) *input {
	return &input{id: sinks.LaneID{Sink: "test", Lane: lane}, dead: map[[2]int]sinks.Reject{}}
}

// batch adds a batch of records of one command each.
func (in *input) batch(t testing.TB, cmds ...redis.Command) {
	t.Helper()
	var recs [][]byte
	for _, c := range cmds {
		recs = append(recs, rec(t, c))
	}
	in.raw(recs...)
}

func (in *input) raw(recs ...[]byte) {
	h := record.NewHasher()
	h.Add(record.BlockOf(recs...))
	b := record.Batch{
		Seq: 1, Checkpoint: 10, Prev: in.id.Genesis(), Records: h.Records(), Bytes: h.Bytes(), Digest: h.Sum(),
		Format: redis.Format, SealedAt: 1700000000000,
	}
	if n := len(in.batches); n > 0 {
		last := in.batches[n-1]
		b.Seq, b.Checkpoint, b.Prev = last.Seq+1, last.Checkpoint+10, last.Chain()
	}
	b.Position = fmt.Appendf(nil, "after batch %d", b.Seq)
	in.batches, in.recs = append(in.batches, b), append(in.recs, recs)
}

func rec(t testing.TB, cmds ...redis.Command) []byte {
	t.Helper()
	r, err := redis.AppendCommands(nil, cmds...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// step makes the step from the mark to the end of batch index last.
func (in *input) step(from sinks.Mark, last int) *sinks.Step {
	return in.stepTo(from, last, in.batches[last].Records)
}

// stepTo ends after record to of batch index last.
func (in *input) stepTo(from sinks.Mark, last int, to uint64) *sinks.Step {
	st := &sinks.Step{ID: in.id, Prev: from, Next: from}
	start := uint64(0)
	if from.Partial != nil {
		start = from.Partial.Done
	}
	var runs []sinks.Run
	for i := int(from.Seq); i <= last; i++ {
		b, end, dead := in.batches[i], in.batches[i].Records, uint64(0)
		if i == last {
			end = to
		}
		at := i - int(from.Seq)
		for n := start; n < end; n++ {
			r := in.recs[i][n]
			if bad, ok := in.dead[[2]int{i, int(n)}]; ok {
				bad.Batch, bad.Number = at, n
				st.Dead = append(st.Dead, sinks.DeadLetter{Reject: bad, Checkpoint: b.Checkpoint, Record: r})
				dead++
				continue
			}
			if k := len(runs) - 1; k >= 0 && runs[k].Batch == at && runs[k].First+uint64(runs[k].Block.Len()) == n && runs[k].Block.Len() < 700 {
				// a run grows up to an odd size, so that there are several
				runs[k].Block = record.BlockOf(in.recs[i][runs[k].First : n+1]...)
			} else {
				runs = append(runs, sinks.Run{Batch: at, First: n, Block: record.BlockOf(r)})
			}
			st.Records++
			st.Bytes += int64(len(r))
		}
		st.Batches = append(st.Batches, sinks.Audit{Batch: b, Dead: dead})
		if end < b.Records {
			st.Next.Partial = &sinks.Partial{Batch: b, Done: end}
		} else {
			h := b.Head()
			st.Next.Seq, st.Next.Chain, st.Next.Checkpoint, st.Next.Position, st.Next.Partial = h.Seq, h.Chain, h.Checkpoint, h.Position, nil
		}
		start = 0
	}
	st.Next.Records += uint64(st.Records)
	st.Next.Dead += uint64(len(st.Dead))
	st.Runs = func(yield func(sinks.Run, error) bool) {
		for _, r := range runs {
			if !yield(r, nil) {
				return
			}
		}
	}
	return st
}

// finish flushes all of in as the engine would: after an error it asks for the
// mark and goes on from there. It gives up at what the engine would give up at.
func (in *input) finish(t testing.TB, lane sinks.Lane, mark sinks.Mark) sinks.Mark {
	t.Helper()
	m, err := in.try(t.Context(), lane, mark)
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	return m
}

func (in *input) try(ctx context.Context, lane sinks.Lane, mark sinks.Mark) (sinks.Mark, error) {
	deadline := time.Now().Add(30 * time.Second)
	for int(mark.Seq) < len(in.batches) {
		_, err := lane.Flush(ctx, in.step(mark, len(in.batches)-1))
		if k := sinks.KindOf(err); k == sinks.Permanent || k == sinks.Poison || k == sinks.Fenced {
			return mark, err
		}
		if err != nil && time.Now().After(deadline) {
			return mark, errors.Join(errors.New("no progress"), err)
		}
		for {
			m, err := lane.Mark(ctx)
			if err == nil {
				mark = m
				break
			}
			if k := sinks.KindOf(err); k == sinks.Permanent || k == sinks.Fenced || time.Now().After(deadline) {
				return mark, err
			}
		}
	}
	return mark, nil
}

func connect(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t testing.TB, c goredis.UniversalClient, opts redis.Options) *redis.Sink {
	t.Helper()
	s, err := redis.Open(t.Context(), c, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func acquire(t testing.TB, s *redis.Sink, id sinks.LaneID) (sinks.Lane, sinks.Mark) {
	t.Helper()
	var l sinks.Lane
	var m sinks.Mark
	await(t, "the lane", func() (err error) {
		l, m, err = s.Acquire(t.Context(), id)
		if k := sinks.KindOf(err); err != nil && k != sinks.Transient && k != sinks.Ambiguous {
			t.Fatal(err)
		}
		return err
	})
	t.Cleanup(func() { l.Close() })
	return l, m
}

// counters makes n records that count by HINCRBY, push and add to a stream.
func counters(n int) []redis.Command {
	var cmds []redis.Command
	for i := range n {
		switch i % 4 {
		case 0:
			cmds = append(cmds, redis.Command{"HINCRBY", "counts", fmt.Sprint("f", i%3), "1"})
		case 1:
			cmds = append(cmds, redis.Command{"RPUSH", "list", fmt.Sprint(i)})
		case 2:
			cmds = append(cmds, redis.Command{"XADD", "stream", "*", "n", fmt.Sprint(i)})
		case 3:
			cmds = append(cmds, redis.Command{"ZINCRBY", "scores", "1", fmt.Sprint("m", i%7)})
		}
	}
	return cmds
}

// checkCounters compares the store with n records of counters.
func checkCounters(t testing.TB, c goredis.UniversalClient, n int) {
	t.Helper()
	if err := counted(t.Context(), c, n); err != nil {
		t.Error(err)
	}
}

func counted(ctx context.Context, c goredis.UniversalClient, n int) error {
	counts, scores := map[string]int{}, map[string]int{}
	var list, stream []string
	for i := range n {
		switch i % 4 {
		case 0:
			counts[fmt.Sprint("f", i%3)]++
		case 1:
			list = append(list, fmt.Sprint(i))
		case 2:
			stream = append(stream, fmt.Sprint(i))
		case 3:
			scores[fmt.Sprint("m", i%7)]++
		}
	}
	got := c.HGetAll(ctx, "counts").Val()
	for f, want := range counts {
		if got[f] != fmt.Sprint(want) {
			return fmt.Errorf("counts %s = %s, want %d", f, got[f], want)
		}
	}
	for m, want := range scores {
		if got := c.ZScore(ctx, "scores", m).Val(); got != float64(want) {
			return fmt.Errorf("scores %s = %v, want %d", m, got, want)
		}
	}
	if got := c.LRange(ctx, "list", 0, -1).Val(); !slices.Equal(got, list) {
		return fmt.Errorf("list has %d entries, want %d", len(got), len(list))
	}
	var ns []string
	for _, e := range c.XRange(ctx, "stream", "-", "+").Val() {
		ns = append(ns, fmt.Sprint(e.Values["n"]))
	}
	if !slices.Equal(ns, stream) {
		return fmt.Errorf("stream has %d entries, want %d", len(ns), len(stream))
	}
	return nil
}
