package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"
)

// A machine is one server process or container. The address stays the same over
// its life. Stopping what is stopped is not an error.
type machine interface {
	addr() string
	exited() error // nil while the server runs
	start() error  // after kill or stop; does not wait for readiness
	stop() error   // orderly, and waits
	kill() error   // SIGKILL, and waits
	pause() error  // SIGSTOP or the freezer
	unpause() error
	disconnect() error
	connect() error
	remove() error
}

// A kind is what differs between the two products.
type kind struct {
	name  string
	ready func(ctx context.Context, addr string) error
}

var (
	postgresKind = kind{"postgres", func(ctx context.Context, addr string) error {
		return execSQL(ctx, dsn(addr, "postgres"), "select 1")
	}}
	redisKind = kind{"redis", func(ctx context.Context, addr string) error {
		return redisCommand(ctx, addr, "PING", "+PONG")
	}}
)

// await waits until the server answers, or has ended.
func (k kind) await(m machine) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		once, stop := context.WithTimeout(ctx, 2*time.Second)
		err := k.ready(once, m.addr())
		stop()
		if err == nil {
			return nil
		}
		if gone := m.exited(); gone != nil {
			return gone
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s at %s does not answer after %v: %w", k.name, m.addr(), startTimeout, err)
		}
	}
}

// start starts a server from the first place that can give one and waits until it
// answers. A dedicated one can be disconnected. If there is no place the test ends
// here; a server that starts and does not answer fails it.
func start(t testing.TB, k kind, args []string, dedicated bool) machine {
	t.Helper()
	var errs []error
	for _, place := range [...]struct {
		name  string
		start func(k kind, args []string, dedicated bool) (machine, error)
	}{{"docker", startContainer}, {"local", startProcess}} {
		if only := os.Getenv("WALSINK_SERVERS"); only != "" && only != place.name {
			continue
		}
		m, err := place.start(k, args, dedicated)
		if err == nil {
			if err = k.await(m); err != nil {
				t.Fatalf("servers: %s: %v", place.name, errors.Join(err, m.remove()))
			}
			return m
		}
		errs = append(errs, fmt.Errorf("%s: %w", place.name, err))
	}
	reason := fmt.Sprintf("no %s server: %v", k.name, errors.Join(errs...))
	if os.Getenv("CI") == "true" {
		t.Fatalf("servers: CI=true and %s", reason)
	}
	t.Skipf("servers: %s", reason)
	return nil
}

// freePort returns a port of 127.0.0.1 that is free now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
