package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

func TestClassify(t *testing.T) {
	store := func(k sinks.Kind) error { return &sinks.Error{Kind: k, Op: "flush", Err: errors.New("cause")} }
	tests := []struct {
		name string
		err  error
		want code
	}{
		{"nothing", nil, codeOK},
		{"unknown", errors.New("x"), codeBug},
		{"usage", usagef("x"), codeUsage},
		{"pipeline put together wrong", pipeline.ErrConfig, codeUsage},
		{"input", &inputError{fs.ErrNotExist}, codeInput},
		{"input of another job", &inputError{committer.ErrForeignPosition}, codeLedger},
		{"store that does not open", &storeError{fs.ErrPermission}, codeStore},
		{"store refuses", store(sinks.Permanent), codeStore},
		{"bad record", store(sinks.Poison), codeStore},
		{"attempts used up", store(sinks.Transient), codeStore},
		{"outcome unknown", store(sinks.Ambiguous), codeStore},
		{"fenced", store(sinks.Fenced), codeFenced},
		{"sink id in use", walsink.ErrShared, codeFenced},
		{"lane of another process", &stateError{walsink.ErrUnknownLane}, codeFenced},
		{"moved", store(sinks.Moved), codeLedger},
		{"ledger in motion", &stateError{walsink.ErrMoved}, codeStore},
		{"flush cut off", store(sinks.Cancelled), codeInterrupted},
		{"last attempt too slow", &sinks.Error{Kind: sinks.Cancelled, Op: "acquire", Err: context.DeadlineExceeded}, codeStore},
		{"store error about a cancelled context", &sinks.Error{Kind: sinks.Permanent, Err: context.Canceled}, codeStore},
		{"state behind", committer.ErrStateBehind, codeLedger},
		{"ledger missing", committer.ErrLedgerMissing, codeLedger},
		{"ledger behind", committer.ErrLedgerBehind, codeLedger},
		{"replay differs", committer.ErrReplayDiffers, codeLedger},
		{"other wire form", committer.ErrFormat, codeLedger},
		{"state of another sink id", &stateError{walsink.ErrForeignState}, codeLedger},
		{"batch damaged", committer.ErrDamaged, codeState},
		{"log locked", wal.ErrLocked, codeInUse},
		{"log failed", wal.ErrFailed, codeState},
		{"log full", wal.ErrFull, codeState},
		{"no space", wal.ErrNoSpace, codeState},
		{"newer log", wal.ErrFormat, codeState},
		{"damage", &wal.Damage{Block: -1, Err: errors.New("bits")}, codeState},
		{"file system without maps", wal.ErrUnsupported, codeState},
		{"state directory", &stateError{fs.ErrPermission}, codeState},
		{"in use, as it opens", &stateError{wal.ErrLocked}, codeInUse},
		{"signal", errStopped, codeInterrupted},
		{"bound", pipeline.ErrGrace, codeInterrupted},
		{"cancelled", context.Canceled, codeInterrupted},
		{"guarantee", pipeline.ErrGuarantee, codeGuarantee},
		{"audit", fmt.Errorf("%w: 1 difference", errDifference), codeDifference},
		{"reset", errRefusal, codeLedger},
	}
	seen := map[code]bool{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen[tt.want] = true
			if got := classify(tt.err); got != tt.want {
				t.Errorf("code %d, want %d", got, tt.want)
			}
			if tt.err == nil {
				return
			}
			if got := classify(fmt.Errorf("run: %w", tt.err)); got != tt.want {
				t.Errorf("wrapped: code %d, want %d", got, tt.want)
			}
			if got := classify(errors.Join(errors.New("close"), tt.err)); tt.want != codeBug && got != tt.want {
				t.Errorf("joined: code %d, want %d", got, tt.want)
			}
		})
	}
	for _, c := range codes {
		if !seen[c.code] {
			t.Errorf("code %d is not in the test", c.code)
		}
	}
}

// TestKindsAreComplete: every outcome of a store call has a code.
func TestKindsAreComplete(t *testing.T) {
	for k := sinks.Transient; k <= sinks.Cancelled; k++ {
		if _, ok := kinds[k]; !ok {
			t.Errorf("kind %v has no code", k)
		}
	}
}

func TestOpening(t *testing.T) {
	if opening(nil) != nil {
		t.Error("an error of nothing")
	}
	if c := classify(opening(fs.ErrPermission)); c != codeState {
		t.Errorf("code %d, want %d", c, codeState)
	}
	if c := classify(opening(committer.ErrLedgerMissing)); c != codeLedger {
		t.Errorf("code %d, want %d", c, codeLedger)
	}
}

func TestLocate(t *testing.T) {
	p := &place{state: "/var/state"}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{wal.ErrNoSpace, "state directory /var/state: no space for the log"},
		{fmt.Errorf("open log /var/state: %w", wal.ErrLocked), "open log /var/state: log is in use"},
		{committer.ErrLedgerMissing, "the store has lost its ledger"},
	} {
		if got := p.locate(tt.err); got.Error() != tt.want || !errors.Is(got, tt.err) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	if p.locate(nil) != nil {
		t.Error("an error of nothing")
	}
}

func TestStopped(t *testing.T) {
	f := &job{}
	ended := pipeline.Summary{Ended: true}
	for _, tt := range []struct {
		name   string
		follow bool
		sum    pipeline.Summary
		err    error
		want   code
	}{
		{"at the end", false, ended, nil, codeOK},
		{"following", true, pipeline.Summary{}, nil, codeOK},
		{"before the end", false, pipeline.Summary{}, nil, codeInterrupted},
		{"bound passed", false, ended, pipeline.ErrGrace, codeInterrupted},
		{"drain cut", true, ended, context.DeadlineExceeded, codeInterrupted},
		{"start cut", false, pipeline.Summary{}, context.Canceled, codeInterrupted},
		{"another error", false, pipeline.Summary{}, wal.ErrFailed, codeState},
	} {
		f.follow = tt.follow
		if got := classify(f.stopped(tt.sum, tt.err)); got != tt.want {
			t.Errorf("%s: code %d, want %d", tt.name, got, tt.want)
		}
	}
}
