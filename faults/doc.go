// Package faults breaks things on purpose, so that a pipeline can be tested for
// what it does about it.
//
// A [Cutter] is a TCP proxy on 127.0.0.1 between a client and a store. It cuts
// connections at a byte, stalls, loses answers, slows down, refuses. A [Plan]
// wraps a [sinks.Sink] and makes its calls fail, wait, or succeed without the
// caller being told.
//
// # Limits
//
// A Cutter sees bytes, not packets, and nothing inside TLS. Bytes that passed
// before a cut have been handed to the operating system of this machine; a client
// or target that does not read them in time may see the reset first. LoseAnswer
// takes the next bytes from the target for the answer, which is right for
// protocols where one request is answered before the next is sent.
package faults
