package redis_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks/redis"
)

// A node is a redis-server process of this test on a loopback port.
type node struct {
	t    testing.TB
	port int
	dir  string
	args []string
	cmd  *exec.Cmd
}

func (n *node) addr() string { return "127.0.0.1:" + strconv.Itoa(n.port) }

// startNode starts a server; the arguments are those of redis-server.
func startNode(t testing.TB, args ...string) *node {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no redis-server on this machine, and CI=true")
		}
		t.Skip("no redis-server on this machine")
	}
	n := &node{t: t, port: freePort(t), dir: t.TempDir(), args: args}
	n.start()
	t.Cleanup(func() { n.kill() })
	return n
}

// freePort finds a port whose cluster bus port, 10000 above, exists.
func freePort(t testing.TB) int {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if port < 55000 {
			return port
		}
	}
}

func (n *node) start() {
	n.t.Helper()
	n.launch()
	c := goredis.NewClient(&goredis.Options{Addr: n.addr(), MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	await(n.t, "the server to answer", func() error { return c.Ping(context.Background()).Err() })
}

// mend cuts an append-only file that the death of the server has torn at the end of
// its last whole transaction, as a careful operator does; see TestTornFile.
func (n *node) mend() {
	n.t.Helper()
	cmd := exec.Command("redis-check-aof", "--fix", filepath.Join(n.dir, "appendonlydir", "appendonly.aof.manifest"))
	cmd.Stdin = strings.NewReader("y\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Errorf("redis-check-aof: %v\n%s", err, out)
	}
}

// launch starts the process and does not wait.
func (n *node) launch() {
	n.t.Helper()
	out, err := os.OpenFile(filepath.Join(n.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer out.Close()
	args := append([]string{"--port", strconv.Itoa(n.port), "--bind", "127.0.0.1", "--dir", n.dir, "--save", ""}, n.args...)
	n.cmd = exec.Command("redis-server", args...)
	n.cmd.Stdout, n.cmd.Stderr, n.cmd.SysProcAttr = out, out, dieWithUs()
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) kill() {
	if n.cmd != nil {
		n.cmd.Process.Kill()
		n.cmd.Wait()
		n.cmd = nil
	}
}

func (n *node) signal(s syscall.Signal) { n.cmd.Process.Signal(s) }

// await waits until f succeeds.
func await(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		<-tick.C
	}
}

// A cluster is three masters that share the slots evenly.
type cluster struct {
	nodes []*node
	*goredis.ClusterClient
}

func startCluster(t testing.TB, args ...string) *cluster {
	t.Helper()
	c := &cluster{}
	args = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no"}, args...)
	var addrs []string
	for range 3 {
		n := startNode(t, args...)
		c.nodes = append(c.nodes, n)
		addrs = append(addrs, n.addr())
	}
	for i, n := range c.nodes {
		from, to := i*slots/3, (i+1)*slots/3-1
		n.do(t, "cluster", "addslotsrange", from, to)
		n.do(t, "cluster", "set-config-epoch", i+1)
		n.do(t, "cluster", "meet", "127.0.0.1", c.nodes[0].port)
	}
	c.awaitOK(t)
	c.ClusterClient = goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { c.Close() })
	return c
}

const slots = 16384

// do runs a command on the node itself.
func (n *node) do(t testing.TB, args ...any) string {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: n.addr(), Protocol: 2})
	defer c.Close()
	v, err := c.Do(context.Background(), args...).Result()
	if err != nil && err != goredis.Nil {
		t.Fatalf("%v: %v", args, err)
	}
	return fmt.Sprint(v)
}

// spread makes n records on keys all over the cluster: counters, lists, streams.
func spread(n int) []redis.Command {
	var cmds []redis.Command
	for i := range n {
		k := fmt.Sprint(i % 97)
		switch i % 3 {
		case 0:
			cmds = append(cmds, redis.Command{"INCRBY", "n:" + k, "1"})
		case 1:
			cmds = append(cmds, redis.Command{"RPUSH", "l:" + k, fmt.Sprint(i)})
		case 2:
			cmds = append(cmds, redis.Command{"XADD", "x:" + k, "*", "i", fmt.Sprint(i)})
		}
	}
	return cmds
}

func checkSpread(t testing.TB, c goredis.UniversalClient, n int) {
	t.Helper()
	counts, lists, streams := map[string]int{}, map[string][]string{}, map[string]int{}
	for i := range n {
		k := fmt.Sprint(i % 97)
		switch i % 3 {
		case 0:
			counts["n:"+k]++
		case 1:
			lists["l:"+k] = append(lists["l:"+k], fmt.Sprint(i))
		case 2:
			streams["x:"+k]++
		}
	}
	ctx := t.Context()
	for k, want := range counts {
		if got, _ := c.Get(ctx, k).Int(); got != want {
			t.Errorf("%s = %d, want %d", k, got, want)
		}
	}
	for k, want := range lists {
		if got := c.LRange(ctx, k, 0, -1).Val(); strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("%s = %v, want %v", k, got, want)
		}
	}
	for k, want := range streams {
		if got := c.XLen(ctx, k).Val(); got != int64(want) {
			t.Errorf("%s has %d entries, want %d", k, got, want)
		}
	}
}
