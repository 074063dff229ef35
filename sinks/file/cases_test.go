package file

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

func TestC085OnlyStagingBeforeCommit(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	o.sink.fs.wrap = func(op, name string, do func() error) error {
		if op == "rename" && strings.Contains(name, "/log/") {
			if parts := visible(t, dir); len(parts) != 0 {
				t.Errorf("visible before the commit: %v", parts)
			}
		}
		return do()
	}
	o.flush(lines(1, "a"))
	wantConcat(t, dir, "a\n")
	o.sink.fs.wrap = nil
	t.Run("no records, no file", func(t *testing.T) {
		o.flush(lines(2))
		if o.mark.Seq != 2 || len(visible(t, dir)) != 1 {
			t.Errorf("mark %d, parts %v", o.mark.Seq, visible(t, dir))
		}
	})
}

func TestC086ExactContentAndNoStaging(t *testing.T) {
	dir := t.TempDir()
	src := newSource(9)
	o := acquire(t, dir, Options{})
	o.flush(src[0])
	o.flush(src[1], src[2], src[3])
	o.flush(src[4:]...)
	wantConcat(t, dir, src.upTo(9))
	want := []string{
		"orders+main+00000000000000000001+00000.ndjson",
		"orders+main+00000000000000000002-4+00000.ndjson",
		"orders+main+00000000000000000005-9+00000.ndjson",
	}
	if got := sortedKeys(visible(t, dir)); !slices.Equal(got, want) {
		t.Errorf("parts %v, want %v", got, want)
	}
	wantNoStaging(t, dir)
}

func TestC087ResumeFromTheMark(t *testing.T) {
	dir := t.TempDir()
	src := newSource(6)
	for n := range len(src) + 1 { // a new owner for each batch: empty, mid, mid again, end
		if err := src[:n].run(dir, Options{}, nil); err != nil {
			t.Fatal(err)
		}
		wantConcat(t, dir, src.upTo(uint64(n)))
	}
}

func TestC088CommitAfterRecovery(t *testing.T) {
	dir := t.TempDir()
	src := newSource(1)
	o := acquire(t, dir, Options{})
	stop := errors.New("crash")
	o.sink.fs.wrap = func(op, name string, do func() error) error {
		if op == "rename" && !strings.Contains(name, "/log/") {
			return stop
		}
		return do()
	}
	wantKind(t, o.try(src[0]), sinks.Ambiguous)
	wantConcat(t, dir, "")
	for range 2 { // twice is harmless
		if m := acquire(t, dir, Options{}).mark; m.Seq != 1 {
			t.Errorf("mark %+v", m)
		}
		wantConcat(t, dir, src.upTo(1))
	}
}

// C089 and C090: what is committed is neither written to again nor cut back.
func TestC089C090CommittedIsFinal(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	start := o.mark
	o.flush(lines(1, "a"))
	o.flush(lines(2, "b"))
	for _, prev := range []sinks.Mark{start, {Chain: record.Chain{1}}} {
		_, err := o.lane.Flush(t.Context(), stepAfter(orders, prev, lines(1, "a", "more")))
		wantKind(t, err, sinks.Moved)
	}
	wantConcat(t, dir, "a\nb\n")
	if m, err := o.lane.Mark(t.Context()); err != nil || m.Tip() != o.mark.Tip() {
		t.Errorf("mark %+v, %v", m, err)
	}
}

func TestC092BucketsOfTwoBatchesAreBothPublished(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{Buckets: true})
	o.sink.fs.wrap = func(op, name string, do func() error) error {
		if op == "rename" && strings.HasPrefix(name, "b/") {
			return syscall.EIO
		}
		return do()
	}
	a, b := batch{1, []string{inBucket("a", "1")}}, batch{2, []string{inBucket("b", "2")}}
	wantKind(t, o.try(a, b), sinks.Ambiguous)
	acquire(t, dir, Options{Buckets: true})
	if got := bucketsIn(t, dir); got["a"] != "1\n" || got["b"] != "2\n" {
		t.Errorf("buckets %v", got)
	}
	wantNoStaging(t, dir)
}

