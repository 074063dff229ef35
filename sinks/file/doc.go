// Package file is the sink that writes files: NDJSON, CSV or raw bytes, plain,
// gzip or zstd, in one directory or in one sub-directory per bucket.
//
// # Limits
//
//   - The directory must be on a local file system that honours fsync, and that can
//     rename without replacing or make hard links. [Sink.Probe] says what it found.
//   - A consumer may read, move and delete parts at any time, but leaves the hidden
//     directory alone.
//   - A part appears whole. The parts of one step appear one after the other, so a
//     reader may see the first and not yet the last of them; it never sees a part
//     of a later step before all of an earlier one.
//   - On a file system without rename-no-replace, and only there, a consumer that
//     deletes a part within the instant between its link and the removal of its
//     staged name, followed by a crash in the same instant, sees that part again.
//   - A batch without records moves the mark and makes no file.
//
// # Words
//
// A part is one visible file. A manifest is one numbered, immutable file that
// holds the whole state of a lane: the mark, the parts of the last step, the audit
// rows. Staging is a part before it is visible. A ticket is an empty file that says
// that the publishing of a step has begun.
//
//	DIR/orders+main+00000000000000000007+00000.ndjson       a part
//	DIR/2024-05-01/orders+main+0…07-9+00000.ndjson.zst      with buckets; checkpoints 7 to 9
//	DIR/.walsink/orders/main/log/00000000000000000012       manifest 12
//	DIR/.walsink/orders/main/stage/…                        staging and tickets
//	DIR/.walsink/orders/main/dead/…                         dead letters, as NDJSON
//
// The name of a part is a function of sink, lane, checkpoints, bucket, part number
// and format, and of nothing else. '+' sorts before every character that a sink id
// or lane may have, so names sort by sink, lane, first checkpoint, part.
//
// # The atomic step
//
//  1. The parts are written below stage, fsynced, and stage is fsynced.
//  2. The next manifest is written below stage, fsynced, and renamed, without
//     replacing, to its number in log; log is fsynced. This is the commit: of all
//     who try for a number exactly one gets it.
//  3. The parts are renamed, without replacing, to their final names; the
//     directories are fsynced. Flush returns.
//
// A crash before 2 leaves staging that the next Acquire removes. A crash after 2 is
// made good by the next Acquire, Mark or Flush, which publish what the newest
// manifest lists before they do anything else.
//
// Acquire raises the fence in the same way, by the next manifest, which repeats the
// state under a higher fence. A former owner, frozen at any instant and thawed at
// any later one, built on a manifest that is no longer the newest: the number it
// tries for is taken, and it finds the higher fence. Old manifests are removed in
// ascending order, so if the number it tries for has been removed since, the
// manifest it built on went before; it looks, after the rename, that this one is
// still there. Manifest 1, which builds on none, stays for ever.
//
// What a former owner may still do is to publish the parts of a manifest that it
// did commit. It has the same staged names for that as the new owner, and a rename
// takes a name only once. Staged names hold the fence, and an owner removes only
// those of its own and of lower fences.
//
// A staged part that is gone was published if the ticket is there, whether or not
// the final file is: consumers take them. Gone without a ticket and without a final
// file means that somebody else removed it, and is refused.
//
// # Failures
//
//	fault                                   answer
//	disk full, quota, descriptors, EIO      Transient; the staging of this attempt is removed
//	read-only, permission, not a directory  Permanent, with advice
//	fsync of a part fails                   that file is abandoned; a retry writes a new one
//	rename or fsync of a manifest fails     Ambiguous; Mark commits the state it finds once more
//	                                        under the next number, and never trusts a second fsync
//	fsync of another directory fails        Permanent; the handle does nothing any more
//	a file of another has a part's name     Permanent, names it; nothing is replaced
//	damaged manifest                        Permanent, names it; no older one is used instead
//	parts without a ledger                  Permanent; the ledger was removed
//	record in no bucket, line without end   Poison
package file
