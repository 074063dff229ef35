// Package crash names the instants at which a crash is most awkward. A normal
// build compiles [Point] to nothing. A build with the tag crashpoints kills the
// process there, with SIGKILL, at the hit that the environment asks for:
//
//	WALSINK_CRASH=flush-chunk-done:3
//
// The names are those of the table in docs/reliability.md; a test compares the
// two and the places where they are used.
package crash

// A Name is a crash point.
type Name string

// The crash points, in the order of a record's life.
const (
	AppendBefore     Name = "append-before"      // 1 before append
	AppendBlock      Name = "append-block"       // 2 between blocks
	AppendAfter      Name = "append-after"       // 3 after append
	SealFooter       Name = "seal-footer"        // 4 before the footer
	SealSynced       Name = "seal-synced"        // 5 footer synced, before the answer
	AbortHalf        Name = "abort-half"         // 6 abort half done
	CompleteReceived Name = "complete-received"  // 7 complete received, mark not read
	FlushMarkRead    Name = "flush-mark-read"    // 8 mark read
	FlushBegun       Name = "flush-begun"        // 9 transaction begun, script built, part staged
	FlushChunkFirst  Name = "flush-chunk-first"  // 10 after the first chunk
	FlushChunkLast   Name = "flush-chunk-last"   // 11 after the last, before the mark
	FlushMarkWritten Name = "flush-mark-written" // 12 after the mark, before COMMIT or rename
	FlushSent        Name = "flush-sent"         // 13 COMMIT sent, no answer
	FlushAnswered    Name = "flush-answered"     // 14 answer read, before the local note
	FlushNoted       Name = "flush-noted"        // 15 note written, before drop
	DropHalf         Name = "drop-half"          // 16 half dropped
	DropDone         Name = "drop-done"          // 17 after drop
	Rotated          Name = "rotated"            // 18 generation rotated
	PruneBefore      Name = "prune-before"       // 19 before ledger pruning
	PruneAfter       Name = "prune-after"        // 20 after ledger pruning
	FileWritten      Name = "file-written"       // 21 written, before fsync
	FileSynced       Name = "file-synced"        // 22 fsynced, before rename
	FileRenamed      Name = "file-renamed"       // 23 renamed, before directory fsync
	FilePublish      Name = "file-publish"       // 24 before publishing
	OpenPending      Name = "open-pending"       // 25 log open, pending not read
	OpenFlushed      Name = "open-flushed"       // 26 j of m pending flushed
	FenceRaised      Name = "fence-raised"       // 27 fence raised, before the first write
	CloseInside      Name = "close-inside"       // 28 inside Close
)
