// Package pipeline runs sources, transforms and outputs, with checkpoints through
// all of them, so that the whole way from a source to a store is exactly-once.
//
// # Limits and assumptions
//
//   - One process runs a pipeline. A second one with the same sink id takes over;
//     the first is stopped by its sinks.
//   - A transform depends on nothing but the record and the state of its key. What
//     is repeated after a loss of state is compared with what the ledger remembers,
//     and a difference is committer.ErrReplayDiffers.
//   - The sources of a pipeline, by name and in order, are part of its position: the
//     same output with other sources is committer.ErrForeignPosition.
//   - A batch, the records of one lane between two checkpoints, must fit into the log
//     of its output. [Pipeline.OpenBytes] takes a checkpoint in time. An output that
//     is full all the same ends the run, and nothing is lost.
//   - A record is at most record.MaxRecord long, and there are at most 1,000 lanes.
//
// # How it works
//
//	source ──▶ reader ─┬─▶ lane 000: transforms ─▶ encode ─▶ output, lane 000
//	                   ├─▶ lane 001: ...
//	source ──▶ reader ─┴─▶ lane 002: ...
//
// A reader is one goroutine per [Source]. It reads up to 1,024 records, spreads
// them over lanes by the [Route], and hands each lane its part; a lane that does
// not keep up holds the reader, and the log that has no room holds the lane. A lane
// is one goroutine, with its own instance of every transform, and one lane of every
// output under the same name.
//
// A checkpoint is triggered by interval, by number of records, by bytes, or at the
// end. Each reader notes its position and sends a barrier to its lanes. A lane with
// several inputs holds back those that have delivered the barrier until all have;
// then it takes the snapshots of its transforms and stands still. When all lanes
// stand, every output seals, the lanes go on, and one sync makes it durable. Then the
// checkpoint is stored, durably, and only then do the outputs hear that it is
// complete. An aborted checkpoint is as if it had never been triggered.
//
// # Several outputs
//
// Every output has a log, lanes, a ledger and flush workers of its own. One whose store
// is slow or down holds nobody else, as long as its log has room; then its lanes wait,
// and with them the sources. At the start and at the end of a run every store is waited
// for, and an output that stops for good ends the run.
//
// Without state, each output also has a position of its own, and the sources begin where
// the output stands that is least far. Another one gets nothing until they have come to
// where it stands, so that an output that was left out for a while, or lost its log, or
// is new, catches up alone. A source that does not come by that place, because it cannot
// repeat the order of its records, is committer.ErrReplayDiffers. After a crash between
// two notices the first output in the list tells the others which checkpoint counts, so
// that nothing is read again.
//
// With state, there is one position, that of the stored checkpoint, for all outputs.
//
// An output that comes new into a pipeline that has been at work is refused,
// [ErrNewOutput], until [Sink] says where it begins. One that goes leaves its log and its
// ledger as they are, and may come back.
//
// # Lanes and several sources
//
// Without state, each source has lanes of its own: source i of n lanes each feeds
// i*n to i*n+n-1. What is in a batch is then decided by positions alone, so that it
// can be repeated exactly when the log of the output was lost.
//
// With state, all sources share the lanes, so that a key has one lane, whatever
// source its records come from. In which order records of two sources meet is then
// chance. That does no harm: after a loss of state such a pipeline is refused
// (committer.ErrStateBehind) unless everything complete is in the stores.
//
// The number of lanes may change from run to run. What is complete is drained
// first; keyed state moves to the lane that owns the key.
//
// # Where a run goes on
//
//	everything there                      the last completed checkpoint
//	log lost, no state                    the ledger's position; checkpoints that only
//	                                      some lanes have are repeated, under the
//	                                      lanes and the route of that time
//	checkpoints lost, no state            the output's position
//	checkpoints or state lost, with state refused, ErrStateBehind
//	newest checkpoint damaged             the one before it, if outputs can repeat the
//	                                      rest; the damage is logged
//
// # The guarantee
//
// It is that of the weakest part, and is logged at start with the reason: a source
// that cannot be read again makes it at-most-once, a store without an atomic step or
// unaligned inputs before state at-least-once. [Pipeline.Require] refuses less.
package pipeline
