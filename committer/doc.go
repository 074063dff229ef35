// Package committer flushes completed batches of a write-ahead log into a sink,
// each exactly once.
//
// # What it cannot do
//
// It is exact as far as the sink's step is atomic, see package sinks; over
// [WithLedger] it is not, and says so. It takes the log at its word about which
// checkpoints are complete. It orders the batches of a lane, never those of
// different lanes. A lane that has stopped starts again only by a new Committer.
//
// # Lanes and workers
//
// Each open lane has one worker, which flushes the lane's batches in the order
// of the log, one step at a time. Whatever goes wrong holds or stops that lane
// and no other; nothing is skipped, and nothing is dropped, ever.
//
//	          Notify                      ok
//	idle ---------------> flushing ---------------> idle or flushing
//	 |  ^                  |   ^ ^
//	 |  | FlushAge         |   | +------ retrying <---+ not in, try again
//	 v  |                  |   |                      |
//	waiting                +---|--> verifying --------+ any error: what does the mark say?
//	                       |   +------- in, or moved -+
//	                       |                          |
//	                       +--> stopped <-------------+ not in, and no use
//
// Idle workers wait for [Committer.Notify]; there is no polling.
//
// # After an error of Flush
//
// The mark is read, again and again until it answers, and decides first:
//
//	the mark is             then
//	that after the step     the step is in; counted as settled
//	that before the step    it is not in; see below
//	another one             a part is in, or the store was rolled back: go on from
//	                        there if the log connects (the table for Open), else stop
//
// If the step is not in, the error's kind decides:
//
//	transient, ambiguous,   wait, try the same step again: for ever, or MaxAttempts.
//	moved, unclassified     The wait is random up to a bound that doubles
//	cancelled               as transient if it was StepTimeout; if it was Close, the
//	                        batch stays for the next start
//	poison                  stop; or, with DeadLetters, put the records aside, see below
//	permanent               stop
//	fenced                  (the mark cannot be read) stop: a newer owner exists
//
// A mark that does not answer for UnknownAfter is reported as an error, while the
// worker goes on asking. It never guesses.
//
// # Opening a lane
//
// [Committer.Open] raises the fence, reads the mark, and compares it with the log:
//
//	log and mark                       outcome
//	a batch continues the mark         Connected: flush from there, at once
//	the log ends at the mark           Covered
//	the same, and a part of a batch    Resume: replay the source to the end of that
//	we do not hold is in               batch, as one batch; the rest is written
//	no log, no mark                    Covered: a new lane
//	no log, or another history         Resume: local batches are set aside, the source
//	                                   goes to the mark. ErrStateBehind if Stateful, or
//	                                   if NoReplay and something local is unflushed, or a
//	                                   part of a batch is in
//	a batch continues the mark, but    ErrReplayDiffers, or, if it ends elsewhere and the
//	is not the one partly in           source can go back, Resume: it is of another history
//	batches were committed, no mark    ErrLedgerMissing
//	the mark is older than what is     Resume with Behind set, so that the caller can
//	retained                           refuse with ErrLedgerBehind if its source does not
//	                                   reach back; ErrLedgerBehind if Stateful or NoReplay
//
// The first case covers a plain restart, an answer that was never received, and a
// store that was rolled back no further than batches are retained. To resume from
// an older mark is exact, since mark and records change together: a store that
// lost its mark lost the records.
//
// A refusal changes nothing, and comes again. A person can answer it with [Accept]:
//
//	refusal           AcceptDuplicates                  AcceptLoss
//	ErrStateBehind    go on from the local position,    go on from the mark; the local
//	                  if nothing local is unflushed     unflushed batches are set aside,
//	                                                    a batch that is partly in stays so
//	ErrReplayDiffers  write the whole batch             -
//	ErrLedgerMissing  write all again, from the log     believe the log: write a mark of
//	                  or from the source's start        what it says is in
//	ErrLedgerBehind   replay the source from the mark   go on with what is retained
//
// # Several lanes without a log
//
// [Recover] computes from marks and audit rows where the source resumes and which
// barriers are forced; a [Replay] compares the records of a lane that come again
// with what its ledger remembers. [Committer.OpenAll] decides about all lanes before
// it changes one, so that a refusal that comes from all of them together changes
// nothing either; and it does not go on before all were its own at one moment, so that
// of two that start at once one goes on from what the other has written. Else each could
// keep some of the lanes, and end one checkpoint at two positions.
//
// # A batch that cannot be read
//
// stops its lane at every start. If the source can send it again, wal.Log.Void takes it
// and what follows out of the log, and the next start goes back to what the store has:
// nothing is lost. Else [GiveUp] notes in the log that it is given up. Its lane moves over
// it in one atomic step: the batch stays in the chain, and in the ledger as one whose
// records are dead, without dead letters; all that follows comes in.
//
// # Steps
//
// Small batches share a step up to StepBytes. A batch above the sink's StepBytes
// is cut, if the sink allows it, and the mark holds how many of its records are
// in. A batch that a failed step has left pinned in the mark is the next one, whole;
// another in its place is refused like one in place of a batch partly in. A batch is compared with the digest of its footer as it is read, before the
// step ends, or before the first step if it is cut: a damaged batch publishes
// nothing.
//
// # Dead letters
//
// With DeadLetters the records that the sink names as poison are added to the
// batch's note in the log, durably, before the batch is tried again without
// them; so every replay makes the same split. They go to the sink's dead letters in
// the same atomic step as the good records. Of a batch that is partly in, the mark
// says which records are dead. More than DeadLimit of one batch stop the lane.
package committer
