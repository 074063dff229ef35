package redis

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A client is a go-redis client of our own: it never repeats a call, says nothing
// about itself to the server, and can be cut. It is made from the options of the
// caller's client, which is left alone.
type client struct {
	goredis.UniversalClient
	cluster bool
	wait    time.Duration // how much longer an answer may take, for WAIT
	sent    atomic.Int64  // bytes given to the network

	mu    sync.Mutex
	conns map[net.Conn]struct{} // open ones
	cut   bool
}

// dial makes the client; no connection is opened yet.
func dial(from goredis.UniversalClient, pool int, wait time.Duration) (*client, error) {
	c := &client{wait: wait, conns: make(map[net.Conn]struct{})}
	switch from := from.(type) {
	case *goredis.Client:
		o := *from.Options()
		c.tune(&o, pool)
		c.UniversalClient = goredis.NewClient(&o)
	case *goredis.ClusterClient:
		o := *from.Options()
		base := o.NewClient
		if base == nil {
			base = goredis.NewClient
		}
		o.MaxRetries, o.ReadOnly, o.RouteByLatency, o.RouteRandomly = -1, false, false, false
		o.MinIdleConns = 0
		o.NewClient = func(node *goredis.Options) *goredis.Client {
			c.tune(node, pool)
			return base(node)
		}
		c.cluster = true
		c.UniversalClient = goredis.NewClusterClient(&o)
	default:
		return nil, errClient
	}
	return c, nil
}

// tune sets what our promises need; everything else is as the caller has it.
func (c *client) tune(o *goredis.Options, pool int) {
	if o.Dialer == nil {
		o.Dialer = goredis.NewDialer(o)
	}
	dialer := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return c.tap(conn)
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	if o.ReadTimeout > 0 {
		o.ReadTimeout += c.wait
	}
	o.Protocol, o.DisableIdentity = 2, true
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.PipelinePoolSize = pool, 0, 0, -1
	o.MaxActiveConns, o.MaxConcurrentDials = 0, 0
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClientSideCacheConfig, o.ClientSideCache = nil, nil
	o.PushNotificationProcessor = nil
}

func (c *client) tap(conn net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		conn.Close()
		return nil, net.ErrClosed
	}
	c.conns[conn] = struct{}{}
	t := &tapped{Conn: conn, c: c}
	if raw, ok := conn.(syscall.Conn); ok {
		return struct {
			*tapped
			syscall.Conn
		}{t, raw}, nil // the pool asks the socket whether it is still alive
	}
	return t, nil
}

// sever closes all connections at once, calls in flight included, and lets no
// new one be opened.
func (c *client) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for conn := range c.conns {
		conn.Close() // whoever reads from it gets the error
	}
}

// guard severs the client when ctx ends before the returned function is called:
// go-redis looks at deadlines only.
func (c *client) guard(ctx context.Context) (release func()) {
	stop := context.AfterFunc(ctx, c.sever)
	return func() { stop() }
}

// A tapped connection counts what it sends.
type tapped struct {
	net.Conn
	c *client
}

func (t *tapped) Write(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	t.c.sent.Add(int64(n))
	return n, err
}

func (t *tapped) Close() error {
	t.c.mu.Lock()
	delete(t.c.conns, t.Conn)
	t.c.mu.Unlock()
	return t.Conn.Close()
}

// master is the client of the server that key lives on.
func (c *client) master(ctx context.Context, key string) (*goredis.Client, error) {
	switch u := c.UniversalClient.(type) {
	case *goredis.ClusterClient:
		return u.MasterForKey(ctx, key)
	case *goredis.Client:
		return u, nil
	}
	return nil, errClient
}
