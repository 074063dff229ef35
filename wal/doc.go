// Package wal is the write-ahead log: Badger-backed state that holds the records
// of each checkpoint until the store has them.
//
// # Limits and assumptions
//
// The directory is on a local file system that honours msync and flock; Open
// probes for them and refuses network file systems. One process at a time owns
// it. A record has at most record.MaxRecord bytes, a position record.MaxPosition,
// a note [MaxNote]. The number of lanes is bounded by GenerationBytes, a thousand
// by default. It runs on Linux; on other Unix systems there is no fallocate, so
// that a floor of free space stands in for it, and a disk that others fill within
// moments can still kill the process. Windows is refused. With default options a
// process needs 256 MB of memory, the kernel's cache of its files included; less
// is not supported.
//
// # Words
//
// A lane's records collect in its open batch. Seal gives the batch a footer;
// Complete makes it eligible for the flush; Commit says that the store has it;
// then it is retained for a while and dropped. Truncate voids what no completed
// checkpoint covers; Reset sets a whole lane aside.
//
//	            Append          Seal + Sync        Complete         Commit        retention
//	records ------------> open ------------> sealed ------> pending ------> committed ------> dropped
//	                        |                  |               |               |
//	                        +---- Truncate ----+               +---- Reset ----+--> set aside --> dropped
//
// # What is promised
//
// What Sync covered is there after any crash, and is whole; what it did not cover
// may be there and is then whole as well, or is gone. Records of an open batch
// are always gone. Concurrent callers of Sync share one. Batches are given out in
// order, without gaps; every block is checked by its checksum and every batch by
// its digest.
//
//	what happens                    what the log does
//	the process is killed           opens as it is; nothing to repair, no space needed
//	power cut                       forgets batches that were sealed and never synced, if torn
//	write, sync or manifest error   latches: ErrFailed from then on; fsync is never retried
//	disk taken away                 the same, or SIGBUS ends the process; a directory in its
//	                                place is not written to
//	disk full                       Append waits if a flush can free something, else ErrNoSpace;
//	                                flush, notes, commits and drops go on in reserved space
//	budget used up                  Append waits if a flush can free something, else ErrFull
//	bytes damaged                   *Damage names generation, lane, batch and block; other batches
//	                                stay readable; a lane that may have lost batches takes no
//	                                records until Reset
//	files of a newer format         ErrFormat
//	a second owner                  ErrLocked, with the pid of the first
//
// # How Badger is used
//
// A key addresses a block of 256 KiB, never a record. A generation is one Badger
// directory, written once by the process that made it, and removed as a whole
// when no batch needs it: there are no deletes, no value-log collection and no
// compaction. It is rotated before its memory table could fill, so that one sync
// covers all that was written to it. The state of the lanes is carried into the
// newest generation before an older one is dropped.
//
//	state/LOCK            locked, holds the owner's pid
//	state/FORMAT          "walsink log 2"
//	state/SPARE           blocks for a small generation, if nothing else is left
//	state/gen-00000007/   MANIFEST, KEYREGISTRY, DISCARD, 000001.vlog, and
//	                      00001.mem while it is written, 000001.sst after
//	    BLOCKS            values of 512 bytes or more, one after the other
//	    SYNCED            the last synced version; late after a power cut, never early
//	    SEALED            checksums of what a clean close left
//	state/drop-00000003/  being removed
//
// Badger holds what is small and where in BLOCKS the rest is: its own value log is
// written through a mapping, at the price of a page fault for each 4 KiB and of two
// copies. BLOCKS is synced before the index. The value log stays empty; in format 1
// it held the values.
//
// Badger writes its memory table through a shared mapping of a sparse file, which
// on a full disk is a signal that kills the process. So blocks are taken with
// fallocate before they are used: the index of a generation and head-room for
// control entries when it is made, BLOCKS a step ahead of what was promised to
// Append. While Badger creates or closes a generation it writes where nobody could
// reserve; the space is set free immediately before, so that only another program
// that takes the last blocks within these milliseconds can do harm, and the log
// opens again after it.
//
// After a kill the index is in the log of a memory table. Badger does not cut the
// end of that log for a reader, so the log does, by the same rules. Such a
// generation stays open until it is dropped, since Badger never closes the file.
package wal
