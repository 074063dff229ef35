package faults_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/walsink/walsink/faults"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A server answers each line with "ok " and the line, and remembers all it read.
type server struct {
	l  net.Listener
	wg sync.WaitGroup

	mu   sync.Mutex
	read bytes.Buffer
	done chan struct{} // gets one value per connection that ended
}

func startServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{l: l, done: make(chan struct{}, 100)}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); s.wg.Wait() })
	return s
}

func (s *server) serve(conn net.Conn) {
	defer func() { conn.Close(); s.done <- struct{}{} }()
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadBytes('\n')
		s.mu.Lock()
		s.read.Write(line)
		s.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(conn, "ok %s", line); err != nil {
			return
		}
	}
}

func (s *server) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read.String()
}

func startCutter(t *testing.T) (*faults.Cutter, *server) {
	t.Helper()
	s := startServer(t)
	c, err := faults.NewCutter(s.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) // runs before the server waits for its clients
	return c, s
}

func dial(t *testing.T, c *faults.Cutter) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn
}

// talk sends a line and returns the answer, as far as one comes.
func talk(conn net.Conn, line string) (string, error) {
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func mustTalk(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	if got, err := talk(conn, line); err != nil || got != "ok "+line+"\n" {
		t.Fatalf("talk(%q) = %q, %v", line, got, err)
	}
}

func mustTrip(t *testing.T, tripped <-chan struct{}) {
	t.Helper()
	select {
	case <-tripped:
	case <-time.After(10 * time.Second):
		t.Fatal("the cut did not trip")
	}
}

func TestForwards(t *testing.T) {
	c, s := startCutter(t)
	conn := dial(t, c)
	big := strings.Repeat("x", 1<<20)
	for _, line := range []string{"one", "", big} {
		mustTalk(t, conn, line)
	}
	if got, want := s.got(), "one\n\n"+big+"\n"; got != want {
		t.Errorf("the target read %d bytes, want %d", len(got), len(want))
	}
	if up, down := c.Passed(faults.ToServer), c.Passed(faults.ToClient); up != int64(len(s.got())) || down != up+9 {
		t.Errorf("passed %d and %d bytes, want %d and %d", up, down, len(s.got()), len(s.got())+9)
	}
}

// Every byte of an exchange can be the last one that passes, in both directions,
// and not one more or less passes.
func TestCutAtEveryByte(t *testing.T) {
	const request, answer = "hello\n", "ok hello\n"
	for _, do := range []faults.Action{faults.Reset, faults.Hangup} {
		for n := range len(request) + 1 {
			c, s := startCutter(t)
			conn := dial(t, c)
			tripped := c.Arm(faults.Cut{Dir: faults.ToServer, After: int64(n), Do: do})
			got, err := talk(conn, "hello")
			mustTrip(t, tripped)
			<-s.done
			if err == nil || got != "" || s.got() != request[:n] {
				t.Errorf("action %d, %d bytes to the server: it read %q, client got %q, %v", do, n, s.got(), got, err)
			}
		}
		for n := range len(answer) + 1 {
			c, s := startCutter(t)
			conn := dial(t, c)
			tripped := c.Arm(faults.Cut{Dir: faults.ToClient, After: int64(n), Do: do})
			if _, err := conn.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			mustTrip(t, tripped)
			<-s.done
			if string(got) != answer[:n] || s.got() != request {
				t.Errorf("action %d, %d bytes to the client: got %q, server %q", do, n, got, s.got())
			}
			if reset := errors.Is(err, syscall.ECONNRESET); reset != (do == faults.Reset) {
				t.Errorf("action %d, %d bytes to the client: ended by %v", do, n, err)
			}
		}
	}
}

func TestCutTripsOnce(t *testing.T) {
	c, _ := startCutter(t)
	tripped := c.Arm(faults.Cut{Dir: faults.ToServer, After: 3})
	if _, err := talk(dial(t, c), "first"); err == nil {
		t.Error("the first connection was not cut")
	}
	mustTrip(t, tripped)
	mustTalk(t, dial(t, c), "second")
}

// The count runs over connections: a client that reconnects meets the cut later.
func TestCutCountsAcrossConnections(t *testing.T) {
	c, _ := startCutter(t)
	c.Arm(faults.Cut{Dir: faults.ToServer, After: 8})
	mustTalk(t, dial(t, c), "four")
	if _, err := talk(dial(t, c), "four"); err == nil {
		t.Error("bytes of the first connection were not counted")
	}
}

func TestMatch(t *testing.T) {
	for _, chunk := range []int{0, 1, 2, 3} {
		c, s := startCutter(t)
		conn := dial(t, c)
		c.Limit(chunk, 0)
		c.Arm(faults.Cut{Dir: faults.ToServer, Match: "COMMIT", Do: faults.Hangup})
		mustTalk(t, conn, "COMM")
		if _, err := talk(conn, "COCOMMIT more"); err == nil {
			t.Errorf("chunk %d: not cut", chunk)
		}
		<-s.done
		if got, want := s.got(), "COMM\nCOCOMMIT"; got != want {
			t.Errorf("chunk %d: the server read %q, want %q", chunk, got, want)
		}
	}
}

func TestLoseAnswer(t *testing.T) {
	c, s := startCutter(t)
	conn := dial(t, c)
	mustTalk(t, conn, "begin")
	c.Arm(faults.Cut{Dir: faults.ToServer, Match: "COMMIT\n", Do: faults.LoseAnswer})
	if got, err := talk(conn, "COMMIT"); err == nil || got != "" {
		t.Errorf("the client got %q, %v", got, err)
	}
	<-s.done
	if got, want := s.got(), "begin\nCOMMIT\n"; got != want {
		t.Errorf("the server read %q, want %q", got, want)
	}
}

func TestStallAndHeal(t *testing.T) {
	c, _ := startCutter(t)
	conn := dial(t, c)
	mustTalk(t, conn, "before")
	tripped := c.Arm(faults.Cut{Dir: faults.ToServer, After: 2, Do: faults.Stall})
	answer := make(chan string, 1)
	go func() {
		got, _ := talk(conn, "stalled")
		answer <- got
	}()
	mustTrip(t, tripped)
	select {
	case got := <-answer:
		t.Errorf("answered %q while stalled", got)
	case <-time.After(100 * time.Millisecond):
	}
	if err := c.Heal(); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "ok stalled\n" {
		t.Errorf("after heal: %q", got)
	}
}

func TestCloseEndsStalled(t *testing.T) {
	c, _ := startCutter(t)
	conn := dial(t, c)
	mustTalk(t, conn, "before")
	c.Stall()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlived Close")
	}
}