// C094 and C096: staging that a manifest needs is published, other staging is
// removed, what is not ours is left alone.
func TestC094C096SweepKeepsWhatIsNeeded(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	stage := filepath.Join(dir, laneDir("orders", "main"), "stage")
	for _, name := range []string{
		fmt.Sprintf("%020d-OLD-000001.part", 1),
		fmt.Sprintf("%020d-OLD-000002.spill", 1),
		fmt.Sprintf("%020d-OLD-000003.manifest", 1),
		fmt.Sprintf("%020d-NEWER-000001.part", 99),
		"notes.txt",
	} {
		if err := os.WriteFile(filepath.Join(stage, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.flush(lines(1, "a"))
	acquire(t, dir, Options{})
	want := []string{fmt.Sprintf("%020d.publishing", 2), fmt.Sprintf("%020d-NEWER-000001.part", 99), "notes.txt"}
	slices.Sort(want)
	if got := staging(t, dir); !slices.Equal(got, want) {
		t.Errorf("stage holds %v, want %v", got, want)
	}
	wantConcat(t, dir, "a\n")
}

// C098: what the mark calls written and nobody can find is not passed over.
func TestC098LostPartIsRefused(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	o.sink.fs.wrap = func(op, name string, do func() error) error {
		if op == "create" && strings.HasSuffix(name, ".publishing") {
			return syscall.EIO
		}
		return do()
	}
	wantKind(t, o.try(lines(1, "a")), sinks.Ambiguous)
	part := filepath.Join(dir, laneDir("orders", "main"), "stage", o.lane.(*lane).cur.Parts[0].Staged)
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	_, _, err := open(t, dir, Options{}).Acquire(t.Context(), orders)
	wantKind(t, err, sinks.Permanent)
	if !strings.Contains(err.Error(), "orders+main+00000000000000000001+00000.ndjson") {
		t.Errorf("the error does not name the part: %v", err)
	}
	t.Run("published and taken is no loss", func(t *testing.T) {
		dir := t.TempDir()
		acquire(t, dir, Options{}).flush(lines(1, "a"))
		take(t, dir, t.TempDir())
		if m := acquire(t, dir, Options{}).mark; m.Seq != 1 {
			t.Errorf("mark %+v", m)
		}
		wantConcat(t, dir, "")
	})
}

// C102: a reader that polls sees whole parts, in order, and never a part of a later
// step without those of the step before.
func TestC102ReaderSeesWholeParts(t *testing.T) {
	dir := scratch(t)
	src := bigSource(40, 300)
	whole := map[string]string{}
	for i, b := range src {
		whole[fmt.Sprintf("orders+main+%020d+00000.ndjson", i+1)] = strings.Join(b.recs, "")
	}
	done := make(chan error, 1)
	go func() { done <- src.run(dir, Options{}, nil) }()
	for polls := 0; ; polls++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			wantConcat(t, dir, src.upTo(40))
			t.Logf("%d polls", polls)
			return
		default:
		}
		names, _ := filepath.Glob(filepath.Join(dir, "*.ndjson"))
		for i, name := range names {
			data, err := os.ReadFile(name)
			if err != nil || string(data) != whole[filepath.Base(name)] {
				t.Fatalf("%s holds %d bytes, want %d; %v", name, len(data), len(whole[filepath.Base(name)]), err)
			}
			if filepath.Base(name) != fmt.Sprintf("orders+main+%020d+00000.ndjson", i+1) {
				t.Fatalf("part %d is %s", i+1, name)
			}
		}
	}
}

// C103 and C105: another process, on another host or without its state, finds the
// mark by sink id and lane and goes on from there.
func TestC103C105StatelessRestart(t *testing.T) {
	for _, recs := range []int{1, 5000} {
		dir := t.TempDir()
		src := bigSource(3, recs)
		acquire(t, dir, Options{}).flush(src[0])
		o := acquire(t, dir, Options{})
		if string(o.mark.Position) != "after 1" {
			t.Fatalf("position %q", o.mark.Position)
		}
		o.flush(src[1:]...)
		wantConcat(t, dir, src.upTo(3))
	}
}

// C117 and the time of an opening: 10,000 checkpoints leave a bounded directory.
func TestC117ManyCheckpointsStayBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	const n, keep = 10_000, 100
	dir := scratch(t)
	opts := Options{KeepAudit: keep}
	o := acquire(t, dir, opts)
	most := 0
	for cp := range uint64(n) {
		if cp%500 == 250 {
			o = acquire(t, dir, opts)
		}
		o.flush(lines(cp+1, "x"))
		if cp%97 == 0 {
			most = max(most, len(manifests(t, dir)))
		}
	}
	if most > foldEvery+2 || len(staging(t, dir)) > 1 {
		t.Errorf("up to %d manifests; staging %v", most, staging(t, dir))
	}
	rows := auditOf(t, o.sink, 0)
	if len(rows) < keep || len(rows) > keep+foldEvery || rows[len(rows)-1].Seq != n {
		t.Errorf("%d audit rows, the last is %d", len(rows), rows[len(rows)-1].Seq)
	}
	for i, row := range rows[1:] {
		if row.Prev != rows[i].Chain() {
			t.Fatalf("audit row %d does not continue row %d", row.Seq, rows[i].Seq)
		}
	}
	start := time.Now()
	acquire(t, dir, opts)
	t.Logf("Acquire after %d checkpoints: %v", n, time.Since(start))
}

