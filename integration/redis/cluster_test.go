package redis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// spreadInput is n records of spread in batches of size.
func spreadInput(t testing.TB, lane string, n, size int) *input {
	in := newInput(lane)
	cmds := spread(n)
	for i := 0; i < n; i += size {
		in.batch(t, cmds[i:min(i+size, n)]...)
	}
	return in
}

func TestClusterFlush(t *testing.T) {
	c := startCluster(t)
	s := open(t, c.ClusterClient, redis.Options{})
	in := spreadInput(t, "0", 3000, 1000)
	lane, first := acquire(t, s, in.id)
	mark := in.finish(t, lane, first)
	if mark.Records != 3000 || mark.Seq != 3 || mark.Partial != nil {
		t.Fatalf("mark %+v", mark)
	}
	checkSpread(t, c, 3000)

	t.Run("replay", func(t *testing.T) {
		if _, err := lane.Flush(t.Context(), in.step(first, 2)); sinks.KindOf(err) != sinks.Moved {
			t.Errorf("got %v, want moved", err)
		}
		checkSpread(t, c, 3000)
	})
	t.Run("ledger", func(t *testing.T) {
		marks, err := s.Marks(t.Context(), "test")
		if err != nil || len(marks) != 1 || marks[0].Tip() != mark.Tip() {
			t.Errorf("marks %v, %v", marks, err)
		}
		checkAudit(t, s, in, 0)
	})
	t.Run("R01 R04 keys of several slots", func(t *testing.T) {
		for _, tt := range []struct {
			cmds []redis.Command
			ok   bool
		}{
			{[]redis.Command{{"MSET", "{t}a", "1", "{t}b", "2"}}, true},
			{[]redis.Command{{"MSET", "t{}a", "1", "t{}b", "2"}}, false}, // an empty tag is no tag
			{[]redis.Command{{"SET", "\x00\xff{\x01}", "1"}, {"INCR", "{\x01}n"}}, true},
			{[]redis.Command{{"SET", "a", "1"}, {"SET", "b", "1"}}, false},
			{[]redis.Command{{"RENAME", "a", "b"}}, false},
			{[]redis.Command{{"ZUNIONSTORE", "{t}d", "2", "{t}a", "b"}}, false},
			{[]redis.Command{{"SET", "walsink:mark:{x}", "1"}}, false},
		} {
			err := s.Validate(rec(t, tt.cmds...))
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, redis.ErrCommand) {
				t.Errorf("%q: %v, want ok %v", tt.cmds, err, tt.ok)
			}
		}
	})
}

// checkAudit compares the retained audit rows with the batches from index on.
func checkAudit(t testing.TB, s *redis.Sink, in *input, from int) {
	t.Helper()
	i := from
	for row, err := range s.Audit(t.Context(), in.id, uint64(from)) {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(in.batches) || row.Chain() != in.batches[i].Chain() || row.Seq != uint64(i+1) || row.FlushedAt.IsZero() {
			t.Fatalf("audit row %d: %+v", i, row)
		}
		i++
	}
	if i != len(in.batches) {
		t.Errorf("audit rows up to batch %d, want %d", i, len(in.batches))
	}
}

// TestClusterCut cuts the connections of a flush after every so many bytes, in
// both directions, and lets a new owner finish.
func TestClusterCut(t *testing.T) {
	c := startCluster(t)
	for _, dir := range []string{"to the servers", "to the client"} {
		t.Run(dir, func(t *testing.T) {
			for n := int64(1); ; n += 997 {
				c.flush(t)
				in := spreadInput(t, "0", 60, 20)
				w := &wire{}
				s := open(t, w.cluster(t, c.ClusterClient), redis.Options{})
				lane, mark := acquire(t, s, in.id)
				if dir == "to the servers" {
					w.cutWrites(n)
				} else {
					w.cutReads(n)
				}
				_, err := lane.Flush(t.Context(), in.step(mark, 2))
				cut := w.heal()
				var next sinks.Mark
				if n%2 == 0 {
					lane, next = acquire(t, s, in.id)
				} else if next, err = lane.Mark(t.Context()); err != nil {
					t.Fatal(err)
				}
				in.finish(t, lane, next)
				checkSpread(t, c, 60)
				if t.Failed() {
					t.Fatalf("cut after %d bytes: %v", n, err)
				}
				if !cut {
					break
				}
			}
		})
	}
}

func (c *cluster) flush(t testing.TB) {
	t.Helper()
	if err := c.ForEachMaster(t.Context(), func(ctx context.Context, n *goredis.Client) error { return n.FlushAll(ctx).Err() }); err != nil {
		t.Fatal(err)
	}
}

