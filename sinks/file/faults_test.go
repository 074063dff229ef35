package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/walsink/walsink/sinks"
)

// source is the records of a test by checkpoint. Every owner can read it from any
// position, as one that can be replayed.
type source []batch

func newSource(n int) source {
	var s source
	for cp := range n {
		var recs []string
		for i := range 3 + cp%4 {
			recs = append(recs, fmt.Sprintf(`{"cp":%d,"i":%d}`, cp+1, i))
		}
		s = append(s, lines(uint64(cp+1), recs...))
	}
	return s
}

func bigSource(n, recs int) source {
	var s source
	for cp := range n {
		b := batch{checkpoint: uint64(cp + 1)}
		for i := range recs {
			b.recs = append(b.recs, fmt.Sprintf("{\"cp\":%d,\"i\":%d,\"pad\":%q}\n", cp+1, i, strings.Repeat("x", i%97)))
		}
		s = append(s, b)
	}
	return s
}

func bucketSource(n, recs, buckets int) source {
	var s source
	for cp := range n {
		b := batch{checkpoint: uint64(cp + 1)}
		for i := range recs {
			b.recs = append(b.recs, inBucket(fmt.Sprintf("b%04d", i%buckets), fmt.Sprintf(`{"cp":%d,"i":%d}`, cp+1, i)))
		}
		s = append(s, b)
	}
	return s
}

func (s source) upTo(seq uint64) string {
	var b strings.Builder
	for _, batch := range s[:seq] {
		b.WriteString(strings.Join(batch.recs, ""))
	}
	return b.String()
}

// run flushes what is missing, one batch a step, and recovers from errors as the
// engine does: it asks for the mark, and begins again with a new handle if that
// fails or the lane is to stop. It gives up on Fenced.
func (s source) run(dir string, opts Options, wrap operation) error {
	for range 50 {
		err := s.attempt(dir, opts, wrap)
		if err == nil || sinks.KindOf(err) == sinks.Fenced {
			return err
		}
	}
	return errors.New("no end in 50 attempts")
}

func (s source) attempt(dir string, opts Options, wrap operation) error {
	sink, err := Open(dir, opts)
	if err != nil {
		return err
	}
	defer sink.Close()
	sink.fs.wrap = wrap
	lane, mark, err := sink.Acquire(context.Background(), orders)
	if err != nil {
		return err
	}
	defer lane.Close()
	for mark.Seq < uint64(len(s)) {
		_, ferr := lane.Flush(context.Background(), stepAfter(orders, mark, s[mark.Seq]))
		switch sinks.KindOf(ferr) {
		case sinks.Permanent, sinks.Poison, sinks.Fenced:
			return ferr
		}
		was := mark
		if mark, err = lane.Mark(context.Background()); err != nil {
			return err
		}
		if k := sinks.KindOf(ferr); k == sinks.Transient && mark.Tip() != was.Tip() {
			return fmt.Errorf("flush was %v, which is transient, and moved the mark", ferr)
		}
		if ferr == nil && mark.Seq != was.Seq+1 {
			return fmt.Errorf("flush of %d succeeded, the mark is at %d", was.Seq+1, mark.Seq)
		}
	}
	return nil
}

// An operation is what files.wrap gets to see, and a hooker makes one that is
// replaced at one operation only.
type (
	operation = func(op, name string, do func() error) error
	hooker    = func(at operation) operation
)

// everyOp calls trial with n = 1, 2, … until a trial has fewer than n operations.
// The hook it passes calls at at operation n.
func everyOp(t *testing.T, trial func(t *testing.T, n int, hook hooker)) int {
	for n := 1; ; n++ {
		hit := false
		t.Run(fmt.Sprintf("op %d", n), func(t *testing.T) {
			trial(t, n, func(at operation) operation {
				count := 0
				return func(op, name string, do func() error) error {
					if count++; count != n {
						return do()
					}
					hit = true
					return at(op, name, do)
				}
			})
		})
		if t.Failed() || !hit {
			return n - 1
		}
	}
}

// Every operation fails once, before it has done anything or after it has done
// everything, in the course of two steps with a fold between. In the end every record is there once.
func TestEveryOperationFailsOnce(t *testing.T) {
	src := newSource(3)
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v after=%v", errno, after), func(t *testing.T) {
				ops := everyOp(t, func(t *testing.T, _ int, hook hooker) {
					dir := scratch(t)
					wrap := hook(func(op, name string, do func() error) error {
						if after {
							if err := do(); err != nil {
								return err
							}
						}
						return &os.PathError{Op: op, Path: name, Err: errno}
					})
					if err := src.run(dir, Options{}, wrap); err != nil {
						t.Fatal(err)
					}
					wantConcat(t, dir, src.upTo(3))
					wantNoStaging(t, dir)
				})
				if ops < 60 {
					t.Errorf("only %d operations were tried", ops)
				}
			})
		}
	}
}

