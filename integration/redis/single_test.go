package redis_test

import (
	"testing"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

func TestFlush(t *testing.T) {
	c := connect(t, servers.Redis(t))
	s := open(t, c, redis.Options{})
	in := newInput("0")
	for range 3 {
		in.batch(t, counters(4000)...)
	}
	lane, mark := acquire(t, s, in.id)
	if mark.Tip() != in.id.Genesis() || mark.Fence != 1 {
		t.Fatalf("first mark %+v", mark)
	}
	step := in.step(mark, 2)
	if _, err := lane.Flush(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	m, err := lane.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.Tip() != step.Next.Tip() || m.Records != 12000 || m.Fence != 1 || string(m.Position) != "after batch 3" {
		t.Fatalf("mark %+v", m)
	}
	if _, err := lane.Flush(t.Context(), step); sinks.KindOf(err) != sinks.Moved {
		t.Fatalf("replay: %v, want moved", err)
	}
	n := c.LLen(t.Context(), "list").Val()
	if n != 3000 {
		t.Fatalf("list %d", n)
	}
	for row, err := range s.Audit(t.Context(), in.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		t.Log(row.Seq, row.Records, row.FlushedAt)
	}
	marks, err := s.Marks(t.Context(), "test")
	if err != nil || len(marks) != 1 || marks[0].Tip() != m.Tip() {
		t.Fatal(marks, err)
	}
}
