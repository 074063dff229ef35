package main

import (
	"fmt"
	"strings"
)

// A code is an exit code of the command. The table [codes] says what each means.
type code int

// The exit codes. They never change their meaning.
const (
	codeOK          code = 0
	codeBug         code = 1
	codeUsage       code = 2
	codeInput       code = 3
	codeStore       code = 4
	codeFenced      code = 5
	codeLedger      code = 6
	codeState       code = 7
	codeInUse       code = 8
	codeInterrupted code = 9
	codeGuarantee   code = 10
	codeDifference  code = 11
)

// codes is the one table of exit codes: help, documentation and the advice under
// an error are made from it.
var codes = []struct {
	code  code
	name  string
	means string
	next  string // what to do, when the error itself does not say; empty: nothing
}{
	{codeOK, "ok", "everything asked for is done", ""},
	{codeBug, "unexpected", "an error nobody foresaw, or a bug",
		"run the same command again; nothing complete is lost. If it comes back, report it with this output"},
	{codeUsage, "usage", "a flag, SRC or DST that cannot be meant so",
		"see walsink --help, and --help of the command"},
	{codeInput, "bad input", "a record, or a source that cannot be read",
		"mend or restore the source, then run the same command again: it resumes after what is committed"},
	{codeStore, "store", "the store cannot be opened, or refuses for good: rights, a column, a record",
		"mend it in the store, then run the same command again: it resumes after what is committed"},
	{codeFenced, "fenced", "a newer owner has taken the lanes over",
		"let the newer process go on, or stop it first; two jobs need two values of --id"},
	{codeLedger, "ledger", "log, ledger and source do not belong together",
		"compare walsink ledger with walsink status; nothing was written"},
	{codeState, "state", "the state directory cannot be written, is full, damaged or of a newer format",
		"make the directory this user's own, or free or mend the disk; then run the same command again. walsink verify names damage"},
	{codeInUse, "in use", "another process has the state directory open",
		"wait for that process or stop it, or name another directory with --state"},
	{codeInterrupted, "interrupted", "stopped by a signal with work left",
		"run the same command again: it goes on where it stopped, nothing is lost"},
	{codeGuarantee, "guarantee", "the end-to-end guarantee is weaker than --require asks for",
		"change what the reason names, or ask for less"},
	{codeDifference, "difference", "an audit found that log, ledger and destination differ",
		"the first difference says where: find out who wrote there beside walsink, or what was taken away; a run may go on meanwhile"},
}

// codeHelp is the table as help prints it.
func codeHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, c := range codes {
		fmt.Fprintf(&b, "  %2d  %-12s %s\n", c.code, c.name, c.means)
	}
	return b.String()
}

// advice says what to do after an exit with c.
func advice(c code) string {
	for _, e := range codes {
		if e.code == c {
			return e.next
		}
	}
	return ""
}

// A usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// An inputError is about a source: its text names file, line and reason.
type inputError struct{ err error }

func (e *inputError) Error() string { return e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }
