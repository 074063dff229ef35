package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// password of the superuser postgres; tests look for it in errors and logs.
const password = "canary-5f3a"

const startTimeout = 90 * time.Second

// shared holds what the tests of this process share.
var shared struct {
	mu       sync.Mutex
	postgres machine
	dbs      int
	redis    []machine // started and not in use
	all      []machine // to be removed by Main
	dir      string    // likewise
}

// Main runs the tests, removes the servers that they shared, looks for leaked
// goroutines, and exits. It is the last call of a TestMain.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	if err := removeShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(opts...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Dir returns a directory for what the tests of a package share. Main removes it.
var Dir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "walsink-shared")
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.dir = dir
	return dir, err
})

func removeShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	if shared.dir != "" {
		errs = append(errs, os.RemoveAll(shared.dir))
	}
	for _, m := range shared.all {
		errs = append(errs, m.remove())
	}
	shared.all, shared.redis, shared.postgres = nil, nil, nil
	return errors.Join(append(errs, closeDocker())...)
}

// Postgres returns the DSN of a fresh, empty database with a superuser. The
// server is shared by the tests of the process; the database is dropped when the
// test ends.
func Postgres(t testing.TB) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.postgres == nil {
		m := start(t, postgresKind, nil, false)
		shared.postgres = m
		shared.all = append(shared.all, m)
	}
	shared.dbs++
	db := fmt.Sprintf("test_%d_%d", os.Getpid(), shared.dbs)
	admin := dsn(shared.postgres.addr(), "postgres")
	if err := execSQL(context.Background(), admin, "create database "+db); err != nil {
		t.Fatalf("servers: %v", err)
	}
	t.Cleanup(func() {
		if err := execSQL(context.Background(), admin, "drop database "+db+" with (force)"); err != nil {
			t.Errorf("servers: %v", err)
		}
	})
	return dsn(shared.postgres.addr(), db)
}

// Redis returns the "host:port" of an empty server that no other test uses until
// this one ends. It may be one that an earlier test has used: a test that changes
// its configuration changes it back.
func Redis(t testing.TB) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if len(shared.redis) == 0 {
		m := start(t, redisKind, nil, false)
		shared.redis = append(shared.redis, m)
		shared.all = append(shared.all, m)
	}
	last := len(shared.redis) - 1
	m := shared.redis[last]
	shared.redis = shared.redis[:last]
	if err := redisCommand(context.Background(), m.addr(), "FLUSHALL", "+OK"); err != nil {
		t.Fatalf("servers: %v", err)
	}
	t.Cleanup(func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.redis = append(shared.redis, m)
	})
	return m.addr()
}

// dsn returns the connection string of a database.
func dsn(addr, db string) string {
	return fmt.Sprintf("postgres://postgres:%s@%s/%s?sslmode=disable", password, addr, db)
}

// execSQL runs one statement on a connection of its own.
func execSQL(ctx context.Context, dsn, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// redisCommand sends one inline command and wants an answer that begins with
// want.
func redisCommand(ctx context.Context, addr, cmd, want string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write([]byte(cmd + "\r\n")); err != nil {
		return err
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil {
		return err
	}
	if got := string(buf[:n]); len(got) < len(want) || got[:len(want)] != want {
		return fmt.Errorf("redis %s: %q", cmd, got)
	}
	return nil
}
