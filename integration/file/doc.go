// Package file holds the end-to-end tests of the command with files as the store:
// the real binary, real files, real kills. Its tests build the command.
package file
