//go:build !unix

package state

import (
	"os"
	"path/filepath"
)

// lockDir leaves it to Badger to keep other processes out.
func lockDir(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
}
