// Package state keeps the keyed state of a pipeline stage on disk, in Badger, so
// that it may be larger than memory. A checkpoint costs what has changed since the
// one before, not what there is.
//
// # Limits
//
// The directory must be on a local file system that honours fsync, with space to
// spare: Badger maps its files, and a full disk can kill the process. Nothing that
// is in a completed checkpoint is lost by that; the next start needs space. One
// process at a time may have the store open. A state, with its key, is at most
// 1 MiB long.
//
// # How a snapshot works
//
// Every write has a version, a number that rises. A lane collects its writes in
// memory and writes them under a new version when there are many, and at each
// checkpoint, then durably. All lanes stand still at a checkpoint, so the highest
// version at that time is the snapshot of all of them: nothing is copied. Badger
// keeps the older versions until no stored checkpoint needs them.
//
// Restore makes the newest version of each key what it was at the checkpoint, by
// writing the keys that have changed since once more. Keys are stored without the
// lane, so that the number of lanes can change.
//
// # What goes wrong, and what follows
//
//	directory missing or another one    ErrBehind; nothing is guessed
//	directory older than the checkpoint ErrBehind
//	write or sync fails                 the record or the checkpoint fails with it
package state
