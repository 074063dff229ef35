// Package checkpointtest is the conformance suite for authors of checkpoint
// storage: [Run] holds a checkpoint.Storage to its contract.
//
// # Limits
//
// Durability is tested by opening the storage again, not by a power cut. Storage in
// memory passes only if open returns the same one again.
package checkpointtest
