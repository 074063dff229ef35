package faults

import (
	"fmt"
	"net"
	"sync"
)

// A Direction is one of the two byte streams of a connection.
type Direction uint8

const (
	// ToServer is the stream from the client to the target.
	ToServer Direction = iota
	// ToClient is the stream from the target to the client.
	ToClient
)

// An Action is what a [Cut] does when it trips.
type Action uint8

const (
	// Reset ends the connection with RST on both sides.
	Reset Action = iota
	// Hangup ends the connection with FIN on both sides.
	Hangup
	// Stall lets nothing pass on any connection, in neither direction, until Heal.
	// Connections stay open and new ones are accepted.
	Stall
	// LoseAnswer keeps on forwarding to the target, throws away the first bytes
	// that the target sends next on the connection, and then resets it: the target
	// has done what it was told, and the client does not know.
	LoseAnswer
)

// A Cut says when something happens to a connection, and what.
type Cut struct {
	// Dir is the stream that is counted and searched.
	Dir Direction
	// After trips the cut when exactly so many bytes of Dir have passed since Arm,
	// over all connections. It is not used if Match is set.
	After int64
	// Match trips the cut when this text has passed in Dir on one connection.
	Match string
	// Do is what happens. Reset, Hangup and LoseAnswer happen to the connection
	// that tripped the cut.
	Do Action
}

// A Cutter is a TCP proxy on 127.0.0.1 that forwards to one target and breaks
// connections where it is told to. Its methods are safe for concurrent use and
// take effect on connections that are already open.
type Cutter struct {
	wg   sync.WaitGroup
	addr string

	mu     sync.Mutex
	change *sync.Cond // on mu: stalled, or a link's state, changed
	// All below are guarded by mu.
	target   string
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	closed   bool
	stalled  bool
	chunk    int // most bytes of one write; 0 is no limit
	rate     int // bytes per second, direction and connection; 0 is no limit
	cut      *Cut
	tripped  chan struct{}
	passed   [2]int64 // since Arm
}

// NewCutter starts a proxy to the target, "host:port", that lets everything
// pass. The target is dialled anew for each connection.
func NewCutter(target string) (*Cutter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cutter: %w", err)
	}
	c := &Cutter{target: target, addr: l.Addr().String(), links: map[*link]struct{}{}}
	c.change = sync.NewCond(&c.mu)
	c.serve(l)
	return c, nil
}

// Addr returns the "host:port" that clients dial. It never changes.
func (c *Cutter) Addr() string { return c.addr }

// Arm sets the one cut, in place of any earlier one, and starts counting from
// zero. The channel it returns is closed when the cut trips, which it does once.
func (c *Cutter) Arm(cut Cut) (tripped <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut, c.tripped, c.passed = &cut, make(chan struct{}), [2]int64{}
	for l := range c.links {
		l.tail = [2][]byte{}
	}
	return c.tripped
}

// Passed returns how many bytes of the direction have passed over all
// connections since the last Arm, or since the start.
func (c *Cutter) Passed(d Direction) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed[d]
}

// Limit makes every later write at most chunk bytes long and each direction of
// each connection at most perSecond bytes per second fast; 0 is no limit.
func (c *Cutter) Limit(chunk, perSecond int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chunk, c.rate = chunk, perSecond
}

// Stall lets nothing pass until Heal, as [Stall] does.
func (c *Cutter) Stall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled = true
}

// Refuse refuses new connections until Heal. Open ones go on.
func (c *Cutter) Refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener != nil {
		_ = c.listener.Close()
		c.listener = nil
	}
}

// ResetAll ends all open connections with RST.
func (c *Cutter) ResetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.links {
		c.end(l, Reset)
	}
}

// Retarget sends later connections to another target.
func (c *Cutter) Retarget(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = target
}

// Heal takes back Arm, Limit, Stall and Refuse. It fails if the port was taken by
// another program while connections were refused.
func (c *Cutter) Heal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut, c.stalled, c.chunk, c.rate = nil, false, 0, 0
	c.change.Broadcast()
	if c.closed || c.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", c.addr)
	if err != nil {
		return fmt.Errorf("cutter: accept connections again: %w", err)
	}
	c.serve(l)
	return nil
}

// Close ends the proxy and all connections, and waits for its goroutines. It may
// be called again.
func (c *Cutter) Close() error {
	c.mu.Lock()
	c.closed = true
	if c.listener != nil {
		_ = c.listener.Close()
		c.listener = nil
	}
	for l := range c.links {
		c.end(l, Hangup)
	}
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}
