// Package walsink lands records exactly once in stores that have no two-phase
// commit.
//
// # Limits and assumptions
//
// The state directory is on a local file system that honours fsync; if it is
// lost or rolled back, the store's own position takes over. The store keeps what
// it confirmed. One sink id has one owner at a time: a second one is fenced, not
// asked to wait. The source can be read again from a position.
//
// # How it is used
//
// An adapter, as sinks/file, opens a sink. [Open] joins it to a write-ahead log in a
// directory and returns an [Output]. Records are appended to the output, or to one
// of its lanes; [Output.Checkpoint] makes what was appended durable together with the
// source's position, and lets it flow to the store. After a crash [Output.Position]
// says where the source resumes.
//
// A coordinator of several outputs drives Seal, Complete and Abort itself; package
// pipeline has one.
//
// # Why it is exact
//
// Each lane is a hash chain over its batches, and the store keeps the end of the
// chain in the same atomic step as the records. A flush that does not continue what
// the store holds changes nothing. See package committer for the rules and
// package sinks for the contract of an adapter.
package walsink
