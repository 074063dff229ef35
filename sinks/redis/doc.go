// Package redis writes to Redis, exactly once: any write command, also those that
// add each time they run, on a single server, behind a fail-over, or in a cluster.
//
// # What it does not promise
//
// A server that forgets what it confirmed (a crash without appendfsync always, a
// fail-over to a replica that lagged) forgets data and mark together. The records
// are flushed again from where the mark stands, once, as long as the log retains
// their batches; beyond that the lane refuses to go on. Options.WaitReplicas makes
// such a loss rarer, not impossible.
//
// A server that crashes while it appends a flush to its file, is started again with
// aof-load-truncated, the default, and crashes once more may bring half of that flush
// back: Redis 7.0 cuts off the torn command and keeps the transaction it is part of.
// Those records are in twice. The mark shows it and the lane stops, but what is
// in stays. With "aof-load-truncated no" and redis-check-aof --fix after such a crash
// it does not happen.
//
// A reader sees whole chunks, see below, not whole checkpoints. A checkpoint of few
// enough records is one chunk. In a cluster it sees the slots one after the other.
//
// A record of several commands is not a transaction: if the third fails, the first
// two stay applied. The mark keeps how many were, so that they are not repeated when
// the record is tried again, and its dead letter says so.
//
// In a cluster a slot's mark that somebody removes by hand looks like a loss: what the
// log retains of that slot is written again.
//
// Two sinks on different databases of one server have different ledgers. Records
// must not touch keys with the ledger's prefix, and nobody else should.
//
// # Records
//
// A record is a list of write commands, made by [AppendCommand], [AppendCommands] or
// a [Template], which refuse what cannot be part of a flush: reads, commands that
// block, scripts, administration, and those that empty or switch the database. In a
// cluster all keys of a record must be in one slot; [Sink.Validate] tells at Append.
//
// # The atomic step
//
// The mark of a lane is a hash. A chunk of a flush is one script call: if the mark's
// owner is ours and its tip is the one the chunk builds on, each command is applied
// with its error caught, and the mark is moved, over whole batches, into the middle
// of one, or up to a record that failed. Nothing of a record is ever script text:
// the commands are one argument in MessagePack, which the server's Lua reads, and
// long values are arguments behind it. What commands in a row have in common, their
// name or the fields of a hash, is sent once.
// The chunks of a step are sent in one go; one that fails stops those behind it,
// since they find another tip. The size of a chunk follows the time that the server
// measures, so that it is kept for about Options.ChunkTime.
//
// The answer echoes a random value of the call, and is thrown away with its
// connection if it is another's. No call is ever repeated by the client library.
//
// An owner is a fence, a random name and a session. Acquire raises the fence. A call
// that got no answer may still be on its way: the next Mark raises the session, and
// what arrives then is refused. A fence that is lower in the store than in the handle
// means that the store has lost writes; the handle raises it again.
//
// # Clusters
//
// A script sees one slot. The mark, the home, lives in a slot of its own; every slot
// that the lane has touched has a mark beside the data, that says up to which record
// of which batch its records are in. A batch is flushed in three steps:
//
//	home   pins the batch and names its slots, if owner and tip are as expected
//	slots  each: apply those records that the slot's mark does not cover
//	home   moves on, and notes how far each slot is
//
// A crash anywhere leaves slots that are ahead of the home. A batch that comes again
// passes over what they have, however it is cut. A new owner fences the named slots
// before it does anything, so that a former one that wakes up is refused in each. A
// slot that is behind what the home has noted has lost its last writes: that is
// found when the lane opens, when the slot is touched, and when a mark is read after
// an error; the home goes back to a batch that all slots have, and the engine sends
// the rest again. Keys keep the order of the lane each; the lane has no order
// between slots. All keys of a call are declared, so that a slot that is moving takes
// all of it or nothing. Bad records are never tolerated within a step: they are
// returned, from each slot one.
//
// # Keys of the ledger
//
//	prefix mark:{sink/lane}     hash, the mark
//	prefix audit:{sink/lane}    list, one row for each batch, the newest Options.AuditRows
//	prefix dead:{sink/lane}     stream, dead letters; never pruned
//	prefix lanes:sink           set, lanes of the sink id
//	prefix slots:{sink/lane}    hash, what the home knows of each slot; cluster only
//	prefix slot:{tag}:sink/lane hash, the mark in a slot; cluster only, at most 16384
//
// # Outcomes
//
//	what happens                          kind        what follows
//	nothing was sent                      transient   again, for ever
//	no answer                             ambiguous   the mark decides
//	LOADING, BUSY, READONLY, TRYAGAIN,
//	CLUSTERDOWN, MISCONF, NOREPLICAS      transient   again, on a new connection
//	OOM                                   transient   again until there is room: nothing was written
//	the script cache was emptied          -           loaded again at once; nothing is repeated
//	NOAUTH, WRONGPASS, NOPERM, TLS        permanent   the lane stops
//	a ledger key has another type         permanent   the lane stops; nothing was written
//	the server brought half a flush back  permanent   the lane stops
//	a ledger key was removed              moved       the opening rules: missing ledger
//	the store has lost its last writes    moved       flushed again from its mark
//	WRONGTYPE, syntax and the like, of a
//	record                                poison      dead letter or stop
//	not a record; a key of the ledger     poison      dead letter or stop; nothing was sent
//	another owner                         fenced      the lane stops
//	a policy that may evict the ledger    permanent   refused at Open, see Options.ForceEviction
package redis
