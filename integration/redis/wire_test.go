package redis_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// A wire is the network between a client and its servers. It cuts all connections
// after a number of bytes, or freezes before a command.
type wire struct {
	mu            sync.Mutex
	writes, reads int64 // bytes left; only if cutting
	cutting       byte  // 'w', 'r' or 0
	cut           bool
	conns         []net.Conn

	muted   bool
	holding bool
	held    chan struct{} // closed at the first write that is held back
	late    []byte
	lateTo  net.Conn
	rec     bool
	wrote   []byte // while recording
	got     []byte
	inject  []byte // to be read first

	word    string // command to freeze before
	count   int
	reached chan struct{}
	open    chan struct{}
}

// cluster returns a client like c that goes over the wire.
func (w *wire) cluster(t testing.TB, c *goredis.ClusterClient) *goredis.ClusterClient {
	over := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Options().Addrs, Dialer: w.dial})
	t.Cleanup(func() { over.Close() })
	return over
}

func (w *wire) single(t testing.TB, addr string) *goredis.Client {
	over := goredis.NewClient(&goredis.Options{Addr: addr, Dialer: w.dial})
	t.Cleanup(func() { over.Close() })
	return over
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return nil, net.ErrClosed
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.conns = append(w.conns, conn)
	return &wired{Conn: conn, w: w}, nil
}

func (w *wire) cutWrites(n int64) { w.set('w', n) }
func (w *wire) cutReads(n int64)  { w.set('r', n) }

func (w *wire) set(dir byte, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutting, w.writes, w.reads = dir, n, n
}

// heal lets everything pass again and says whether anything was cut.
func (w *wire) heal() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	cut := w.cut
	w.cutting, w.cut = 0, false
	return cut
}

// freeze stops the wire before the n-th write that holds the word.
func (w *wire) freeze(word string, n int) (reached <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.word, w.count, w.reached, w.open = word, n, make(chan struct{}), make(chan struct{})
	return w.reached
}

func (w *wire) thaw() { close(w.open) }

// hold keeps what is written from now on to itself, and connections open that the
// client closes: the network has the bytes.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding, w.held = true, make(chan struct{})
}

// release lets later writes pass. The function it returns delivers those held back
// and returns what the server answered.
func (w *wire) release() (late func() string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding = false
	return func() string {
		if err := w.lateTo.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err.Error()
		}
		if _, err := w.lateTo.Write(w.late); err != nil {
			return err.Error()
		}
		b := make([]byte, 4096)
		n, err := w.lateTo.Read(b)
		w.lateTo.Close()
		if err != nil {
			return err.Error()
		}
		return string(b[:n])
	}
}

// record keeps a copy of what passes; replay lets the next read get an old answer
// first.
func (w *wire) record() { w.mu.Lock(); w.rec = true; w.mu.Unlock() }

func (w *wire) replay() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inject, w.rec = w.got[strings.LastIndex(string(w.got), "*4\r\n"):], false
}

func (w *wire) said() string { w.mu.Lock(); defer w.mu.Unlock(); return string(w.wrote) }

// refuse lets nothing through until heal.
func (w *wire) refuse(testing.TB) (heal func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sever()
	return func() { w.heal() }
}

// mute closes each connection on which a script was called when the answer comes,
// until heal.
func (w *wire) mute(testing.TB) (heal func()) {
	set := func(on bool) { w.mu.Lock(); w.muted = on; w.mu.Unlock() }
	set(true)
	return func() { set(false) }
}

// sever closes everything; the caller holds mu.
func (w *wire) sever() {
	w.cut = true
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

type wired struct {
	net.Conn
	w     *wire
	asked bool // a script was called
}

func (c *wired) Write(b []byte) (int, error) {
	w := c.w
	w.mu.Lock()
	if w.word != "" && bytes.Contains(b, []byte(w.word)) {
		if w.count--; w.count == 0 {
			close(w.reached)
		}
	}
	frozen := w.word != "" && w.count <= 0
	open := w.open
	w.mu.Unlock()
	if frozen {
		<-open
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return 0, net.ErrClosed
	}
	if w.cutting == 'w' && int64(len(b)) >= w.writes {
		n, _ := c.Conn.Write(b[:w.writes])
		w.sever()
		return n, net.ErrClosed
	}
	if w.holding {
		if w.lateTo == nil {
			close(w.held)
		}
		w.late, w.lateTo = append(w.late, b...), c.Conn
		return len(b), nil
	}
	if w.rec {
		w.wrote = append(w.wrote, b...)
	}
	w.writes -= int64(len(b))
	c.asked = bytes.Contains(b, []byte("evalsha"))
	return c.Conn.Write(b)
}

func (c *wired) Close() error {
	c.w.mu.Lock()
	held := c.w.lateTo == c.Conn
	c.w.mu.Unlock()
	if held { // the bytes outlive the client; wake its reader up
		return c.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	return c.Conn.Close()
}

func (c *wired) Read(b []byte) (int, error) {
	w := c.w
	w.mu.Lock()
	if len(w.inject) > 0 {
		n := copy(b, w.inject)
		w.inject = w.inject[n:]
		w.mu.Unlock()
		return n, nil
	}
	w.mu.Unlock()
	n, err := c.Conn.Read(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.muted && c.asked && n > 0 {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	if w.rec {
		w.got = append(w.got, b[:n]...)
	}
	if w.cutting == 'r' && n > 0 {
		if int64(n) >= w.reads {
			n = int(w.reads)
			w.sever()
			return n, nil
		}
		w.reads -= int64(n)
	}
	return n, err
}
