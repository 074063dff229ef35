package redis_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// jobMark reads the mark of the job, without taking its lane over.
func jobMark(t testing.TB, s *redis.Sink) sinks.Mark {
	t.Helper()
	marks, err := s.Marks(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if len(marks) == 0 {
		return sinks.Mark{}
	}
	return marks[0].Mark
}

// TestClusterJobKilled kills a program that writes to a cluster with SIGKILL at
// random instants; every third start is without local state. C101, C103.
func TestClusterJobKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t)
	s := open(t, c.ClusterClient, redis.Options{})
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.addr())
	}
	j := &job{t: t, bin: self, addr: strings.Join(addrs, ","), state: t.TempDir()}
	rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
	total, pinned, midway := 6000, 0, 0
	begin, last := time.Now(), uint64(0)
	for kills := 0; kills < cycles(20); {
		if last == uint64(total) {
			total += 6000
		}
		if kills%3 == 2 {
			if err := os.RemoveAll(j.state); err != nil {
				t.Fatal(err)
			}
		}
		cmd := j.start(total, 200)
		if kills%2 == 1 { // counted from its first flush, which comes late on a busy machine
			for end := time.Now().Add(10 * time.Second); jobMark(t, s).Records == last && time.Now().Before(end); {
				after(time.Millisecond)
			}
		}
		after(time.Duration(5+rng.IntN(400)) * time.Millisecond)
		_ = cmd.Process.Kill() // it may have ended
		killed, err := end(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if killed {
			kills++
		}
		m := jobMark(t, s)
		if m.Records < last || m.Records > uint64(total) {
			t.Fatalf("kill %d: the mark counts %d records, it did %d before, of %d", kills, m.Records, last, total)
		}
		if killed && m.Records > last && m.Records < uint64(total) {
			midway++
		}
		if m.Partial != nil {
			pinned++
		}
		last = m.Records
	}
	if _, err := end(j.start(total, 200)); err != nil {
		t.Fatal(err)
	}
	checkSpread(t, c, total)
	if m := jobMark(t, s); m.Records != uint64(total) || m.Partial != nil {
		t.Errorf("mark %+v, want %d records", m, total)
	}
	t.Logf("%d kills, %d in the middle of the work, %d that left a batch pinned, %d records, in %v",
		cycles(20), midway, pinned, total, time.Since(begin).Round(time.Second))
	if midway == 0 && !testing.Short() {
		t.Error("no kill came between the first flush of a life and its last one: they do not mean anything")
	}
	campaign.Figures{Cycles: cycles(20), Rows: total, Faults: map[string]int{"kill -9": cycles(20)}}.Report(t)
}