// TestClusterSlotsMove moves slots to and fro during a flush of many steps.
func TestClusterSlotsMove(t *testing.T) {
	c := startCluster(t)
	s := open(t, c.ClusterClient, redis.Options{})
	in := spreadInput(t, "0", 20000, 200)
	lane, mark := acquire(t, s, in.id)
	stop := make(chan struct{})
	moves := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			for k := range 97 {
				select {
				case <-stop:
					return
				default:
				}
				slot := int(c.ClusterKeySlot(context.Background(), fmt.Sprint("n:", k)).Val())
				if err := c.move(slot, c.nodes[(i+k)%3]); err != nil {
					t.Errorf("move slot %d: %v", slot, err)
					return
				}
				moves++
			}
		}
	})
	halt := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer halt()
	for i := range in.batches { // one step each, so that moves happen between and during
		part := *in
		part.batches = in.batches[:i+1]
		mark = part.finish(t, lane, mark)
	}
	halt()
	t.Logf("R02: %d slot moves during %d steps", moves, len(in.batches))
	checkSpread(t, c, 20000)
	checkAudit(t, s, in, 0)
}

// move gives a slot to a node, key by key, as resharding does.
func (c *cluster) move(slot int, to *node) error {
	ctx := context.Background()
	clients := map[*node]*goredis.Client{}
	ids := map[*node]string{}
	var from *node
	for _, n := range c.nodes {
		cl := goredis.NewClient(&goredis.Options{Addr: n.addr(), Protocol: 2})
		defer cl.Close()
		clients[n] = cl
		id, err := cl.Do(ctx, "cluster", "myid").Text()
		if err != nil {
			return err
		}
		ids[n] = id
	}
	for n, id := range ids { // only a node itself knows for sure
		ranges, err := clients[n].ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS is newer than what we support
		if err != nil {
			return err
		}
		for _, r := range ranges {
			if r.Start <= slot && slot <= r.End && r.Nodes[0].ID == id {
				from = n
			}
		}
	}
	if from == to || from == nil {
		return nil
	}
	if err := clients[to].Do(ctx, "cluster", "setslot", slot, "importing", ids[from]).Err(); err != nil {
		return err
	}
	if err := clients[from].Do(ctx, "cluster", "setslot", slot, "migrating", ids[to]).Err(); err != nil {
		return err
	}
	for {
		keys, err := clients[from].ClusterGetKeysInSlot(ctx, slot, 1).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", "127.0.0.1", to.port, "", 0, 5000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		if err := clients[from].Do(ctx, args...).Err(); err != nil {
			return err
		}
	}
	rest := slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return n == to || n == from })
	for _, n := range append([]*node{to, from}, rest...) {
		if err := clients[n].Do(ctx, "cluster", "setslot", slot, "node", ids[to]).Err(); err != nil {
			return err
		}
	}
	return c.agree(ctx, clients, slot, ids[to])
}

// agree waits until all nodes name the owner of the slot and know the newest
// epoch. Servers that are told of another move before that can end up in
// disagreement for ever.
func (c *cluster) agree(ctx context.Context, clients map[*node]*goredis.Client, slot int, id string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		epochs, owners := map[string]bool{}, 0
		for _, n := range c.nodes {
			ranges, err := clients[n].ClusterSlots(ctx).Result() //nolint:staticcheck // see above
			if err != nil {
				return err
			}
			if slices.ContainsFunc(ranges, func(r goredis.ClusterSlot) bool {
				return r.Start <= slot && slot <= r.End && r.Nodes[0].ID == id
			}) {
				owners++
			}
			info, err := clients[n].ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			_, rest, _ := strings.Cut(info, "cluster_current_epoch:")
			epoch, _, _ := strings.Cut(rest, "\r")
			epochs[epoch] = true
		}
		if owners == len(c.nodes) && len(epochs) == 1 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the nodes do not agree on slot %d: %d of them, epochs %v", slot, owners, epochs)
		}
	}
}

// TestClusterNodeKilled kills a node in the middle of a flush and brings it back.
func TestClusterNodeKilled(t *testing.T) {
	c := startCluster(t, "--appendonly", "yes", "--appendfsync", "always")
	s := open(t, c.ClusterClient, redis.Options{})
	in := spreadInput(t, "0", 6000, 100)
	lane, mark := acquire(t, s, in.id)
	var wg sync.WaitGroup
	for i := range in.batches {
		if i%20 == 10 {
			n := c.nodes[(i/20)%3]
			n.kill()
			n.mend()
			wg.Go(n.start)
		}
		part := *in
		part.batches = in.batches[:i+1]
		mark = part.finish(t, lane, mark)
	}
	wg.Wait()
	checkSpread(t, c, 6000)
}

