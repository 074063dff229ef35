//go:build linux

package file

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStopSignal stops a run in the middle: what was read is in the store when the
// process ends, and the next run does the rest. C049, C082.
func TestStopSignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, normalBuild)
			r.flags = killFlags
			in := newInput(t, r.input, 500_000)
			p := r.start(r.runArgs()...)
			p.until("a part", func() bool { return r.parts() > 0 })
			p.signal(sig)
			res := p.wait()
			res.want(t, exitInterrupted, "what to do: run the same command again")
			if err := r.lanes().Sound(in.lines); err != nil {
				t.Fatal(err)
			}
			r.run().want(t, exitOK)
			r.exact(in.lines)
		})
	}
}

// TestStopSignalWhileFollowing is the normal end of a run that follows its input:
// everything that was read is in the store.
func TestStopSignalWhileFollowing(t *testing.T) {
	t.Parallel()
	r := newRig(t, normalBuild)
	in := newInput(t, r.input, 100)
	p := r.start(r.runArgs("--follow")...)
	p.until("the records", func() bool { return r.lanes().Len() == 100 })
	in.grow(t, 50)
	p.until("the new records", func() bool { return r.lanes().Len() == 150 })
	p.signal(syscall.SIGTERM)
	p.wait().want(t, exitOK, "150 records")
	r.exact(in.lines)
}

// TestStopBound and its like need a store that takes nothing: a full file system.
func TestStopBound(t *testing.T) {
	t.Parallel()
	r, in, store := stuckRig(t, normal)
	p := r.start(r.runArgs("--drain-timeout", "300ms")...)
	p.until("an error of the store", func() bool { return strings.Contains(p.stderr.String(), "no space") })
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	p.wait().want(t, exitInterrupted, "drain bound", "what to do: ")
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the end took %v", took)
	}
	store.free()
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

func TestStopSecondSignal(t *testing.T) {
	t.Parallel()
	r, in, store := stuckRig(t, normal)
	p := r.start(r.runArgs("--drain-timeout", "1h")...)
	p.until("an error of the store", func() bool { return strings.Contains(p.stderr.String(), "no space") })
	p.signal(syscall.SIGINT)
	p.until("the note", func() bool { return strings.Contains(p.stderr.String(), "a second signal stops at once") })
	p.signal(syscall.SIGINT)
	p.wait().want(t, exitInterrupted, "second signal")
	store.free()
	r.run().want(t, exitOK)
	r.exact(in.lines)
}

// parts is the number of visible parts.
func (r *rig) parts() int {
	names, err := filepath.Glob(filepath.Join(r.out, "*+*"))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(names)
}
