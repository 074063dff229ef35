package wal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/campaign"
)

// childEnv makes the test binary a process that uses the log in that directory
// until it is killed, and says on its standard output what it was told.
const childEnv = "WALSINK_WAL_CHILD"

var killOptions = Options{GenerationBytes: 1 << 20, Retain: -1, Logger: quiet}

var killLanes = []string{"s/a", "s/b", "s/c"}

// killRecords are the records of a batch, a function of lane and Seq, so that
// whoever reads can tell what must be there.
func killRecords(lane string, seq uint64) (recs [][]byte) {
	pad := bytes.Repeat([]byte{'p'}, int(seq%5)*1000)
	for i := range 20 + seq%7*40 {
		recs = append(recs, fmt.Appendf(nil, "%s/%d/%d/%s", lane, seq, i, pad))
	}
	return recs
}

func child(dir string) {
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
	if err := childLog(dir, say); err != nil {
		say("error %v", err)
		os.Exit(1)
	}
}

func childLog(dir string, say func(string, ...any)) error {
	if n := os.Getenv(transactionsEnv); n != "" {
		return childWide(dir, n, say)
	}
	l, err := Open(dir, killOptions)
	if err != nil {
		return err
	}
	if os.Getenv("WALSINK_WAL_COMMIT") != "" {
		return childCommits(l, say)
	}
	say("truncate")
	if err := l.Truncate(); err != nil {
		return err
	}
	n, _ := l.Completed()
	for rounds := 0; ; rounds++ {
		n++
		for _, name := range killLanes {
			ln, err := l.Lane(name)
			if err != nil {
				return err
			}
			seq := ln.log.tipOf(ln) + 1
			for _, r := range killRecords(name, seq) {
				if err := ln.Append(context.Background(), r); err != nil {
					return err
				}
			}
			if _, _, err := ln.Seal(n, nil, "", false); err != nil {
				return err
			}
		}
		finish := l.Sync
		if n%3 == 1 {
			finish = func() error { return l.Checkpoint(n, nil) }
		}
		if err := finish(); err != nil {
			return err
		}
		for _, name := range killLanes {
			ln, _ := l.Lane(name)
			say("sealed %s %d", name, ln.log.tipOf(ln))
		}
		if n%3 == 0 && os.Getenv("WALSINK_WAL_STOP") == "" {
			continue // never completed itself; the next one covers it
		}
		if err := l.Complete(n, nil); err != nil { // after Checkpoint it changes nothing
			return err
		}
		say("completed %d", n)
		for _, name := range killLanes {
			head, committed, _ := l.Head(name)
			if head.Seq < committed+4 || os.Getenv("WALSINK_WAL_STOP") != "" {
				continue
			}
			say("commit %s %d", name, head.Seq-2)
			if err := l.Commit(name, head.Seq-2); err != nil {
				return err
			}
		}
		if stop := os.Getenv("WALSINK_WAL_STOP"); stop != "" && stop == fmt.Sprint(n) {
			return die()
		}
		if rounds == 40 {
			return l.Close()
		}
	}
}

// die kills this process, with no chance to do anything.
func die() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return self.Kill()
}

// childCommits commits one more batch of each lane and reads those that wait for it.
func childCommits(l *Log, say func(string, ...any)) error {
	for _, name := range killLanes {
		_, committed, _ := l.Head(name)
		for _, b := range l.Batches(name) {
			if b.Seq <= committed {
				continue // may be dropped meanwhile
			}
			for _, err := range l.Blocks(name, b.Seq) {
				if err != nil {
					return err
				}
			}
		}
		say("commit %s %d", name, committed+1)
		if err := l.Commit(name, committed+1); err != nil {
			return err
		}
		if err := l.PutNote(name, committed+2, []byte("note")); err != nil {
			return err
		}
	}
	return l.Close()
}

// told is what a child was told by the log.
type told struct {
	sealed, commit map[string]uint64
	completed      uint64
	failed         string
}

