package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { Main(m) }

func TestPostgresFreshDatabase(t *testing.T) {
	first, second := Postgres(t), Postgres(t)
	if first == second {
		t.Fatalf("two tests share %s", first)
	}
	ctx := t.Context()
	if err := execSQL(ctx, first, "create table t (n int)"); err != nil {
		t.Fatal(err)
	}
	if err := execSQL(ctx, second, "create table t (n int)"); err != nil {
		t.Errorf("the second database is not empty: %v", err)
	}
}

func TestRedisFlushed(t *testing.T) {
	var addr string
	t.Run("first", func(t *testing.T) {
		addr = Redis(t)
		if other := Redis(t); other == addr {
			t.Errorf("one server for two at a time: %s", addr)
		}
		if err := redisCommand(t.Context(), addr, "SET k v", "+OK"); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("second", func(t *testing.T) {
		for range 2 {
			if err := redisCommand(t.Context(), Redis(t), "GET k", "$-1"); err != nil {
				t.Error(err)
			}
		}
	})
}

// Both places give the same handle, as far as the environment allows both.
func onBoth(t *testing.T, test func(t *testing.T)) {
	places := []string{"docker", "local"}
	if only := os.Getenv("WALSINK_SERVERS"); only != "" {
		places = []string{only}
	}
	for _, place := range places {
		t.Run(place, func(t *testing.T) {
			t.Setenv("WALSINK_SERVERS", place)
			test(t)
		})
	}
}

func TestPostgresHandle(t *testing.T) {
	onBoth(t, func(t *testing.T) {
		s := StartPostgres(t, "log_connections=on")
		db := s.Database()
		if err := execSQL(t.Context(), db, "create table t (n int)"); err != nil {
			t.Fatal(err)
		}
		maltreat(t, s.Server, func(ctx context.Context) error { return execSQL(ctx, s.DSN(), "select 1") })
		if err := execSQL(t.Context(), db, "insert into t values (1)"); err != nil {
			t.Errorf("the data is gone: %v", err)
		}
	})
}

func TestRedisHandle(t *testing.T) {
	onBoth(t, func(t *testing.T) {
		s := StartRedis(t, "--appendonly", "yes")
		maltreat(t, s.Server, func(ctx context.Context) error { return redisCommand(ctx, s.Addr(), "PING", "+PONG") })
	})
}

// maltreat sees that each method of the handle does what it says.
func maltreat(t *testing.T, s *Server, ask func(context.Context) error) {
	t.Helper()
	addr := s.Addr()
	answers := func(when string, want bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if !want {
			ctx, cancel = context.WithTimeout(t.Context(), 700*time.Millisecond)
		}
		defer cancel()
		if err := ask(ctx); (err == nil) != want {
			t.Errorf("%s: answers = %v, want %v (%v)", when, err == nil, want, err)
		}
	}
	answers("start", true)
	s.Kill()
	answers("kill", false)
	s.Kill()
	s.Start()
	answers("kill, start", true)
	s.Pause()
	answers("pause", false)
	s.Unpause()
	answers("unpause", true)
	s.Disconnect()
	answers("disconnect", false)
	s.Connect()
	answers("connect", true)
	s.Stop()
	answers("stop", false)
	s.Stop()
	s.Start()
	s.Restart()
	answers("restart", true)
	if s.Addr() != addr {
		t.Errorf("address went from %s to %s", addr, s.Addr())
	}
}

// A frozen server keeps its connections: a query sent meanwhile is answered later.
func TestPauseKeepsConnections(t *testing.T) { onBoth(t, testPauseKeepsConnections) }

func testPauseKeepsConnections(t *testing.T) {
	s := StartPostgres(t)
	conn, err := pgx.Connect(t.Context(), s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	s.Pause()
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "select 1")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Errorf("a frozen server answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	s.Unpause()
	if err := <-answer; err != nil {
		t.Errorf("after unpause: %v", err)
	}
}

func TestOwner(t *testing.T) {
	host, _ := os.Hostname()
	for owner, want := range map[string]bool{
		self():                     false,
		host + " 2147483647 12345": true,
		host + " 1 1":              startTime(1) != "1",
		"elsewhere 2147483647 1":   false,
		host + " 2147483647":       false,
		"":                         false,
	} {
		if got := ownerGone(owner); got != want {
			t.Errorf("ownerGone(%q) = %v, want %v", owner, got, want)
		}
	}
}

func TestVersionOrder(t *testing.T) {
	if version("/usr/lib/postgresql/15/bin/postgres") <= version("/usr/lib/postgresql/9.6/bin/postgres") {
		t.Error("15 is newer than 9.6")
	}
}

// What a killed test process leaves behind is removed by the next one.
func TestLeftovers(t *testing.T) {
	if os.Getenv("WALSINK_SERVERS_CHILD") != "" {
		s := StartRedis(t)
		addr := s.Addr()
		if p, ok := s.m.(*process); ok {
			addr = localAddr(p.port) // not that of the proxy, which dies with us anyway
		}
		_, _ = fmt.Fprintln(os.Stdout, "address", addr)
		_, _ = os.Stdin.Read(make([]byte, 1)) // until we are killed
		return
	}
	onBoth(t, func(t *testing.T) {
		StartRedis(t) // skips where there are none
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestLeftovers$")
		cmd.Env = append(os.Environ(), "WALSINK_SERVERS_CHILD=1")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var addr string
		if _, err := fmt.Fscanf(stdout, "address %s\n", &addr); err != nil {
			t.Fatal(err)
		}
		if err := redisCommand(t.Context(), addr, "PING", "+PONG"); err != nil {
			t.Error(err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if cli, err := dockerClient(); err == nil {
			if err := sweepContainers(t.Context(), cli); err != nil {
				t.Error(err)
			}
		}
		for end := time.Now().Add(10 * time.Second); redisCommand(t.Context(), addr, "PING", "+PONG") == nil; {
			if time.Now().After(end) {
				t.Fatalf("%s outlives its owner", addr)
			}
		}
	})
}
