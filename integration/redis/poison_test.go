package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// poison is n commands, of which each tenth is one that the store will never take, and
// the arguments of the others.
func poison(n int) (cmds []redis.Command, goods []string) {
	for i := range n {
		if i%10 == 7 {
			cmds = append(cmds, redis.Command{"LPUSH", "wrong", fmt.Sprint("secret", i)})
			continue
		}
		cmds = append(cmds, redis.Command{"RPUSH", "good", fmt.Sprint(i)})
		goods = append(goods, fmt.Sprint(i))
	}
	return cmds, goods
}

// poisoned is a lane with two batches of them.
func poisoned(t *testing.T, c *goredis.Client, opts redis.Options) (*input, sinks.Lane, sinks.Mark) {
	t.Helper()
	c.FlushAll(t.Context())
	c.Set(t.Context(), "wrong", "a string", 0)
	cmds, _ := poison(20)
	in := newInput("0")
	in.batch(t, cmds...)
	in.batch(t, cmds[:5]...)
	lane, mark := acquire(t, open(t, c, opts), in.id)
	return in, lane, mark
}

// TestPoison meets records that the store will never take.
func TestPoison(t *testing.T) {
	c := connect(t, servers.Redis(t))
	ctx := t.Context()
	t.Run("E21 C109 stops at the record and names it", func(t *testing.T) {
		in, lane, mark := poisoned(t, c, redis.Options{})
		_, err := lane.Flush(ctx, in.step(mark, 1))
		var e *sinks.Error
		if !errors.As(err, &e) || e.Kind != sinks.Poison || len(e.Bad) != 1 {
			t.Fatalf("got %v, want poison", err)
		}
		if b := e.Bad[0]; b.Batch != 0 || b.Number != 7 || b.Code != "WRONGTYPE" || strings.Contains(err.Error(), "secret") {
			t.Errorf("reject %+v: %v", b, err)
		}
		m, err := lane.Mark(ctx)
		if err != nil || m.Partial == nil || m.Partial.Done != 7 || m.Records != 7 {
			t.Fatalf("mark %+v, %v", m, err)
		}
		for _, n := range []int{7, 17} {
			in.dead[[2]int{0, n}] = sinks.Reject{Field: "f", Code: "WRONGTYPE", Reason: "r"}
		}
		m = in.finish(t, lane, m)
		if m.Dead != 2 || m.Records != 23 {
			t.Errorf("mark %+v", m)
		}
		checkLetters(t, c, in, 7, 17)
		_, goods := poison(20)
		if got := c.LRange(ctx, "good", 0, -1).Val(); strings.Join(got, " ") != strings.Join(append(goods, "0", "1", "2", "3", "4"), " ") {
			t.Errorf("good = %v", got)
		}
	})
	t.Run("tolerated in the same step", func(t *testing.T) {
		in, lane, mark := poisoned(t, c, redis.Options{ChunkTime: 1})
		st := in.step(mark, 1)
		st.Tolerate = 2
		res, err := lane.Flush(ctx, st)
		if err != nil || len(res.Rejected) != 2 || res.Rejected[0].Number != 7 || res.Rejected[1].Number != 17 {
			t.Fatalf("result %+v, %v", res, err)
		}
		m, err := lane.Mark(ctx)
		if err != nil || m.Dead != 2 || m.Records != 23 || m.Tip() != st.Next.Tip() {
			t.Errorf("mark %+v, %v", m, err)
		}
		checkLetters(t, c, in, 7, 17)
	})
	t.Run("more than tolerated", func(t *testing.T) {
		in, lane, mark := poisoned(t, c, redis.Options{ChunkTime: 1})
		st := in.step(mark, 1)
		st.Tolerate = 1
		_, err := lane.Flush(ctx, st)
		if e, ok := errors.AsType[*sinks.Error](err); !ok || e.Kind != sinks.Poison || e.Bad[0].Number != 17 {
			t.Fatalf("got %v, want poison at 17", err)
		}
		m, err := lane.Mark(ctx)
		if err != nil || m.Partial == nil || m.Partial.Done != 17 || fmt.Sprint(m.Partial.Dead) != "[7]" || m.Dead != 1 || m.Records != 16 {
			t.Errorf("mark %+v, %v", m, err)
		}
	})
}

