package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/walsink/walsink/sinks"
)

// away is the error of a store that nobody listens at.
func away(cause error) error {
	return &storeError{&sinks.Error{Kind: sinks.Transient, Op: "open", Err: cause}}
}

// TestWaiterUntil: what may pass is waited for, with growing pauses and a line for each
// attempt; what is a mistake is an error at once.
func TestWaiterUntil(t *testing.T) {
	wrong := &storeError{&sinks.Error{Kind: sinks.Permanent, Op: "open", Err: errors.New("password authentication failed")}}
	nobody := away(&net.DNSError{Err: "no such host", Name: "dbb", IsNotFound: true})
	for _, c := range []struct {
		name   string
		limit  time.Duration
		errs   func(attempt int) error
		tries  int
		took   time.Duration
		failed string
	}{
		{"up at once", 0, func(int) error { return nil }, 1, 0, ""},
		{"up at the 8th attempt", 0, func(n int) error {
			if n < 8 {
				return away(syscall.ECONNREFUSED)
			}
			return nil
		}, 8, (500 + 1000 + 2000 + 4000 + 8000 + 15000 + 15000) * time.Millisecond, ""},
		{"never up", 20 * time.Second, func(int) error { return away(syscall.ECONNREFUSED) }, 7, 20 * time.Second, "not reached within --wait-store 20s"},
		{"wrong password", 0, func(int) error { return wrong }, 1, 0, "password authentication failed"},
		{"unknown name", 0, func(int) error { return nobody }, 6, 15500 * time.Millisecond, "no such host"},
		{"not about a store", 0, func(int) error { return errors.New("bad") }, 1, 0, "bad"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines bytes.Buffer
				tries, start := 0, time.Now()
				w := waiter{limit: c.limit, log: slog.New(slog.NewTextHandler(&lines, nil)), where: "the store"}
				err := w.until(t.Context(), func(context.Context) error {
					tries++
					return c.errs(tries)
				})
				if tries != c.tries || time.Since(start) != c.took {
					t.Errorf("%d tries in %v, want %d in %v", tries, time.Since(start), c.tries, c.took)
				}
				if (err != nil) != (c.failed != "") || err != nil && !strings.Contains(err.Error(), c.failed) {
					t.Errorf("got %v, want %q", err, c.failed)
				}
				if n := strings.Count(lines.String(), "trying again"); n != c.tries-1 {
					t.Errorf("%d lines for %d attempts that were repeated:\n%s", n, c.tries-1, &lines)
				}
			})
		})
	}
}

// TestWaiterEndsWithItsContext: a hanging attempt has a bound, and a signal ends both
// attempt and pause.
func TestWaiterEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := waiter{log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(t.Context(), 2*tryTime)
		defer cancel()
		tries, start := 0, time.Now()
		err := w.until(ctx, func(ctx context.Context) error {
			tries++
			<-ctx.Done()
			return &sinks.Error{Kind: sinks.Cancelled, Op: "open", Err: ctx.Err()}
		})
		if err == nil || tries != 2 || time.Since(start) != 2*tryTime {
			t.Errorf("%d tries in %v: %v", tries, time.Since(start), err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), shortWait/2)
		defer cancel()
		start = time.Now()
		if err := w.until(ctx, func(context.Context) error { return away(syscall.ECONNREFUSED) }); err == nil || time.Since(start) != shortWait/2 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestRunWaitsForTheStore: SIGTERM or SIGHUP while a run waits ends it cleanly.
func TestRunWaitsForTheStore(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, follow := range []bool{false, true} {
		args := []string{"run", "--from", "ndjson:../../examples/data/earthquakes.ndjson", "--state", t.TempDir(),
			"--to", "postgres://u:c4n4ry@" + closed.Addr().String() + "/d?table=t&sslmode=disable"}
		want := int(codeInterrupted)
		if follow {
			args, want = append(args, "--follow"), int(codeOK)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], args...)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		text := &strings.Builder{}
		for buf := make([]byte, 4096); !strings.Contains(text.String(), "trying again"); {
			n, err := out.Read(buf)
			text.Write(buf[:n])
			if err != nil {
				break
			}
		}
		sig := syscall.SIGTERM
		if follow && !signal.Ignored(syscall.SIGHUP) { // as below nohup
			sig = syscall.SIGHUP
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Error(err)
		}
		rest := &bytes.Buffer{}
		_, _ = rest.ReadFrom(out)
		_ = cmd.Wait() // the exit code says it
		all := text.String() + rest.String()
		if got := cmd.ProcessState.ExitCode(); got != want || !strings.Contains(all, "refused") || strings.Contains(all, "c4n4ry") {
			t.Errorf("follow %v: exit code %d, want %d:\n%s", follow, got, want, all)
		}
	}
}
