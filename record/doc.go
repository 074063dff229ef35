// Package record defines the bytes that walsink moves: blocks of records, the
// digest of a sequence of records, and the batch footer with its hash chain.
//
// A record is opaque bytes, already in the wire form of its sink. Records are
// packed into blocks, because a log that stores each record on its own is
// twenty times slower. A block, version 1:
//
//	 payload        lengths          trailer
//	+--------------+----------------+------+------+------+---------+--------+
//	| records, end | uvarint length | size | lens |  n   | version | CRC-32C|
//	| to end       | of each record | u32  | u32  | u32  | u8 = 1  | u32    |
//	+--------------+----------------+------+------+------+---------+--------+
//
// All integers are little endian; size is the length of the payload, lens that
// of the lengths, n the number of records; the checksum covers everything
// before it. The payload is contiguous so that a sink whose wire form is a byte
// stream sends it as it is.
//
// Every lane of a sink is a hash chain over its batches, see [Batch.Chain]. A
// store that keeps the chain value of the last batch it took can tell, from that
// value alone, whether a batch continues what it holds.
package record
