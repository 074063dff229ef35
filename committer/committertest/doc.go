// Package committertest is the conformance suite for authors of stand-alone
// ledgers: [Run] holds a committer.Ledger to its contract.
//
// # Limits
//
// Durability is tested by opening the ledger again, not by a power cut. A ledger in
// memory passes only if open returns the same one again.
package committertest