// TestPoisonousRecords meets records of several commands, and what is none.
func TestPoisonousRecords(t *testing.T) {
	c := connect(t, servers.Redis(t))
	ctx := t.Context()
	t.Run("record of several commands", func(t *testing.T) {
		in, lane, mark := poisoned(t, c, redis.Options{})
		in.batches, in.recs = nil, nil
		in.raw(rec(t, redis.Command{"INCR", "n"}, redis.Command{"INCR", "m"}, redis.Command{"LPUSH", "wrong", "x"}, redis.Command{"INCR", "o"}),
			rec(t, redis.Command{"INCR", "p"}))
		_, err := lane.Flush(ctx, in.step(mark, 0))
		if e, ok := errors.AsType[*sinks.Error](err); !ok || e.Kind != sinks.Poison || e.Bad[0].Field != "command 3" {
			t.Fatalf("got %v, want poison at command 3", err)
		}
		m, err := lane.Mark(ctx)
		if err != nil || m.Partial == nil || m.Partial.Done != 0 {
			t.Fatalf("mark %+v, %v: want the batch pinned", m, err)
		}
		c.Del(ctx, "wrong") // somebody repairs it: the rest of the record follows, nothing is repeated
		in.finish(t, lane, m)
		if got := c.MGet(ctx, "n", "m", "o", "p").Val(); fmt.Sprint(got) != "[1 1 1 1]" || c.LLen(ctx, "wrong").Val() != 1 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("record of several commands put aside", func(t *testing.T) {
		in, lane, mark := poisoned(t, c, redis.Options{})
		in.batches, in.recs = nil, nil
		in.raw(rec(t, redis.Command{"INCR", "n"}, redis.Command{"LPUSH", "wrong", "x"}), rec(t, redis.Command{"INCR", "p"}, redis.Command{"INCR", "p"}))
		_, err := lane.Flush(ctx, in.step(mark, 0))
		if sinks.KindOf(err) != sinks.Poison {
			t.Fatal(err)
		}
		m, err := lane.Mark(ctx)
		if err != nil {
			t.Fatal(err)
		}
		in.dead[[2]int{0, 0}] = sinks.Reject{}
		m = in.finish(t, lane, m)
		if m.Dead != 1 || m.Records != 1 || c.Get(ctx, "p").Val() != "2" || c.Get(ctx, "n").Val() != "1" {
			t.Errorf("mark %+v", m)
		}
		letters := checkLetters(t, c, in, 0)
		if letters[0].Values["applied"] != "1" {
			t.Errorf("letter %v: want it to say that one command was applied", letters[0].Values)
		}
	})
	t.Run("not a record", func(t *testing.T) {
		in, lane, mark := poisoned(t, c, redis.Options{})
		in.batches, in.recs = nil, nil
		good := rec(t, redis.Command{"INCR", "n"})
		in.raw(good, []byte("junk"), good, rec(t, redis.Command{"SET", "walsink:mark:{test/0}", "x"}), nil)
		_, err := lane.Flush(ctx, in.step(mark, 0))
		e, ok := errors.AsType[*sinks.Error](err)
		if !ok || e.Kind != sinks.Poison || len(e.Bad) != 3 || e.Bad[0].Number != 1 || e.Bad[1].Number != 3 || e.Bad[2].Number != 4 {
			t.Fatalf("got %v, want three bad records", err)
		}
		for _, b := range e.Bad {
			in.dead[[2]int{0, int(b.Number)}] = b
		}
		in.finish(t, lane, mark)
		if c.Get(ctx, "n").Val() != "2" {
			t.Error("n is not 2")
		}
		checkLetters(t, c, in, 1, 3, 4)
	})
}

// checkLetters compares the dead letters with records of the first batch.
func checkLetters(t *testing.T, c *goredis.Client, in *input, numbers ...int) []goredis.XMessage {
	t.Helper()
	letters := c.XRange(t.Context(), "walsink:dead:{"+in.id.String()+"}", "-", "+").Val()
	if len(letters) != len(numbers) {
		t.Fatalf("%d dead letters, want %d", len(letters), len(numbers))
	}
	for i, n := range numbers {
		v := letters[i].Values
		if v["number"] != fmt.Sprint(n) || v["checkpoint"] != "10" || v["record"] != string(in.recs[0][n]) {
			t.Errorf("dead letter %d: %v", i, v)
		}
	}
	return letters
}

// TestR04NilAnswers has commands that answer nil, an empty list or an error
// number: none of it is an error.
func TestR04NilAnswers(t *testing.T) {
	c := connect(t, servers.Redis(t))
	in := newInput("0")
	in.batch(t, redis.Command{"LPOP", "nothing"}, redis.Command{"SPOP", "nothing", "3"}, redis.Command{"SET", "k", "v", "XX"},
		redis.Command{"GETDEL", "nothing"}, redis.Command{"ZPOPMIN", "nothing"}, redis.Command{"DEL", "nothing"},
		redis.Command{"LMPOP", "1", "nothing", "LEFT"}, redis.Command{"GETSET", "k", "v"}, redis.Command{"EXPIRE", "nothing", "1"})
	lane, mark := acquire(t, open(t, c, redis.Options{}), in.id)
	if m := in.finish(t, lane, mark); m.Records != 9 || m.Dead != 0 {
		t.Errorf("mark %+v", m)
	}
}

// TestClusterPoison has bad records in several slots of a cluster.
func TestClusterPoison(t *testing.T) {
	c := startCluster(t)
	in := newInput("0")
	var cmds []redis.Command
	for i := range 200 {
		cmds = append(cmds, redis.Command{"RPUSH", fmt.Sprint("l:", i%20), fmt.Sprint(i)})
	}
	in.batch(t, cmds...)
	in.batch(t, cmds[:50]...)
	for _, k := range []string{"l:3", "l:7"} {
		c.Set(t.Context(), k, "a string", 0)
	}
	lane, mark := acquire(t, open(t, c.ClusterClient, redis.Options{}), in.id)
	want := 0
	for range 40 {
		var err error
		mark, err = in.try(t.Context(), lane, mark)
		if err == nil {
			break
		}
		e, ok := errors.AsType[*sinks.Error](err)
		if !ok || e.Kind != sinks.Poison {
			t.Fatal(err)
		}
		for _, b := range e.Bad { // as the engine does: note them, read the mark, go on
			if n := b.Number % 20; n != 3 && n != 7 || b.Code != "WRONGTYPE" {
				t.Fatalf("reject %+v", b)
			}
			in.dead[[2]int{int(mark.Seq) + b.Batch, int(b.Number)}] = b
			want++
		}
		if mark, err = lane.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if mark.Seq != 2 || mark.Dead != 20+6 || mark.Records != 250-26 {
		t.Errorf("mark %+v, %d rejects", mark, want)
	}
	for k := range 20 {
		want := int64(13)
		if k >= 10 {
			want = 12
		}
		if k == 3 || k == 7 {
			continue
		}
		if n := c.LLen(t.Context(), fmt.Sprint("l:", k)).Val(); n != want {
			t.Errorf("l:%d has %d, want %d", k, n, want)
		}
	}
	letters := c.XRange(t.Context(), "walsink:dead:{test/0}", "-", "+").Val()
	if len(letters) != 26 {
		t.Errorf("%d dead letters, want 26", len(letters))
	}
}
