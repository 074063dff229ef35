// Package wal is the write-ahead log: Badger-backed state that holds the records
// of each checkpoint until the store has them.
package wal
