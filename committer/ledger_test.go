package committer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A listWriter is a store without an atomic step: a list.
type listWriter struct {
	mu   sync.Mutex
	info sinks.Info
	recs []string
	dead []string
	fail func(n int) error // before write n
	n    int
}

func (w *listWriter) Info() sinks.Info {
	if w.info.Format == "" {
		w.info.Format = "bytes"
	}
	return w.info
}

func (w *listWriter) Write(_ context.Context, step *sinks.Step) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n++; w.fail != nil {
		if err := w.fail(w.n); err != nil {
			return err
		}
	}
	for run, err := range step.Runs {
		if err != nil {
			return err
		}
		for _, rec := range run.Block.All() {
			w.recs = append(w.recs, string(rec))
		}
	}
	for _, d := range step.Dead {
		w.dead = append(w.dead, string(d.Record))
	}
	return nil
}

// A breakingLedger fails Swap number n, before or after it happens.
type breakingLedger struct {
	committer.Ledger
	at, n int
	after bool
}

func (l *breakingLedger) Swap(ctx context.Context, id sinks.LaneID, prev, next sinks.Mark) error {
	l.n++
	if l.n == l.at && !l.after {
		return kind(sinks.Transient)
	}
	err := l.Ledger.Swap(ctx, id, prev, next)
	if l.n == l.at {
		return kind(sinks.Ambiguous)
	}
	return err
}

func ledgers(t *testing.T, f func(t *testing.T, l committer.Ledger)) {
	t.Run("memory", func(t *testing.T) { f(t, committer.NewMemoryLedger()) })
	t.Run("file", func(t *testing.T) { f(t, fileLedger(t, t.TempDir())) })
}

