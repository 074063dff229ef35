// Package plant holds the bugs that are planted on purpose, to prove that the
// tests would find them. A normal build compiles [Active] to false. A build with
// the tag plant switches on the one bug that WALSINK_PLANT names.
package plant

// A Bug is a planted bug.
type Bug string

// The planted bugs.
const (
	SyncOff          Bug = "sync-off"           // seal does not sync the log
	AckBeforeSync    Bug = "ack-before-sync"    // seal answers before the sync
	LedgerApart      Bug = "ledger-apart"       // Postgres mark in a second transaction
	RedisLedgerLate  Bug = "redis-ledger-late"  // Redis mark after the data
	SkipFailure      Bug = "skip-failure"       // a failed batch is skipped under a high-water mark
	RenameNoSync     Bug = "rename-no-sync"     // file published without fsync
	NoDirSync        Bug = "no-dir-sync"        // directory not synced after rename
	DropBeforeCommit Bug = "drop-before-commit" // log drops before the mark is confirmed
	RetryCommit      Bug = "retry-commit"       // a lost COMMIT is taken as not done
	NoFence          Bug = "no-fence"           // fence and tip are not compared
	ReplayUpsert     Bug = "replay-upsert"      // a replay overwrites
	PartReset        Bug = "part-reset"         // part numbers start again
	RetryDrops       Bug = "retry-drops"        // a batch over the retry limit is dropped
	LeakPassword     Bug = "leak-password"      // a password in an error
)