// wantNoStaging wants nothing below stage but the ticket of the last step, after one
// more Acquire.
func wantNoStaging(t *testing.T, dir string) {
	t.Helper()
	acquire(t, dir, Options{})
	if names := staging(t, dir); len(names) > 1 || len(names) == 1 && !strings.HasSuffix(names[0], ".publishing") {
		t.Errorf("staging is left: %v", names)
	}
}

// scratch is a directory in memory if there is one, for tests that are not about
// durability.
func scratch(t testing.TB) string {
	t.Helper()
	if dir, err := os.MkdirTemp("/dev/shm", "walsink-file-"); err == nil { //nolint:usetesting // it is the memory that matters
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}

// An owner is frozen before or after each of its operations. Meanwhile another one
// takes the lane over and brings it a number of steps further. Thawed, the first one
// goes on as if nothing had happened. It may not write, replace or publish anything
// that is not in the ledger.
func TestFrozenAtEveryOperation(t *testing.T) {
	for _, steps := range []int{0, 1, 70} { // 70 steps remove the manifest that the frozen owner is at
		for _, after := range []bool{false, true} {
			if after && steps > 1 {
				continue // after one operation is before the next
			}
			t.Run(fmt.Sprintf("steps=%d after=%v", steps, after), func(t *testing.T) {
				everyOp(t, func(t *testing.T, _ int, hook hooker) {
					dir := scratch(t)
					if err := frozenTrial(t, dir, steps, after, hook); err != nil {
						t.Fatal(err)
					}
					wantNoStaging(t, dir)
				})
			})
		}
	}
}

// frozenTrial freezes an owner at the hook's operation. The others write other
// records under the same checkpoints, so that it shows whose they are.
func frozenTrial(t *testing.T, dir string, steps int, after bool, hook hooker) error {
	mine, theirs := newSource(3), newSource(200)
	for i, b := range theirs {
		theirs[i].recs = append([]string{"theirs\n"}, b.recs...)
	}
	var from, to uint64 // the batches that are theirs come after from, up to to
	others := func() {
		from = markOf(t, dir).Seq
		to = from + uint64(steps)
		if err := theirs[:to].run(dir, Options{}, nil); err != nil {
			t.Error(err)
		}
	}
	err := mine.attempt(dir, Options{}, hook(func(_, _ string, do func() error) error {
		if after {
			err := do()
			others()
			return err
		}
		others()
		return do()
	}))
	switch k := sinks.KindOf(err); {
	case err == nil, k == sinks.Fenced:
	case k == sinks.Transient: // the race for the first manifest
	default:
		return fmt.Errorf("frozen owner: %w", err)
	}
	var want source
	for seq := range markOf(t, dir).Seq {
		if from <= seq && seq < to {
			want = append(want, theirs[seq])
		} else {
			want = append(want, mine[seq])
		}
	}
	if uint64(len(want)) < to {
		return fmt.Errorf("the mark is at %d, it was at %d", len(want), to)
	}
	if got, want := concat(t, dir), want.upTo(uint64(len(want))); got != want {
		return fmt.Errorf("the parts hold\n%.300q, want\n%.300q", got, want)
	}
	return nil
}

// markOf reads the mark without acquiring the lane.
func markOf(t testing.TB, dir string) sinks.Mark {
	t.Helper()
	marks, err := open(t, dir, Options{}).Marks(t.Context(), orders.Sink)
	if err != nil {
		t.Fatal(err)
	}
	if len(marks) == 0 {
		return sinks.Mark{}
	}
	return marks[0].Mark
}

// A consumer takes every part away the moment it sees it, while the sink crashes
// after each of its operations: no record comes twice, none is missing.
func TestConsumerTakesPartsAcrossCrashes(t *testing.T) {
	src := newSource(3)
	crash := errors.New("crash")
	everyOp(t, func(t *testing.T, _ int, hook hooker) {
		dir, away := scratch(t), t.TempDir()
		dead := false
		wrap := hook(func(_, _ string, do func() error) error {
			err := do()
			dead = true
			take(t, dir, away)
			return errors.Join(crash, err)
		})
		_ = src.attempt(dir, Options{}, func(op, name string, do func() error) error {
			if dead {
				return crash
			}
			return wrap(op, name, do)
		})
		take(t, dir, away)
		if err := src.run(dir, Options{}, nil); err != nil {
			t.Fatal(err)
		}
		take(t, dir, away)
		wantConcat(t, away, src.upTo(3))
	})
}

// take moves all parts to another directory; a name that comes twice fails the test.
func take(t *testing.T, dir, away string) {
	t.Helper()
	for name := range visible(t, dir) {
		if _, err := os.Lstat(filepath.Join(away, name)); err == nil {
			t.Errorf("%s was published twice", name)
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(away, name), data, 0o600)
		}
		if err == nil {
			err = os.Remove(filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The fsync of a directory fails. Whatever the second one would say, nothing is
// confirmed on its word: the log gets the state once more under a new number, and for
// the other directories the handle stops.
func TestFailedDirectorySync(t *testing.T) {
	for _, dirName := range []string{".", "b", "log", "stage"} {
		t.Run(dirName, func(t *testing.T) {
			dir := t.TempDir()
			o := acquire(t, dir, Options{Buckets: true})
			failed := false
			o.sink.fs.wrap = func(op, name string, do func() error) error {
				if op == "syncdir" && filepath.Base(name) == dirName && !failed {
					failed = true
					return syscall.EIO
				}
				return do()
			}
			before := len(manifests(t, dir))
			err := o.try(batch{1, []string{inBucket("b", "x")}})
			m, merr := o.lane.Mark(t.Context())
			switch dirName {
			case ".", "b":
				wantKind(t, err, sinks.Permanent)
				wantKind(t, merr, sinks.Permanent)
				wantKind(t, o.try(batch{1, []string{inBucket("b", "x")}}), sinks.Permanent)
			case "log":
				wantKind(t, err, sinks.Ambiguous)
				if merr != nil || m.Seq != 1 || len(manifests(t, dir)) != before+2 {
					t.Errorf("mark %+v, %v, %d manifests", m, merr, len(manifests(t, dir)))
				}
			case "stage":
				wantKind(t, err, sinks.Transient)
				if merr != nil || m.Seq != 0 {
					t.Errorf("mark %+v, %v", m, merr)
				}
			}
			o = acquire(t, dir, Options{Buckets: true})
			if o.mark.Seq == 0 {
				o.flush(batch{1, []string{inBucket("b", "x")}})
			}
			if got := bucketsIn(t, dir); got["b"] != "x\n" || len(got) != 1 {
				t.Errorf("%v", got)
			}
		})
	}
}

// A part whose fsync failed is written again under a new name.
func TestFailedFileSyncIsNotRepeated(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	var synced []string
	o.sink.fs.wrap = func(op, name string, do func() error) error {
		if op == "sync" && strings.HasSuffix(name, ".part") {
			if synced = append(synced, name); len(synced) == 1 {
				return syscall.EIO
			}
		}
		return do()
	}
	wantKind(t, o.try(lines(1, "a")), sinks.Transient)
	o.flush(lines(1, "a"))
	if len(synced) != 2 || synced[0] == synced[1] {
		t.Errorf("synced %v", synced)
	}
	wantConcat(t, dir, "a\n")
}

// A consumer that takes the last part of a bucket may take its directory as well.
// The one that is made again is as durable as the first.
func TestBucketMadeAgainIsDurable(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{Buckets: true})
	for n := range uint64(2) {
		var last string
		o.sink.fs.wrap = func(op, name string, do func() error) error {
			if op == "rename" && strings.HasPrefix(name, "b/") && last != "syncdir" {
				t.Errorf("step %d publishes into a directory whose entry may be lost", n+1)
			}
			err := do()
			if err == nil && (op == "mkdir" && name == "b" || op == "syncdir" && name == ".") {
				last = op
			}
			return err
		}
		o.flush(batch{n + 1, []string{inBucket("b", "x")}})
		if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
	}
}

// The fsync of a manifest's name fails: the state is committed again, and does not
// need that manifest, which is lost at a power cut.
func TestManifestWhoseSyncFailedIsNotNeeded(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	o.flush(lines(1, "a"))
	failed := false
	o.sink.fs.wrap = func(op, name string, do func() error) error {
		if op == "syncdir" && strings.HasSuffix(name, "/log") && !failed {
			failed = true
			return syscall.EIO
		}
		return do()
	}
	step := stepAfter(orders, o.mark, lines(2, "b"))
	if _, err := o.lane.Flush(t.Context(), step); sinks.KindOf(err) != sinks.Ambiguous {
		t.Fatalf("got %v", err)
	}
	lost := o.lane.(*lane).cur.Number + 1
	if _, err := o.lane.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, o.lane.(*lane).log.path(lost))); err != nil {
		t.Fatal(err)
	}
	o = acquire(t, dir, Options{})
	n := 0
	for row, err := range o.sink.Audit(t.Context(), orders, 0) {
		if n++; err != nil || row.Seq != uint64(n) {
			t.Fatalf("row %d: batch %d, %v", n, row.Seq, err)
		}
	}
	if n != 2 || o.mark.Seq != 2 {
		t.Errorf("%d rows, the mark is at batch %d", n, o.mark.Seq)
	}
}
