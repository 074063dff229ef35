//go:build unix

package sources

import (
	"io/fs"
	"syscall"
)

// fileID names a file whatever its path is. Zero means unknown.
func fileID(info fs.FileInfo) (dev, ino uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return uint64(st.Dev), uint64(st.Ino) //nolint:unconvert // other types on other systems
}
