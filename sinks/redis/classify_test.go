package redis

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
)

// A serverText is an error as a server sends it.
type serverText string

func (e serverText) Error() string { return string(e) }
func (serverText) RedisError()     {}

var _ goredis.Error = serverText("")

func TestClassify(t *testing.T) {
	live := context.Background()
	ended, cancel := context.WithCancel(live)
	cancel()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		sent bool
		want sinks.Kind
	}{
		{live, refused, false, sinks.Transient},
		{live, io.EOF, true, sinks.Ambiguous},
		{live, io.EOF, false, sinks.Transient},
		{live, os.ErrDeadlineExceeded, true, sinks.Ambiguous},
		{live, errAnswer, true, sinks.Ambiguous},
		{live, goredis.ErrPoolTimeout, false, sinks.Transient},
		{ended, io.EOF, true, sinks.Cancelled},
		{live, context.Canceled, true, sinks.Cancelled},
		{live, fmt.Errorf("tls: %w", x509.UnknownAuthorityError{}), true, sinks.Permanent},
		{live, serverText("LOADING Redis is loading the dataset in memory"), true, sinks.Transient},
		{live, serverText("BUSY Redis is busy running a script"), true, sinks.Transient},
		{live, serverText("READONLY You can't write against a read only replica."), true, sinks.Transient},
		{live, serverText("MASTERDOWN Link with MASTER is down"), true, sinks.Transient},
		{live, serverText("CLUSTERDOWN The cluster is down"), true, sinks.Transient},
		{live, serverText("TRYAGAIN Multiple keys request during rehashing of slot"), true, sinks.Transient},
		{live, serverText("MOVED 3999 127.0.0.1:6381"), true, sinks.Transient},
		{live, serverText("ASK 3999 127.0.0.1:6381"), true, sinks.Transient},
		{live, serverText("NOSCRIPT No matching script."), true, sinks.Transient},
		{live, serverText("OOM command not allowed when used memory > 'maxmemory'."), true, sinks.Transient},
		{live, serverText("-OOM command not allowed"), true, sinks.Transient},
		{live, serverText("MISCONF Redis is configured to save RDB snapshots"), true, sinks.Transient},
		{live, serverText("NOREPLICAS Not enough good replicas to write."), true, sinks.Transient},
		{live, serverText("ERR max number of clients reached"), true, sinks.Transient},
		{live, serverText("NOAUTH Authentication required."), true, sinks.Permanent},
		{live, serverText("WRONGPASS invalid username-password pair"), true, sinks.Permanent},
		{live, serverText("ERR AUTH <password> called without any password configured"), true, sinks.Permanent},
		{live, serverText("NOPERM this user has no permissions to run the 'evalsha' command"), true, sinks.Permanent},
		{live, serverText("WRONGTYPE Operation against a key"), true, sinks.Permanent},
		{live, serverText("CROSSSLOT Keys in request don't hash to the same slot"), true, sinks.Permanent},
		{live, serverText("ERR DB index is out of range"), true, sinks.Permanent},
		{live, serverText("ERR unknown command 'evalsha'"), true, sinks.Permanent},
		{live, fmt.Errorf("initialize: %w", serverText("LOADING x")), false, sinks.Transient},
	} {
		if got := classify(tt.ctx, tt.err, tt.sent); got != tt.want {
			t.Errorf("%v, sent %v: %v, want %v", tt.err, tt.sent, got, tt.want)
		}
	}
}

func TestUnanswered(t *testing.T) {
	for err, want := range map[error]bool{nil: false, io.EOF: true, serverText("BUSY x"): false, goredis.ErrPoolTimeout: true} {
		if got := unanswered(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestCommandKind(t *testing.T) {
	for text, want := range map[string]sinks.Kind{
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                sinks.Poison,
		"ERR value is not an integer or out of range":                                                      sinks.Poison,
		"ERR wrong number of arguments for 'hset' command":                                                 sinks.Poison,
		"ERR Unknown Redis command called from script":                                                     sinks.Poison,
		"BUSYGROUP Consumer Group name already exists":                                                     sinks.Poison,
		"NOPERM this user has no permissions":                                                              sinks.Permanent,
		"ERR The user executing the script can't run this command or subcommand":                           sinks.Permanent,
		"OOM command not allowed when used memory > 'maxmemory'.":                                          sinks.Transient,
		"ERR Script attempted to access a non local key in a cluster node script: abc, on @user_script:1.": sinks.Transient,
		"": sinks.Poison,
	} {
		if got := commandKind(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestReason keeps what may come from a record out of messages.
func TestReason(t *testing.T) {
	for text, want := range map[string]string{
		"ERR unknown command 'FOO', with args beginning with: 'secret' ": "ERR unknown command",
		"ERR x script: 0a1b, on @user_script:1.":                         "ERR x",
		"-WRONGTYPE x\r\ny":                                              "WRONGTYPE x  y",
	} {
		if got := reason(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := reason(strings.Repeat("x", 1000)); len(got) > 210 {
		t.Errorf("reason of %d bytes", len(got))
	}
	if err := redact(serverText("ERR unknown command 'x', with args beginning with: 'secret'")); strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	if err := errors.New("x"); redact(err) != err {
		t.Error("redact changed another error")
	}
}

func TestParseReply(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want error
	}{
		{[]any{"n", "ok", int64(5)}, nil},
		{[]any{"m", "ok"}, errAnswer},
		{[]any{"n"}, errAnswer},
		{[]any{int64(1), "ok"}, errAnswer},
		{"n", errAnswer},
		{nil, errAnswer},
	} {
		if _, err := parseReply(tt.v, "n"); err != tt.want {
			t.Errorf("%v: %v, want %v", tt.v, err, tt.want)
		}
	}
	r, _ := parseReply([]any{"n", "ok", int64(5), "x", []any{"y"}}, "n")
	if r.number(0) != 5 || r.text(1) != "x" || r.text(0) != "5" || len(r.list(2)) != 1 || r.number(9) != 0 || r.text(9) != "" || r.list(9) != nil || r.number(1) != 0 {
		t.Errorf("reply %+v", r)
	}
}

func TestPace(t *testing.T) {
	p := newPace(Options{ChunkTime: 2 * time.Millisecond})
	for range 20 { // a fast server: it grows, never by more than double
		before := p.units
		p.learn(p.units, time.Duration(p.units)*time.Microsecond)
		if p.units > 2*before || p.units > maxUnits {
			t.Fatalf("from %d to %d units", before, p.units)
		}
	}
	if p.units < 1900 || p.units > 2100 {
		t.Errorf("%d units at 1 µs each, want about 2000", p.units)
	}
	p.learn(p.units, time.Second) // one slow call
	if p.units != minUnits {
		t.Errorf("%d units after a call of a second", p.units)
	}
	for range 20 {
		p.learn(p.units, time.Duration(p.units)*time.Microsecond)
	}
	if p.units < 1900 {
		t.Errorf("%d units: it does not recover", p.units)
	}
	p.learn(1, time.Microsecond)
	if p.units < 1900 {
		t.Error("a small chunk says nothing")
	}
}
