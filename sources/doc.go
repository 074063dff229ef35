// Package sources reads records from files, standard input and memory. Its types
// are pipeline sources.
//
// # Limits
//
//   - Standard input, and any [Stream], cannot be read again: at-most-once.
//   - A file that is read without Follow must not change before the position, and
//     its directory must not change before the file. Both are found out: ErrReplaced.
//   - With Follow, a file that is cut while nobody looks has lost what was not read,
//     unless a copy is left beside it; that is logged. Of a file of which no record
//     was read before it was cut, the copy is read as well, so do not copy a followed
//     file to a name that begins with its own.
//   - Moves that happen while nobody looks are followed for a single path. With a
//     pattern or a directory, a file must keep a name that is followed until it is
//     read.
//   - With Follow, several files at once are read in the order in which they grow.
//     A pipeline of several lanes that has lost its log cannot repeat that order.
//   - Compressed files are followed as wholes: they must appear by rename.
//
// # Formats
//
// NDJSON is one JSON value per line. The record is the line as it is, without "\n"
// or "\r\n". Lines of white space are skipped, also at the end. A last line without
// a line end is a record, except in a file that is followed, where it waits for its
// end.
//
// CSV and TSV have a header, and quoting as in RFC 4180: a field in double quotes
// may hold separators, line breaks and, doubled, quotes. A row becomes a JSON object
// with the header's names in order; every value is a string, exactly as it is in
// the file. A name that is empty or comes twice, a row with more or fewer fields, a
// quote where none may be, and bytes that are not UTF-8 are errors. Empty lines are
// skipped.
//
// A UTF-8 byte order mark at the beginning is skipped. Names that end in .gz or
// .zst are decompressed; offsets count uncompressed bytes, and resuming reads from
// the beginning.
//
// A line that is wrong is an error with file, line, byte offset and reason, and the
// records before it were returned. So is a record over the limit.
//
// # Positions
//
// A position is right behind a record, whatever the calls of Read were. It holds
// the path, the offset, and hashes of the first 1,024 and the last 256 bytes before
// it: a file is known by its contents, so that a job can move to another machine.
//
// # Several files
//
// A directory stands for the files in it, without those in sub-directories and
// hidden ones; a pattern for what it matches. They are read one after the other in
// the order of their names.
//
// With Options.Follow they are looked at again and again. A file that was renamed
// is read to its end, which is when it has not grown for Options.Quiet, before the
// file that has its path now. After a restart it is found by its number in the file
// system or by its contents, and files that had the path in between are read too.
// A file that was cut begins anew.
package sources
