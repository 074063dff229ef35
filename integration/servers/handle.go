package servers

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// A Server is a server that one test has for itself. Its address and data stay
// the same until the test ends and it is removed. What goes wrong fails the test.
// The methods may be called from any goroutine, one at a time.
type Server struct {
	t testing.TB
	m machine
	k kind
}

// Addr returns "host:port".
func (s *Server) Addr() string { return s.m.addr() }

// Kill ends all processes of the server with SIGKILL, and returns when they are
// gone.
func (s *Server) Kill() { s.check("kill", s.m.kill()) }

// Stop shuts the server down in an orderly way, and returns when it is down.
func (s *Server) Stop() { s.check("stop", s.m.stop()) }

// Start starts the server again after Kill or Stop, and returns when it answers.
func (s *Server) Start() {
	s.check("start", s.m.start())
	s.check("start", s.k.await(s.m))
}

// Restart is Stop and Start.
func (s *Server) Restart() {
	s.Stop()
	s.Start()
}

// Pause freezes all processes of the server. Its connections stay open.
func (s *Server) Pause() { s.check("pause", s.m.pause()) }

// Unpause undoes Pause.
func (s *Server) Unpause() { s.check("unpause", s.m.unpause()) }

// Disconnect cuts the server off the network: nothing passes in either direction,
// and nobody is told.
func (s *Server) Disconnect() { s.check("disconnect", s.m.disconnect()) }

// Connect undoes Disconnect, and returns when the server answers. Connections from
// before may be broken.
func (s *Server) Connect() {
	s.check("connect", s.m.connect())
	s.check("connect", s.k.await(s.m))
}

func (s *Server) check(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("servers: %s %s: %v", what, s.k.name, err)
	}
}

// A PostgresServer is a Postgres server of its own.
type PostgresServer struct {
	*Server
	dbs atomic.Int64
}

// StartPostgres starts a Postgres server for this test alone. The settings are
// given as "name=value" and override the defaults.
func StartPostgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	var args []string
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return &PostgresServer{Server: dedicated(t, postgresKind, args)}
}

// DSN returns the connection string of the database postgres, as superuser.
func (s *PostgresServer) DSN() string { return dsn(s.Addr(), "postgres") }

// Database creates a database and returns its connection string.
func (s *PostgresServer) Database() string {
	s.t.Helper()
	db := fmt.Sprintf("db%d", s.dbs.Add(1))
	if err := execSQL(context.Background(), s.DSN(), "create database "+db); err != nil {
		s.t.Fatalf("servers: %v", err)
	}
	return dsn(s.Addr(), db)
}

// A RedisServer is a Redis server of its own.
type RedisServer struct{ *Server }

// StartRedis starts a Redis server for this test alone. The arguments are those of
// redis-server, as "--appendonly", "yes". By default nothing is persisted, so that
// a restart comes back empty.
func StartRedis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return &RedisServer{dedicated(t, redisKind, args)}
}

func dedicated(t testing.TB, k kind, args []string) *Server {
	t.Helper()
	s := &Server{t: t, m: start(t, k, args, true), k: k}
	t.Cleanup(func() { s.check("remove", s.m.remove()) })
	return s
}

// command is the command line of a server without its binary, port and directory.
func (k kind) command(args []string) []string {
	if k.name == "redis" {
		return append([]string{"--save", "", "--appendonly", "no"}, args...)
	}
	return append([]string{"-c", "max_connections=200"}, args...)
}
