// Package postgres is the sink for PostgreSQL, version 12 or later, by pgx.
//
// # Limits
//
//   - Exactly once holds for what the transaction holds: rows of this database.
//     What triggers do elsewhere, and foreign tables, are outside of it; Probe says
//     so.
//   - A record is at most 64 MiB, a step at most as large as its largest batch,
//     and a table has at most 1,600 columns.
//   - Checkpoint ids, counts and sequence numbers go up to 2^63-1.
//   - The names of the columns that records have are part of Info().Format. With
//     Options.Columns empty, a column that is added to the table joins them at the
//     next Open, and what is still in the log has to be flushed under the old list:
//     name the columns to be independent of that.
//   - Modes Upsert and Statement make a temporary table per step, which is work for
//     the server's catalogs: prefer large steps.
//
// # A step
//
// is one transaction in three round trips, on a connection that is taken from the
// pool for it; between steps a lane holds none:
//
//	begin; update lane ... where fence and tip are ours; insert audit rows; the
//	    types of the table's columns
//	copy ... from stdin, the blocks of the log as they are
//	commit, with what mode Upsert or Statement does before
//
// The update is the compare-and-set of the contract. It is first, so that its row
// lock holds back every other flush, Acquire and Mark of the lane until the
// transaction has ended. With that, Mark can tell for sure after a lost
// connection: it waits for the lock, and what it then reads is final, because a
// transaction whose COMMIT may be under way has the lock, and one whose COMMIT
// was not sent ends with its connection. Only the unnamed statement of the
// extended protocol is used, and no state of the session, so that a pooler in
// transaction mode may be between.
//
// A former owner that is frozen in the middle of a step, or cut off, would hold
// the lock for as long as the server believes in its connection. Acquire and Mark
// therefore wait Options.Takeover and then terminate the backend that has the
// lock on the lane's row, which a role may do to its own sessions. If that backend
// is past its commit, it has no lock any more; if not, its step is undone.
//
// # The ledger
//
// lives in a schema of its own, [Script] prints it: version; lane, one row per
// lane, which is the mark; audit, one row per batch, of which the newest
// Options.AuditRows of each lane are kept; dead_letter. Any number of sinks share
// it.
//
// The row of a lane remembers which table its records went to. A table that was
// dropped, or dropped and made again, while the ledger stayed is refused with
// ErrTableMissing: nothing would be sent again, and nobody would know.
//
// # The form of a record
//
// is one tuple of COPY's binary format, in mode Upsert with the operation, U or D,
// as a field in front: the server does not parse it, and tuples can be put one
// after the other. A table of more than 200 columns, or with one of a type that
// this package does not write in binary, gets lines of COPY's text format instead,
// and so does a single record with a value in a form that only the server reads;
// its own input functions know every type there is. Written in binary are boolean,
// the integer and floating point types, numeric, text, varchar, char, bytea, date,
// time, timestamp, timestamptz, uuid, json, jsonb, enums, and domains over these.
//
// A record tells by its first byte which of the two it is, and Info().Format lists
// the types that tuples were made for. A step in which not every record is a tuple
// for the types that the columns have now, looked up under the table's lock, is
// sent as text: a column whose type was changed from int to bigint between append
// and flush does no harm, one that was changed from bigint to double precision does
// not turn bits into other numbers, and what an earlier version of this package
// logged is flushed, see [Sink.Takes].
//
// [Sink.AppendRow], [Sink.AppendJSON], [Sink.AppendDelete] and [Rows] make records.
// They check a value by the type of its column, so that what the server would
// refuse is refused while the caller is at hand: NUL characters, invalid UTF-8,
// numbers out of range, malformed dates, UUIDs and JSON, text that is too long,
// null where none is allowed. Left to the server are the forms of types that this
// package does not know, numeric precision, and constraints.
//
// # What may go wrong
//
//	met                                          kind         then
//	the tip, or the fence, is not ours           moved, fenced  by the contract
//	a row is refused: SQLSTATE 22, 23, 44,       poison       every bad record of the step
//	54000, or an error raised by a trigger                    is named, see below
//	a column has another type than at Open       permanent    the error names the column
//	connection lost before COMMIT was sent       transient    the server rolls back
//	connection lost after it                     ambiguous    Mark decides
//	ERROR as the answer to COMMIT                as its code  the server has rolled back
//	FATAL as the answer to COMMIT                ambiguous    the commit record may be there
//	ROLLBACK as the answer to COMMIT             transient    it is not success
//	deadlock, serialization, lock timeout,       transient
//	shutdown, disk full, standby
//	no privilege, no table, no column,           permanent    the error says what to do
//	no such role, password or database
//	the row of the lane is gone                  permanent    somebody removed it
//	a damaged or edited row of the lane          permanent
//
// When records are bad, all of them are found in two round trips, however many
// there are: the records are copied as text into a temporary table, and a block
// of PL/pgSQL inserts ever smaller ranges of them in subtransactions until the bad
// ones stand alone. A record is bad if it is refused after all good ones before
// it. Where the role may not make temporary tables, the one that COPY has named
// is reported alone.
//
// Errors hold neither secrets nor what is in records. The server's text for a bad
// value quotes it, so that errors carry the SQLSTATE, the column, the constraint
// and a text of our own instead, and do not unwrap to the server's.
package postgres
