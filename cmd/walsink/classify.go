package main

import (
	"context"
	"errors"
	"strings"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// sentinels are the errors that have a code of their own, the most telling first:
// an error may wrap several.
var sentinels = []struct {
	err  error
	code code
}{
	{wal.ErrLocked, codeInUse},
	{walsink.ErrShared, codeFenced},
	{walsink.ErrUnknownLane, codeFenced},
	{walsink.ErrMoved, codeStore},
	{committer.ErrStateBehind, codeLedger},
	{committer.ErrLedgerMissing, codeLedger},
	{committer.ErrLedgerBehind, codeLedger},
	{committer.ErrReplayDiffers, codeLedger},
	{committer.ErrForeignPosition, codeLedger},
	{committer.ErrFormat, codeLedger},
	{walsink.ErrForeignState, codeLedger},
	{walsink.ErrStartedAnew, codeLedger},
	{walsink.ErrFormForgotten, codeLedger},
	{errRefusal, codeLedger},
	{errDifference, codeDifference},
	{pipeline.ErrGuarantee, codeGuarantee},
	{pipeline.ErrGrace, codeInterrupted},
	{errStopped, codeInterrupted},
	{wal.ErrFailed, codeState},
	{wal.ErrFull, codeState},
	{wal.ErrNoSpace, codeState},
	{wal.ErrFormat, codeState},
	{wal.ErrDamaged, codeState},
	{wal.ErrUnsupported, codeState},
	{committer.ErrDamaged, codeState},
	{pipeline.ErrConfig, codeUsage},
	{pipeline.ErrNewOutput, codeUsage},
}

// kinds are the codes of a store's errors.
var kinds = map[sinks.Kind]code{
	sinks.Fenced:    codeFenced,
	sinks.Moved:     codeLedger,
	sinks.Permanent: codeStore,
	sinks.Poison:    codeStore,
	sinks.Transient: codeStore, // only after --max-attempts
	sinks.Ambiguous: codeStore,
	sinks.Cancelled: codeInterrupted,
}

// classify returns the exit code of an error.
func classify(err error) code {
	if err == nil {
		return codeOK
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code
		}
	}
	if e, ok := errors.AsType[*sinks.Error](err); ok {
		if e.Kind == sinks.Cancelled && errors.Is(e, context.DeadlineExceeded) {
			return codeStore // the last of --max-attempts took too long
		}
		return kinds[e.Kind]
	}
	switch {
	case errors.Is(err, context.Canceled):
		return codeInterrupted
	case isA[*usageError](err):
		return codeUsage
	case isA[*inputError](err):
		return codeInput
	case isA[*storeError](err):
		return codeStore
	case isA[*stateError](err):
		return codeState
	}
	return codeBug
}

// opening marks an error of walsink.Open that nobody has classified: what is left
// then is the state directory.
func opening(err error) error {
	if err == nil || classify(err) != codeBug {
		return err
	}
	return &stateError{err}
}

// nextStep is what to do after err.
func nextStep(err error, c code) string {
	if a, ok := errors.AsType[*advised](err); ok {
		return a.next
	}
	if strings.Contains(err.Error(), "what to do") {
		return ""
	}
	for _, s := range steps {
		if errors.Is(err, s.err) {
			return s.next
		}
	}
	if e, ok := errors.AsType[*sinks.Error](err); ok && c == codeStore {
		switch e.Kind {
		case sinks.Poison:
			return "mend what the store refuses, or start with --dead-letters, which puts such records aside; then run the same command again"
		case sinks.Transient, sinks.Ambiguous:
			return "see that the store is up and that the address of --to is right, then run the same command again"
		}
	}
	return advice(c)
}

// steps are what to do after an error of which the exit code says too little.
var steps = []struct {
	err  error
	next string
}{
	{pipeline.ErrNewOutput, "give the output start: beginning, and the sources are read again for it, or start: now (on the command line --start)"},
	{walsink.ErrForeignState, "name another directory with --state, or leave it out; another job or another --to needs its own. Nothing was written"},
	{wal.ErrNoSpace, "free space where the state directory is, then run the same command again; walsink drain works on a full disk"},
	{wal.ErrFull, "raise --max-bytes, then run the same command again"},
}
