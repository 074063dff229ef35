// Package upgrade holds a job that an earlier version has left half done: log,
// checkpoints with state, and the ledger of the file sink. The test goes on from a
// copy of it, as each later version must.
package upgrade
