// Package upgrade holds what earlier versions have left half done: jobs with some
// batches in the store, some that wait for it and, in Postgres and Redis, one of a
// checkpoint that did not complete. The tests go on from copies of them, as each later
// version must, in Postgres and Redis also without the state directory, and end with
// every record in once.
//
// # Fixtures
//
//	testdata/job-1.tar.gz                     log, checkpoints with state, file sink
//	testdata/postgres-1.tar.gz, -1.sql        log; ledger and destination
//	testdata/redis-1.tar.gz, -1.commands      log; ledger and destination
//
// A file beside an archive is text: SQL, or one Redis command a line with quoted
// arguments. In postgres-1 the first two batches have the form of a version that knew
// only COPY's text format, see [github.com/walsink/walsink/sinks.Taker].
//
// A fixture is never changed: it is what somebody has on disk. A change of a stored
// format, see docs/format.md, adds one beside it: raise the number of the newest one in
// the test, list what it holds, and write it with the build that has the change:
//
//	go test -run TestUpgrade ./integration/upgrade -update
//
// This writes fixtures that are missing and no others. All numbers up to the newest
// are tested from then on.
package upgrade
