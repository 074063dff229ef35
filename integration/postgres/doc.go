// Package postgres holds the tests of the Postgres sink against real
// servers. Unit tests that need none are beside the sink.
//
// Each test gets a database of its own from integration/servers. Those that
// drive the sink step by step build batches with a tape, which plays the part of
// the log and says what the table must hold; the others put the flush engine or
// the whole command in front. What is in the table is always read by a connection
// that knows nothing of the sink.
package postgres
