//go:build unix && !linux

package wal

import "os"

func allocate(*os.File, int64) error           { return errNoAllocate }
func punch(*os.File, int64, int64) error       { return nil }
func blank(*os.File, int64) bool               { return false }
func startWriting(*os.File, int64, int64)      {}
func networkOf(string) (string, error)         { return "", nil }
func fileSystemOf(string) (string, bool, bool) { return "unknown", false, false }