func fileLedger(t *testing.T, dir string) committer.Ledger {
	l, err := committer.NewFileLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWithLedger(t *testing.T) {
	ledgers(t, func(t *testing.T, ledger committer.Ledger) {
		for _, after := range []bool{false, true} {
			for at := range 5 {
				id := fmt.Sprintf("sink-%v-%d", after, at)
				w := &listWriter{info: sinks.Info{StepBytes: 16, Chunked: true}}
				log := newLog()
				c, err := committer.New(committer.WithLedger(w, &breakingLedger{Ledger: ledger, at: at, after: after}), id, log,
					committer.Options{RetryMin: 1, RetryMax: 1})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Open(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				log.add(id+"/a", 1, recs(1, 10)...)
				if err := errors.Join(c.Drain(t.Context()), c.Close()); err != nil {
					t.Fatal(err)
				}
				// The process that wrote a chunk knows it, so not even that one repeats.
				if !slices.Equal(w.recs, recs(1, 10)) {
					t.Fatalf("swap %d, after %v: %q", at, after, w.recs)
				}
			}
		}
	})
}

// A crash between the values and the mark repeats at most one chunk.
func TestWithLedgerCrash(t *testing.T) {
	ledgers(t, func(t *testing.T, ledger committer.Ledger) {
		w := &listWriter{info: sinks.Info{StepBytes: 16, Chunked: true}}
		log := newLog()
		run := func(l committer.Ledger, attempts int) error {
			c, err := committer.New(committer.WithLedger(w, l), sinkID, log, committer.Options{MaxAttempts: attempts, RetryMin: 1, RetryMax: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Open(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			if len(log.Batches(key)) == 0 {
				log.add(key, 1, recs(1, 10)...)
			}
			return c.Drain(t.Context())
		}
		if err := run(&breakingLedger{Ledger: ledger, at: 2}, 1); err == nil {
			t.Fatal("the second chunk had a mark")
		}
		if err := run(ledger, 0); err != nil {
			t.Fatal(err)
		}
		if want := slices.Concat(recs(1, 8), recs(5, 10)); !slices.Equal(w.recs, want) {
			t.Fatalf("%q, want %q", w.recs, want)
		}
	})
}

func TestWithLedgerDeclares(t *testing.T) {
	for in, want := range map[sinks.Guarantee]sinks.Guarantee{
		0: sinks.AtLeastOnce, sinks.AtLeastOnce: sinks.AtLeastOnce, sinks.Idempotent: sinks.Idempotent, sinks.ExactlyOnce: sinks.Idempotent,
	} {
		w := &listWriter{info: sinks.Info{Guarantee: in}}
		if got := committer.WithLedger(w, committer.NewMemoryLedger()).Info().Guarantee; got != want {
			t.Errorf("%v is declared as %v, want %v", in, got, want)
		}
	}
}

func TestWithLedgerErrors(t *testing.T) {
	w := &listWriter{}
	sink := committer.WithLedger(w, committer.NewMemoryLedger())
	old, m, err := sink.Acquire(t.Context(), laneA)
	if err != nil {
		t.Fatal(err)
	}
	step := overStep(m, "x")
	w.fail = func(int) error { return kind(sinks.Permanent) }
	if _, err := old.Flush(t.Context(), step); sinks.KindOf(err) != sinks.Permanent {
		t.Fatal(err)
	}
	w.fail = nil
	moved := *step
	moved.Prev.Chain = record.Chain{1}
	if _, err := old.Flush(t.Context(), &moved); sinks.KindOf(err) != sinks.Moved {
		t.Fatal(err)
	}
	if _, _, err := sink.Acquire(t.Context(), laneA); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Flush(t.Context(), step); sinks.KindOf(err) != sinks.Fenced {
		t.Fatal(err)
	}
	if _, err := old.Mark(t.Context()); sinks.KindOf(err) != sinks.Fenced {
		t.Fatal(err)
	}
	if len(w.recs) != 0 {
		t.Fatalf("written: %q", w.recs)
	}
	if err := errors.Join(old.Close(), sink.Close()); err != nil {
		t.Fatal(err)
	}
}

// overStep is a step of one batch on a mark.
func overStep(m sinks.Mark, recs ...string) *sinks.Step {
	b := build(m.Head(), m.Checkpoint+1, 10, recs...)
	next := m
	h := b.Head()
	next.Seq, next.Chain, next.Checkpoint, next.Position = h.Seq, h.Chain, h.Checkpoint, h.Position
	next.Records += b.Records
	blocks := make([][]byte, len(recs))
	for i, r := range recs {
		blocks[i] = []byte(r)
	}
	return &sinks.Step{
		ID: laneA, Prev: m, Next: next, Batches: []sinks.Audit{{Batch: b.Batch}}, Records: int64(b.Records), Bytes: int64(b.Bytes),
		Runs: func(yield func(sinks.Run, error) bool) { yield(sinks.Run{Block: record.BlockOf(blocks...)}, nil) },
	}
}

// The rules of Ledger, for each.
func TestLedgerRules(t *testing.T) {
	ledgers(t, func(t *testing.T, l committer.Ledger) {
		ctx := t.Context()
		m, err := l.Load(ctx, laneA)
		if err != nil || m.Fence != 0 || m.Tip() != laneA.Genesis() {
			t.Fatalf("%+v, %v", m, err)
		}
		if m, err = l.Raise(ctx, laneA); err != nil || m.Fence != 1 || m.Tip() != laneA.Genesis() {
			t.Fatalf("%+v, %v", m, err)
		}
		next := overStep(m, "x").Next
		if err := l.Swap(ctx, laneA, m, next); err != nil {
			t.Fatal(err)
		}
		if err := l.Swap(ctx, laneA, m, next); sinks.KindOf(err) != sinks.Moved {
			t.Fatal(err)
		}
		if got, err := l.Load(ctx, laneA); err != nil || got.Tip() != next.Tip() || string(got.Position) != "p1" {
			t.Fatalf("%+v, %v", got, err)
		}
		if got, err := l.Raise(ctx, laneA); err != nil || got.Fence != 2 || got.Tip() != next.Tip() {
			t.Fatalf("%+v, %v", got, err)
		}
		if err := l.Swap(ctx, laneA, next, next); sinks.KindOf(err) != sinks.Fenced {
			t.Fatal(err)
		}
		if err := l.Swap(ctx, laneA, m, next); sinks.KindOf(err) != sinks.Fenced {
			t.Fatal("both differ:", err)
		}
		if other, err := l.Load(ctx, sinks.LaneID{Sink: sinkID, Lane: "b"}); err != nil || other.Seq != 0 {
			t.Fatalf("%+v, %v", other, err)
		}
	})
}

// Many owners count one mark up. No step is lost or done twice.
func TestLedgerIsACompareAndSet(t *testing.T) {
	dir := t.TempDir()
	ledgers := []committer.Ledger{fileLedger(t, dir), fileLedger(t, dir), fileLedger(t, dir), fileLedger(t, dir)}
	if _, err := ledgers[0].Raise(t.Context(), laneA); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	done, unknown := 0, 0
	for _, l := range ledgers {
		wg.Go(func() {
			for range 50 {
				m, err := l.Load(t.Context(), laneA)
				if err != nil {
					t.Error(err)
					return
				}
				next := m
				next.Seq, next.Chain = m.Seq+1, record.Chain{byte(m.Seq + 1)}
				err = l.Swap(t.Context(), laneA, m, next)
				mu.Lock()
				switch sinks.KindOf(err) {
				case 0:
					done++
				case sinks.Ambiguous:
					unknown++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	m, err := ledgers[0].Load(t.Context(), laneA)
	if err != nil || m.Seq < uint64(done) || m.Seq > uint64(done+unknown) || done == 0 {
		t.Fatalf("mark %d after %d changes and %d unknown ones, %v", m.Seq, done, unknown, err)
	}
	if n := len(markFiles(t, dir)); n > 2+len(ledgers) {
		t.Fatalf("%d files", n)
	}
}

func markFiles(t *testing.T, dir string) []string {
	names, err := filepath.Glob(filepath.Join(dir, sinkID, "a", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A frozen owner whose number was taken and removed meanwhile does not succeed.
func TestFileLedgerFrozenOwner(t *testing.T) {
	dir := t.TempDir()
	l := fileLedger(t, dir)
	m, err := l.Raise(t.Context(), laneA) // file 1
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(markFiles(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // files 2 to 6, the first are pruned
		next := m
		next.Seq, next.Chain = uint64(i+1), record.Chain{byte(i + 1)}
		if err := l.Swap(t.Context(), laneA, m, next); err != nil {
			t.Fatal(err)
		}
		m = next
	}
	if n := len(markFiles(t, dir)); n != 2 {
		t.Fatalf("%d files", n)
	}
	// It created file 2 on what it had read before.
	if err := os.WriteFile(filepath.Join(dir, sinkID, "a", fmt.Sprintf("%020d.json", 2)), first, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Load(t.Context(), laneA); err != nil || got.Seq != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
}

// Every cut and every flipped bit of the mark file is found.
func TestFileLedgerDamage(t *testing.T) {
	dir := t.TempDir()
	l := fileLedger(t, dir)
	m, err := l.Raise(t.Context(), laneA)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Swap(t.Context(), laneA, m, overStep(m, "x").Next); err != nil {
		t.Fatal(err)
	}
	name := markFiles(t, dir)[1]
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := l.Load(t.Context(), laneA)
		if !errors.Is(err, record.ErrCorrupt) || sinks.KindOf(err) != sinks.Permanent || !strings.Contains(err.Error(), name) {
			t.Fatalf("%q: %v", data, err)
		}
	}
	for n := range good {
		refuse(good[:n])
	}
	for n := range good {
		bad := slices.Clone(good)
		bad[n] ^= 4
		refuse(bad)
	}
}

func TestFileLedgerModesAndNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "ledger")
	l := fileLedger(t, dir)
	if _, err := l.Raise(t.Context(), laneA); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, filepath.Join(dir, sinkID), markFiles(t, dir)[0]} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	for _, id := range []sinks.LaneID{{Sink: "..", Lane: "a"}, {Sink: "x", Lane: "../y"}, {Sink: "", Lane: "a"}} {
		if _, err := l.Raise(t.Context(), id); sinks.KindOf(err) != sinks.Permanent {
			t.Errorf("%v: %v", id, err)
		}
	}
	if _, err := committer.NewFileLedger("/dev/null/x"); err == nil {
		t.Error("no directory, no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Raise(ctx, laneA); sinks.KindOf(err) != sinks.Cancelled {
		t.Error(err)
	}
}

// Leftovers of crashes and files of others do not matter.
func TestFileLedgerLeftovers(t *testing.T) {
	dir := t.TempDir()
	l := fileLedger(t, dir)
	if _, err := l.Raise(t.Context(), laneA); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".new-123", "99.json", "notes.txt", "x.json"} {
		if err := os.WriteFile(filepath.Join(dir, sinkID, "a", name), []byte("?"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := l.Raise(t.Context(), laneA); err != nil || m.Fence != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
}