func newTold() *told { return &told{sealed: make(map[string]uint64), commit: make(map[string]uint64)} }

// hear takes a child's output, of which the last line may be cut.
func (k *told) hear(out []byte) {
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		var name string
		var n uint64
		line := sc.Text()
		switch {
		case line == "truncate":
			clear(k.sealed)
		case strings.HasPrefix(line, "error"):
			k.failed = line
		case scan(line, "completed %d", &n):
			k.completed = n
		case scan(line, "sealed %s %d", &name, &n):
			k.sealed[name] = n
		case scan(line, "commit %s %d", &name, &n):
			k.commit[name] = n
		}
	}
}

func scan(line, format string, args ...any) bool {
	n, err := fmt.Sscanf(line, format, args...)
	return err == nil && n == len(args)
}

// check opens the log and compares it with what the children were told.
func (k *told) check(t *testing.T, dir string) {
	t.Helper()
	opts := killOptions
	opts.Retain = time.Hour // nothing goes while we look
	l, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	if s := l.Stat(); len(s.Damage) > 0 {
		t.Fatalf("damage after a kill: %v", s.Damage)
	}
	if c, _ := l.Completed(); c < k.completed {
		t.Fatalf("completed is %d, was told %d", c, k.completed)
	}
	for _, name := range killLanes {
		k.checkLane(t, l, name)
	}
}

func (k *told) checkLane(t *testing.T, l *Log, name string) {
	t.Helper()
	ln := mustLane(t, l, name)
	if ln.log.tipOf(ln) < k.sealed[name] {
		t.Fatalf("%s ends with batch %d, was told %d", name, ln.log.tipOf(ln), k.sealed[name])
	}
	head, committed, _ := l.Head(name)
	if committed > k.commit[name] {
		t.Fatalf("%s is committed up to %d, was told only %d", name, committed, k.commit[name])
	}
	held := l.Batches(name)
	next := committed + 1
	for _, b := range held {
		if b.Seq > committed && b.Seq != next {
			t.Fatalf("%s holds batch %d, want %d", name, b.Seq, next)
		}
		next = b.Seq + 1
		want := killRecords(name, b.Seq)
		got := readBatch(t, l, name, b.Seq)
		if !slices.EqualFunc(got, want, func(g string, w []byte) bool { return g == string(w) }) {
			t.Fatalf("%s batch %d has other records: %d, want %d", name, b.Seq, len(got), len(want))
		}
	}
	if next != head.Seq+1 {
		t.Fatalf("%s holds batches up to %d, want %d", name, next-1, head.Seq)
	}
}

// runChild runs a child, kills it after a while, and takes note of what it said.
func (k *told) runChild(t *testing.T, dir string, after time.Duration, env ...string) *os.ProcessState {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), append(env, childEnv+"="+dir)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	k.hear(out.Bytes())
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	if k.failed != "" || errs.Len() > 0 {
		t.Fatalf("child: %s\n%s", k.failed, errs.Bytes())
	}
	return cmd.ProcessState
}

func killed(s *os.ProcessState) bool {
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
}

// TestKill kills a process that writes, also while it recovers from the kill
// before, and looks for what it was told.
func TestKill(t *testing.T) {
	cycles := 24
	switch {
	case campaign.Long():
		cycles = 200
	case testing.Short():
		cycles = 6
	}
	dir, k := t.TempDir(), newTold()
	rng := rand.New(rand.NewPCG(campaign.Seed(t), 0))
	kills := 0
	for i := range cycles {
		state := k.runChild(t, dir, time.Duration(20+rng.IntN(700))*time.Millisecond)
		if killed(state) {
			kills++
		}
		if i%2 == 1 {
			k.check(t, dir)
		}
	}
	k.check(t, dir)
	if kills == 0 {
		t.Error("no child was killed")
	}
	t.Logf("%d kills, completed %d, sealed %v, committed %v", kills, k.completed, k.sealed, k.commit)
	campaign.Figures{Cycles: kills, Faults: map[string]int{"kill -9": kills}}.Report(t)
}
