// Package command holds the end-to-end tests of the command with servers as
// stores. Files have their own, in integration/file.
package command
