package wal

import "errors"

// A backend keeps generations by number. The real one is Badger, one directory
// per generation; tests put a map behind it that fails on demand.
//
// Methods are called from one goroutine at a time.
type backend interface {
	// list returns the numbers of the generations, ascending. It forgets those
	// that were half created or half dropped.
	list() ([]uint64, error)
	// create makes generation n, for writing, with room for what a log always
	// writes. A small one takes the space that was kept for the case that nothing
	// else is left. It fails with ErrNoSpace before anything exists.
	create(n uint64, small bool) (store, error)
	// open opens generation n for reading. It takes no space and syncs nothing.
	open(n uint64) (store, error)
	// drop removes generation n, which is not open, at once and for good.
	drop(n uint64) error
	// close releases what the backend itself keeps.
	close() error
}

// A store is an open generation. Methods are safe for concurrent use, except that
// close is called last. append and reserve are for a store that was created, not
// opened.
type store interface {
	// append writes the entries as one: after a crash all or none are there. It
	// does not sync. It keeps no part of them.
	append(entries ...entry) error
	// reserve makes sure that values of so many bytes in total can be appended, and
	// fails with ErrNoSpace otherwise.
	reserve(bytes int64) error
	// sync makes durable what was appended before, for an opened store what another
	// process appended.
	sync() error
	// syncValues makes durable what values of entries that were appended before are
	// not in the entries themselves, but not the entries.
	syncValues() error
	// get appends the value to dst. It fails with errAbsent if there is none.
	get(key, dst []byte) ([]byte, error)
	// scan calls fn for each key that begins with kind, in order, with the version
	// of its entry. fn must not keep the bytes.
	scan(kind byte, fn func(key, value []byte, version uint64) error) error
	// versions returns the version of the last append that is there, and of the
	// last that is known to have been synced. Versions count appends from 1.
	versions() (last, synced uint64)
	// size is the bytes that the generation takes on disk, roughly.
	size() int64
	close() error
}

// An entry is a key with its value.
type entry struct{ key, value []byte }

// errAbsent says that a store has no such key.
var errAbsent = errors.New("absent")

// cost is what entries take of the index and of the values of a generation, at
// most.
func cost(entries ...entry) (index, values int64) {
	for _, e := range entries {
		index += int64(len(e.key)+min(len(e.value), inline)) + entryCost
		if len(e.value) >= inline {
			values += int64(len(e.key)+len(e.value)) + entryCost
		}
	}
	return index, values
}
