//go:build !unix

package wal

import (
	"errors"
	"os"
	"runtime"
)

var errNoAllocate = errors.New("fallocate is not supported")

func unsupported() error { return errors.New(runtime.GOOS + " has no flock and msync") }

func isNoSpace(error) bool                     { return false }
func free(string) (int64, error)               { return 0, unsupported() }
func used(info os.FileInfo) int64              { return info.Size() }
func lockFile(*os.File) (bool, error)          { return false, unsupported() }
func probeMapping(*os.File, int) error         { return unsupported() }
func allocate(*os.File, int64) error           { return errNoAllocate }
func punch(*os.File, int64, int64) error       { return nil }
func blank(*os.File, int64) bool               { return false }
func startWriting(*os.File, int64, int64)      {}
func networkOf(string) (string, error)         { return "", nil }
func lockedByOther(*os.File) bool              { return false }
func ownerOf(os.FileInfo) int                  { return -1 }
func fileSystemOf(string) (string, bool, bool) { return "unknown", false, false }

func openToSync(string) (*os.File, error) { return nil, unsupported() }
func syncData(f *os.File) error           { return f.Sync() }