// TestClusterShardLosesTail takes one shard back to what it was two batches ago.
// The lane finds it when it opens, and also when it is in use, and sends those
// batches again to that shard only.
func TestClusterShardLosesTail(t *testing.T) {
	for _, how := range []string{"found when the lane opens", "found in use"} {
		t.Run(how, func(t *testing.T) {
			c := startCluster(t, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
			s := open(t, c.ClusterClient, redis.Options{})
			in := spreadInput(t, "0", 1500, 300)
			lane, mark := acquire(t, s, in.id)
			part := *in
			part.batches = in.batches[:2]
			mark = part.finish(t, lane, mark)

			shard := c.shardWithout(t, s, in.id)
			shard.kill()
			saved := t.TempDir()
			copyDir(t, filepath.Join(shard.dir, "appendonlydir"), saved)
			shard.start()
			c.awaitOK(t)
			part.batches = in.batches[:4]
			mark = part.finish(t, lane, mark)
			if mark.Seq != 4 {
				t.Fatalf("mark %+v", mark)
			}
			shard.kill()
			copyDir(t, saved, filepath.Join(shard.dir, "appendonlydir"))
			shard.start()
			c.awaitOK(t)

			if how == "found when the lane opens" {
				lane, mark = acquire(t, s, in.id)
				if mark.Seq >= 4 {
					t.Errorf("after the loss the mark is at batch %d, want it to go back", mark.Seq)
				}
			}
			mark = in.finish(t, lane, mark)
			if mark.Seq != 5 || mark.Records != 1500 {
				t.Errorf("mark %+v", mark)
			}
			checkSpread(t, c, 1500)
			checkAudit(t, s, in, 0)
		})
	}
}

// shardWithout is a node that does not hold the lane's home mark.
func (c *cluster) shardWithout(t testing.TB, _ *redis.Sink, id sinks.LaneID) *node {
	home, err := c.MasterForKey(t.Context(), "{"+id.String()+"}")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if !strings.HasSuffix(home.Options().Addr, fmt.Sprint(":", n.port)) {
			return n
		}
	}
	return nil
}

func (c *cluster) awaitOK(t testing.TB) {
	t.Helper()
	for _, n := range c.nodes {
		await(t, "the cluster", func() error {
			info := n.do(t, "cluster", "info")
			for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"} {
				if !strings.Contains(info, want) {
					return errors.New(info)
				}
			}
			return nil
		})
	}
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestClusterFrozenOwner stops an owner between naming the slots and touching
// them, lets another one take over and finish, and wakes the first one up.
func TestClusterFrozenOwner(t *testing.T) {
	c := startCluster(t)
	in := spreadInput(t, "0", 600, 300)
	w := &wire{}
	old := open(t, w.cluster(t, c.ClusterClient), redis.Options{})
	lane, mark := acquire(t, old, in.id)
	part := *in
	part.batches = in.batches[:1]
	mark = part.finish(t, lane, mark)

	reached := w.freeze("evalsha", 2) // the home mark is the first call of the flush
	done := make(chan error, 1)
	go func() {
		_, err := lane.Flush(context.Background(), in.step(mark, 1))
		done <- err
	}()
	<-reached
	s := open(t, c.ClusterClient, redis.Options{})
	next, m := acquire(t, s, in.id)
	if m.Partial == nil {
		t.Errorf("mark %+v: want it to show the batch whose slots were named", m)
	}
	w.thaw()
	err := <-done
	if err == nil {
		t.Fatal("the frozen owner could write")
	}
	if _, err := lane.Mark(t.Context()); sinks.KindOf(err) != sinks.Fenced {
		t.Errorf("mark of the frozen owner: %v, want fenced", err)
	}
	checkSpread(t, c, 300) // nothing of the second batch
	in.finish(t, next, m)
	checkSpread(t, c, 600)
}

// TestClusterShardDown has one shard down: lanes that do not need it go on.
func TestClusterShardDown(t *testing.T) {
	c := startCluster(t)
	s := open(t, c.ClusterClient, redis.Options{})
	// Find a lane and a key that both live on the second node.
	on := func(n int, pattern string) string {
		for i := 0; ; i++ {
			name := fmt.Sprintf(pattern, i)
			if slot := c.ClusterKeySlot(t.Context(), name).Val(); slot >= int64(n*slots/3) && slot < int64((n+1)*slots/3) {
				return name
			}
		}
	}
	lane := strings.TrimSuffix(strings.TrimPrefix(on(1, "{test/%d}"), "{test/"), "}")
	in := newInput(lane)
	for range 20 {
		in.batch(t, redis.Command{"INCR", on(1, "k%d")})
	}
	other := newInput(strings.TrimSuffix(strings.TrimPrefix(on(1, "{test/x%d}"), "{test/"), "}"))
	other.batch(t, redis.Command{"INCR", on(1, "k%d")}, redis.Command{"INCR", on(0, "k%d")})
	l, mark := acquire(t, s, in.id)
	ol, omark := acquire(t, s, other.id)
	mark = in.upTo(2).finish(t, l, mark)
	c.nodes[0].kill()
	mark = in.finish(t, l, mark)
	if mark.Seq != 20 {
		t.Errorf("mark %+v", mark)
	}
	if _, err := ol.Flush(t.Context(), other.step(omark, 0)); err == nil {
		t.Error("a flush to the shard that is down went through")
	}
	if got := c.Get(t.Context(), on(1, "k%d")).Val(); got != "20" && got != "21" {
		t.Errorf("k = %s", got)
	}
}