func auditOf(t testing.TB, s *Sink, after uint64) (rows []sinks.Audit) {
	t.Helper()
	for row, err := range s.Audit(t.Context(), orders, after) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// F02: a manifest that is cut or flipped anywhere is named, and no older one is taken
// for the state of the lane.
func TestF02DamagedManifest(t *testing.T) {
	dir := scratch(t)
	acquire(t, dir, Options{}).flush(lines(1, "a"))
	names := manifests(t, dir)
	newest := names[len(names)-1]
	good, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	try := func(bad []byte) {
		t.Helper()
		if err := os.WriteFile(newest, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := open(t, dir, Options{}).Acquire(t.Context(), orders)
		wantKind(t, err, sinks.Permanent)
		if !strings.Contains(err.Error(), filepath.Base(newest)) {
			t.Fatalf("the error does not name the file: %v", err)
		}
	}
	for i := range good {
		try(good[:i])
		flipped := slices.Clone(good)
		flipped[i] ^= 1 << (i % 8)
		try(flipped)
	}
	if err := os.WriteFile(newest, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if m := acquire(t, dir, Options{}).mark; m.Seq != 1 {
		t.Errorf("mark %+v", m)
	}
}

// F03: an output that was emptied has no mark; one that lost its ledger, or that
// cannot be read, is an error. The engine treats the first as a missing ledger.
func TestF03NeverTakenForEmpty(t *testing.T) {
	newDir := func(t *testing.T) string {
		dir := t.TempDir()
		acquire(t, dir, Options{}).flush(lines(1, "a"))
		return dir
	}
	t.Run("moved", func(t *testing.T) {
		dir := newDir(t)
		if err := os.Rename(dir, dir+".moved"); err != nil {
			t.Fatal(err)
		}
		if m := acquire(t, dir, Options{}).mark; m.Seq != 0 || m.Chain != orders.Genesis() {
			t.Errorf("mark %+v", m)
		}
	})
	t.Run("ledger removed", func(t *testing.T) {
		dir := newDir(t)
		if err := os.RemoveAll(filepath.Join(dir, hidden)); err != nil {
			t.Fatal(err)
		}
		_, _, err := open(t, dir, Options{}).Acquire(t.Context(), orders)
		wantKind(t, err, sinks.Permanent)
	})
	t.Run("manifests removed under an owner", func(t *testing.T) {
		dir := t.TempDir()
		o := acquire(t, dir, Options{})
		for _, name := range manifests(t, dir) {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		wantKind(t, o.try(lines(1, "a")), sinks.Permanent)
		wantConcat(t, dir, "")
	})
	for _, errno := range []syscall.Errno{syscall.EACCES, syscall.EIO} {
		t.Run(errno.Error(), func(t *testing.T) {
			s := open(t, newDir(t), Options{})
			s.fs.wrap = func(op, name string, do func() error) error {
				if op == "list" {
					return &os.PathError{Op: op, Path: name, Err: errno}
				}
				return do()
			}
			if _, m, err := s.Acquire(t.Context(), orders); !errors.Is(err, errno) {
				t.Errorf("mark %+v, error %v", m, err)
			}
			if marks, err := s.Marks(t.Context(), "orders"); !errors.Is(err, errno) {
				t.Errorf("marks %+v, error %v", marks, err)
			}
		})
	}
}

// F05: the batches before the mark stay where they are, whatever is cleaned up.
func TestF05CleaningKeepsParts(t *testing.T) {
	dir := scratch(t)
	src := newSource(2*foldEvery + 3)
	if err := src.run(dir, Options{KeepAudit: 2}, nil); err != nil {
		t.Fatal(err)
	}
	acquire(t, dir, Options{KeepAudit: 2})
	wantConcat(t, dir, src.upTo(uint64(len(src))))
}

// F06: a bucket that was idle, under a new owner too, gets names that nobody had.
func TestF06IdleBucketGetsNewNames(t *testing.T) {
	dir := t.TempDir()
	opts := Options{Buckets: true, MaxPartBytes: 2}
	acquire(t, dir, opts).flush(batch{1, []string{inBucket("a", "1"), inBucket("a", "2")}})
	for cp := uint64(2); cp < 5; cp++ {
		acquire(t, dir, opts).flush(batch{cp, []string{inBucket("b", "x")}})
	}
	acquire(t, dir, opts).flush(batch{5, []string{inBucket("a", "3"), inBucket("a", "4")}})
	if got := bucketsIn(t, dir)["a"]; got != "1\n2\n3\n4\n" {
		t.Errorf("bucket a holds %q", got)
	}
	if n := len(visible(t, dir)); n != 7 {
		t.Errorf("%d parts, want 7", n)
	}
}

// F14: small checkpoints that come in one step make one part per bucket.
func TestF14SmallCheckpointsShareParts(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{Buckets: true})
	var many []batch
	for cp := range uint64(60) {
		many = append(many, batch{cp + 1, []string{inBucket("a", "1"), inBucket("b", "2")}})
	}
	o.flush(many...)
	if n := len(visible(t, dir)); n != 2 {
		t.Errorf("%d parts, want 2", n)
	}
	if rows := auditOf(t, o.sink, 0); len(rows) != 60 {
		t.Errorf("%d audit rows, want 60", len(rows))
	}
}

// F20: a replay of a checkpoint with other records is refused by the tip, and by
// another lane that has the name by the name.
func TestF20ReplayWithOtherContents(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	genesis := o.mark
	o.flush(lines(1, "first"))
	_, err := o.lane.Flush(t.Context(), stepAfter(orders, genesis, lines(1, "second")))
	wantKind(t, err, sinks.Moved)
	t.Run("foreign file", func(t *testing.T) {
		name := "orders+main+00000000000000000002+00000.ndjson"
		if err := os.WriteFile(filepath.Join(dir, name), []byte("foreign\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := o.try(lines(2, "second"))
		wantKind(t, err, sinks.Permanent)
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name the file: %v", err)
		}
		wantConcat(t, dir, "first\nforeign\n")
		if m, err := o.lane.Mark(t.Context()); err != nil || m.Seq != 1 {
			t.Errorf("mark %+v, %v", m, err)
		}
	})
	t.Run("foreign file after the commit", func(t *testing.T) {
		dir := t.TempDir()
		o := acquire(t, dir, Options{})
		name := filepath.Join(dir, "orders+main+00000000000000000001+00000.ndjson")
		o.sink.fs.wrap = func(op, to string, do func() error) error {
			if op == "rename" && strings.HasSuffix(to, ".ndjson") {
				if err := os.WriteFile(name, []byte("foreign\n"), 0o600); err != nil {
					t.Error(err)
				}
			}
			return do()
		}
		wantKind(t, o.try(lines(1, "mine")), sinks.Permanent)
		_, err := o.lane.Mark(t.Context())
		wantKind(t, err, sinks.Permanent)
		wantConcat(t, dir, "foreign\n")
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		acquire(t, dir, Options{}).flush(lines(2, "next"))
		wantConcat(t, dir, "mine\nnext\n")
	})
}

func TestAcquireFencesInOneProcess(t *testing.T) {
	dir := t.TempDir()
	old := acquire(t, dir, Options{})
	old.flush(lines(1, "a"))
	o := acquire(t, dir, Options{})
	if o.mark.Fence <= old.mark.Fence {
		t.Errorf("fence %d after %d", o.mark.Fence, old.mark.Fence)
	}
	wantKind(t, old.try(lines(2, "old")), sinks.Fenced)
	_, err := old.lane.Mark(t.Context())
	wantKind(t, err, sinks.Fenced)
	o.flush(lines(2, "b"))
	wantConcat(t, dir, "a\nb\n")
}

// Many owners fight for one lane at once. Each step that says it worked is in the
// output once.
func TestManyOwnersAtOnce(t *testing.T) {
	dir := scratch(t)
	src := newSource(60)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for {
				err := src.attempt(dir, Options{}, nil)
				switch sinks.KindOf(err) {
				case 0:
					return
				case sinks.Fenced, sinks.Moved, sinks.Transient:
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantConcat(t, dir, src.upTo(60))
	wantNoStaging(t, dir)
}

// Lanes and sink ids share a directory and a Sink, concurrently.
func TestManyLanesAtOnce(t *testing.T) {
	dir := scratch(t)
	s := open(t, dir, Options{Buckets: true})
	want := map[string]string{}
	var wg sync.WaitGroup
	for _, sink := range []string{"s", "s-a"} {
		for _, name := range []string{"a-b", "b", "0", "10"} {
			id := sinks.LaneID{Sink: sink, Lane: name}
			for cp := range 10 {
				want["x/"+fmt.Sprintf("%s+%s+%020d+00000.ndjson", sink, name, cp+1)] = fmt.Sprintf("%s %d\n", id, cp)
			}
			wg.Go(func() {
				l, m, err := s.Acquire(t.Context(), id)
				if err != nil {
					t.Error(err)
					return
				}
				for cp := range 10 {
					step := stepAfter(id, m, batch{uint64(cp + 1), []string{inBucket("x", fmt.Sprintf("%s %d", id, cp))}})
					if _, err := l.Flush(t.Context(), step); err != nil {
						t.Error(err)
						return
					}
					m = step.Next
				}
			})
		}
	}
	wg.Wait()
	if got := visible(t, dir); !maps.Equal(got, want) {
		t.Errorf("%d parts, want %d: %v", len(got), len(want), got)
	}
	marks, err := s.Marks(t.Context(), "s")
	if err != nil || len(marks) != 4 || marks[0].Lane != "0" || marks[3].Seq != 10 {
		t.Errorf("marks %+v, %v", marks, err)
	}
}

func TestLogThatCannotBeReadStopsTheFlush(t *testing.T) {
	for _, opts := range []Options{{}, {Buckets: true}} {
		dir := t.TempDir()
		o := acquire(t, dir, opts)
		damage := errors.New("generation 3 batch 7 block 2: corrupt")
		step := stepAfter(orders, o.mark, lines(1, "a"))
		step.Runs = func(yield func(sinks.Run, error) bool) {
			_ = yield(sinks.Run{Block: record.BlockOf([]byte(inBucket("b", "a")))}, nil) && yield(sinks.Run{}, damage)
		}
		if _, err := o.lane.Flush(t.Context(), step); !errors.Is(err, damage) {
			t.Errorf("error %v", err)
		}
		wantConcat(t, dir, "")
		if names := staging(t, dir); len(names) != 0 {
			t.Errorf("staging %v", names)
		}
	}
}

func TestCancelledBeforeTheCommit(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	o.sink.fs.wrap = func(op, _ string, do func() error) error {
		if op == "sync" {
			cancel()
		}
		return do()
	}
	_, err := o.lane.Flush(ctx, stepAfter(orders, o.mark, lines(1, "a")))
	wantKind(t, err, sinks.Cancelled)
	wantConcat(t, dir, "")
	o.sink.fs.wrap = nil
	o.flush(lines(1, "a"))
	wantConcat(t, dir, "a\n")
}

// A log that yields fewer records than the step has, without an error, is found out.
func TestMissingRecordsStopTheFlush(t *testing.T) {
	for _, opts := range []Options{{}, {Buckets: true}} {
		dir := t.TempDir()
		o := acquire(t, dir, opts)
		step := stepAfter(orders, o.mark, batch{1, []string{inBucket("b", "1"), inBucket("b", "2")}})
		step.Records++
		_, err := o.lane.Flush(t.Context(), step)
		wantKind(t, err, sinks.Permanent)
		if len(visible(t, dir)) != 0 || len(staging(t, dir)) != 0 {
			t.Errorf("parts %v, staging %v", visible(t, dir), staging(t, dir))
		}
	}
}