func TestRefuse(t *testing.T) {
	c, _ := startCutter(t)
	open := dial(t, c)
	mustTalk(t, open, "one")
	c.Refuse()
	if _, err := net.Dial("tcp", c.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	mustTalk(t, open, "two")
	if err := c.Heal(); err != nil {
		t.Fatal(err)
	}
	mustTalk(t, dial(t, c), "three")
}

func TestResetAll(t *testing.T) {
	c, _ := startCutter(t)
	conn := dial(t, c)
	mustTalk(t, conn, "one")
	c.ResetAll()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
	mustTalk(t, dial(t, c), "two")
}

func TestRetarget(t *testing.T) {
	c, first := startCutter(t)
	second := startServer(t)
	t.Cleanup(func() { c.Close() }) // before the second waits for its clients
	mustTalk(t, dial(t, c), "one")
	c.Retarget(second.l.Addr().String())
	mustTalk(t, dial(t, c), "two")
	if first.got() != "one\n" || second.got() != "two\n" {
		t.Errorf("read %q and %q", first.got(), second.got())
	}
}

func TestTargetDown(t *testing.T) {
	c, s := startCutter(t)
	s.l.Close()
	conn, err := net.Dial("tcp", c.Addr())
	if err != nil {
		return // the reset can come that early
	}
	defer conn.Close()
	if got, err := talk(conn, "x"); err == nil {
		t.Errorf("answered %q", got)
	}
}

func TestOneByteAtATime(t *testing.T) {
	c, _ := startCutter(t)
	c.Limit(1, 0)
	mustTalk(t, dial(t, c), strings.Repeat("y", 10_000))
}

func TestRate(t *testing.T) {
	c, _ := startCutter(t)
	conn := dial(t, c)
	c.Limit(0, 100_000)
	begin := time.Now()
	mustTalk(t, conn, strings.Repeat("z", 20_000))
	if took := time.Since(begin); took < 150*time.Millisecond {
		t.Errorf("20 kB at 100 kB/s took %v", took)
	}
}

// Half a connection may be closed: the answer still comes.
func TestHalfClose(t *testing.T) {
	c, s := startCutter(t)
	conn := dial(t, c)
	if _, err := conn.Write([]byte("last\n")); err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "ok last\n" {
		t.Errorf("got %q, %v", got, err)
	}
	<-s.done
}
