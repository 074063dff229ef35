package redis_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

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
	return &wired{conn, w}, nil
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
	w *wire
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
	w.writes -= int64(len(b))
	return c.Conn.Write(b)
}

func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
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
