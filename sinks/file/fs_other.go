//go:build !linux

package file

import "os"

func noReplace(root *os.Root, from, to string) error { return linkThenRemove(root, from, to) }
