package faults

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// A link is one client's connection and the one to the target made for it.
type link struct {
	ends [2]*net.TCPConn // the end that a direction writes to
	done chan struct{}   // closed when the link ended

	// All below are guarded by Cutter.mu.
	ended  bool
	frozen bool      // nothing more passes; the link is about to end
	lose   bool      // the next answer is thrown away
	tail   [2][]byte // what may be the beginning of a match
}

// serve accepts on l until it is closed. The caller holds mu, or is alone.
func (c *Cutter) serve(l net.Listener) {
	c.listener = l
	c.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				c.wg.Go(func() { c.forward(conn.(*net.TCPConn)) })
			}
		}
	})
}

// forward dials the target and copies both ways until the connection ends.
func (c *Cutter) forward(client *net.TCPConn) {
	c.mu.Lock()
	target := c.target
	c.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, 2*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := &link{done: make(chan struct{})}
	l.ends[ToServer], l.ends[ToClient] = server.(*net.TCPConn), client
	c.mu.Lock()
	c.links[l] = struct{}{}
	if c.closed {
		c.end(l, Hangup)
	}
	c.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { c.copy(l, ToServer) })
	both.Go(func() { c.copy(l, ToClient) })
	both.Wait()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(l, Hangup)
	delete(c.links, l)
}

// copy moves the bytes of one direction until one of the two ends is closed. An
// orderly end of the stream is passed on alone, so that the other direction may
// finish.
func (c *Cutter) copy(l *link, d Direction) {
	from, to := l.ends[1-d], l.ends[d]
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !c.pass(l, d, buf[:n]) {
			return
		}
		if err != nil {
			c.mu.Lock()
			if !l.ended { // else it ends another way
				_ = to.CloseWrite()
			}
			c.mu.Unlock()
			return
		}
	}
}

// pass writes b to the end of the direction, as the state of the cutter allows.
// It is false when the link ended.
func (c *Cutter) pass(l *link, d Direction, b []byte) bool {
	for len(b) > 0 {
		n, do, rate := c.admit(l, d, b)
		if n == 0 && do == nil {
			return false
		}
		if n > 0 {
			if _, err := l.ends[d].Write(b[:n]); err != nil {
				do = new(Action) // Reset
			}
		}
		if do != nil {
			c.mu.Lock()
			c.end(l, *do)
			c.mu.Unlock()
			return false
		}
		b = b[n:]
		l.pace(n, rate)
	}
	return true
}

// admit waits until something may pass, and returns how many bytes of b are to be
// written now and with what to end the link after that, if at all. Both are zero
// if the link has ended.
func (c *Cutter) admit(l *link, d Direction, b []byte) (n int, do *Action, rate int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for (c.stalled || l.frozen) && !l.ended {
		c.change.Wait()
	}
	switch {
	case l.ended:
		return 0, nil, 0
	case l.lose && d == ToClient:
		return 0, new(Action), 0 // Reset
	}
	n = len(b)
	if c.chunk > 0 {
		n = min(n, c.chunk)
	}
	if c.rate > 0 {
		n = min(n, max(1, c.rate/50))
	}
	n, trips := c.meet(l, d, b[:n])
	c.passed[d] += int64(n)
	if trips {
		do = c.trip(l)
	}
	return n, do, c.rate
}

// meet holds the armed cut against b, and returns how much of b may pass and
// whether the cut trips then.
func (c *Cutter) meet(l *link, d Direction, b []byte) (n int, trips bool) {
	switch {
	case c.cut == nil || c.cut.Dir != d:
		return len(b), false
	case c.cut.Match == "":
		left := max(0, c.cut.After-c.passed[d])
		return int(min(int64(len(b)), left)), int64(len(b)) >= left
	}
	match, tail := []byte(c.cut.Match), l.tail[d]
	seen := append(slices.Clip(tail), b...)
	if i := bytes.Index(seen, match); i >= 0 {
		return i + len(match) - len(tail), true
	}
	l.tail[d] = seen[max(0, len(seen)-len(match)+1):]
	return len(b), false
}

// trip takes the armed cut. What must hold before the last bytes are written
// begins here; an end of the link that is left to do after them is returned.
func (c *Cutter) trip(l *link) *Action {
	do := c.cut.Do
	c.cut = nil
	close(c.tripped)
	switch do {
	case Stall:
		c.stalled = true
	case LoseAnswer:
		l.lose = true
	default:
		l.frozen = true // no answer to the last bytes slips through
		return &do
	}
	return nil
}

// end closes both ends of the link, with RST for Reset. The caller holds mu.
func (c *Cutter) end(l *link, how Action) {
	if l.ended {
		return
	}
	l.ended = true
	close(l.done)
	for _, conn := range l.ends {
		if how == Reset {
			_ = conn.SetLinger(0)
		} else {
			_ = conn.CloseWrite()
		}
		_ = conn.Close()
	}
	c.change.Broadcast()
}

// pace waits as long as n bytes take at the rate, or until the link ends.
func (l *link) pace(n, rate int) {
	if rate <= 0 {
		return
	}
	t := time.NewTimer(time.Duration(n) * time.Second / time.Duration(rate))
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.done:
	}
}
