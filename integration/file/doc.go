// Package file holds the end-to-end tests of the command with files as the store:
// the real binary, real files, real kills. The tests build the command, with the
// race detector where there is a C compiler, and need Linux; those of full and
// read-only disks need the right to mount and skip without.
package file
