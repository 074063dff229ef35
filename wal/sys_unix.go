//go:build unix

package wal

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// errNoAllocate says that the file system cannot take blocks ahead of use.
var errNoAllocate = errors.New("fallocate is not supported")

// isNoSpace reports whether err is one of those that mean "disk full".
func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// free is the bytes of the file system that dir is on which we may still use.
func free(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // 32 bits elsewhere
}

// used is the bytes that a file takes on disk.
func used(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

// lockFile takes an exclusive lock without waiting.
func lockFile(f *os.File) (busy bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return errors.Is(err, unix.EWOULDBLOCK), err
}

// probeMapping checks that a page of f can be mapped, changed and synced. The
// page was written before, so that the change needs no space.
func probeMapping(f *os.File, size int) error {
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("shared mapping: %w", err)
	}
	m[0] = 1
	if err := unix.Msync(m, unix.MS_SYNC); err != nil {
		return errors.Join(fmt.Errorf("msync: %w", err), unix.Munmap(m))
	}
	return unix.Munmap(m)
}

// lockedByOther reports whether a lock is held. It takes it, shared, and gives it back.
func lockedByOther(f *os.File) bool {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing does it too
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

// ownerOf is the user that a file belongs to.
func ownerOf(info os.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}
