package main

import (
	"fmt"
	"os"

	"github.com/walsink/walsink/wal"
)

// examineState looks at a state directory.
func examineState(dir string, log logFlags) []check {
	subject := "state " + dir
	f := wal.Examine(dir)
	checks := []check{stateDirectory(subject, f)}
	if f.Contents != nil && f.Write != nil && !f.Exists {
		return checks
	}
	if f.Exists {
		checks = append(checks, stateContents(subject, f), stateLock(subject, f))
	}
	return append(checks, stateFileSystem(subject, f), stateWrite(subject, f), stateAllocate(subject, f), stateSpace(subject, f, int64(log.maxBytes)))
}

func stateDirectory(subject string, f wal.Facts) check {
	const name = "directory"
	found := fmt.Sprintf("%v, of user %d", f.Mode, f.Owner)
	uid := os.Geteuid()
	switch {
	case !f.Exists && f.Write != nil:
		return refused(subject, name, "not there, and not to be made in "+f.Dir+": "+f.Write.Error(), "make it for this user, or name another one with --state")
	case !f.Exists:
		return passed(subject, name, "not there yet; made in "+f.Dir, "")
	case f.Owner >= 0 && uid > 0 && f.Owner != uid:
		return refused(subject, name, found, fmt.Sprintf("this is user %d: run as the owner, or give the directory to this user", uid))
	case f.Mode.Perm() != 0o700:
		return passed(subject, name, found, "run takes the rights of others away: it makes it drwx------")
	}
	return passed(subject, name, found, "")
}

func stateContents(subject string, f wal.Facts) check {
	const name = "contents"
	switch {
	case f.Contents != nil:
		return refused(subject, name, f.Contents.Error(), "name another directory with --state, or restore this one")
	case f.HasLog:
		return passed(subject, name, "a log, "+formatSize(f.Used), "")
	}
	return passed(subject, name, "empty", "")
}

func stateLock(subject string, f wal.Facts) check {
	if f.Holder != "" {
		return passed(subject, "lock", "process "+f.Holder+" works on it", "another run is refused until that one ends")
	}
	return passed(subject, "lock", "free", "")
}

func stateFileSystem(subject string, f wal.Facts) check {
	const name = "file system"
	switch {
	case f.Network:
		return refused(subject, name, f.FileSystem+", a network file system", "a lock may not keep out another host there: use a local disk")
	case f.Volatile:
		return passed(subject, name, f.FileSystem+", which a restart of the machine empties",
			"what is not in the store then is read again from the source: use a disk, above all if the source cannot be read again")
	}
	return passed(subject, name, f.FileSystem, "")
}

func stateWrite(subject string, f wal.Facts) check {
	if f.Write != nil {
		return refused(subject, "mmap, fsync, rename", f.Write.Error(), "give this user the right to write, or name a directory on a local disk with --state")
	}
	return passed(subject, "mmap, fsync, rename", "work", "")
}

func stateAllocate(subject string, f wal.Facts) check {
	if f.Allocate != nil {
		return passed(subject, "fallocate", f.Allocate.Error(), "the log keeps some space free instead; do not let others fill that disk")
	}
	return passed(subject, "fallocate", "works", "")
}

// stateSpace compares free space with the budget of the log.
func stateSpace(subject string, f wal.Facts, budget int64) check {
	found := fmt.Sprintf("%s free, --max-bytes %s, %s in use", formatSize(f.Free), formatSize(budget), formatSize(f.Used))
	switch {
	case f.Free+f.Used < leastLog:
		return refused(subject, "free space", found, "the log cannot begin: make space")
	case f.Free < budget-f.Used:
		return passed(subject, "free space", found,
			"with a store that is down long enough the disk is full first; input waits then, nothing is lost. Make space or lower --max-bytes")
	}
	return passed(subject, "free space", found, "")
}
