package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/wal"
)

// TestTwoSourcesWithoutState: each source has lanes of its own, so that batches
// can be repeated after a loss of the log, whatever the timing of the sources was.
func TestTwoSourcesWithoutState(t *testing.T) {
	a, b := numbers("a", 2500, 9), numbers("b", 1800, 5)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			store := newFakeStore()
			for cycle := range 12 {
				p := statelessPipeline(store, nil, nil, []int{1, 3, 2}[cycle%3])
				p.Sources = []Input{input("a", a), input("b", b)}
				p.Stages = []Stage{{Name: "odd twice, third not", Func: oddTwice}}
				if cycle < 11 {
					i := rng.IntN(2)
					p.Sources[i].Source = &brokenSource{Source: p.Sources[i].Source, left: rng.IntN(700 + 300*cycle)}
				}
				if _, err := p.Run(t.Context()); err != nil && !errors.Is(err, errCrash) {
					t.Fatalf("cycle %d: %v", cycle, err)
				}
				if rng.IntN(2) == 0 {
					store.wipe()
				}
			}
			var want []string
			for _, r := range slices.Concat(a, b) {
				if err := oddTwice([]byte(r), func(rec []byte) error { want = append(want, string(rec)); return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if got := store.all(); !slices.Equal(sorted(got), sorted(want)) {
				t.Fatalf("%d records of %d: %s", len(got), len(want), diff(got, want))
			}
		})
	}
}

// oddTwice emits records with an odd last digit twice, and drops those with a 4.
func oddTwice(rec []byte, emit Emit) error {
	n := field(rec, "n")
	digit := n[len(n)-1]
	if digit == '4' {
		return nil
	}
	if err := emit(rec); err != nil || digit%2 == 0 {
		return err
	}
	return emit(append(bytes.Clone(rec), " again"...))
}

// TestC067LanesChange: what the old lanes have is drained before the new ones get
// a record, so that a key that moves keeps its order.
func TestC067LanesChange(t *testing.T) {
	store, recs := newFakeStore(), numbers("a", 600, 5)
	store.down = true
	if _, err := statelessPipeline(store, nil, recs[:300], 2).Run(t.Context()); err == nil {
		t.Fatal("drained a store that is down")
	}
	sum, err := statelessPipeline(store, nil, recs, 3).Run(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "drain before the lanes change: output out: store is down") || sum.Records != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
	if sum, err := statelessPipeline(store, nil, recs, 2).Run(t.Context()); sum.Records != 300 || err == nil {
		t.Errorf("with the same lanes: %+v, %v", sum, err)
	}
	store.down = false
	if _, err := statelessPipeline(store, nil, recs, 3).Run(t.Context()); err != nil || !slices.Equal(sorted(store.all()), sorted(recs)) {
		t.Errorf("%d records, %v", len(store.all()), err)
	}
}

// TestOpenBytes: so many bytes demand a checkpoint, without interval or number.
func TestOpenBytes(t *testing.T) {
	const limit = 50_000
	store, recs := newFakeStore(), numbers("a", 20000, 3)
	p := statelessPipeline(store, nil, recs, 2)
	p.Checkpoints, p.OpenBytes = checkpoint.Options{}, limit
	completed := make(chan struct{}, len(recs))
	p.Sources[0].Source = &pacedSource{Source: p.Sources[0].Source, limit: 2 * limit, completed: completed}
	open := p.Outputs[0].Open
	p.Outputs[0].Open = func(ctx context.Context, r Restored) (Output, error) {
		out, err := open(ctx, r)
		return &tellingOutput{out, completed}, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sum, err := p.Run(ctx)
	if err != nil || sum.Checkpoints < 3 {
		t.Errorf("%+v, %v", sum, err)
	}
	if got := store.all(); !slices.Equal(sorted(got), sorted(recs)) {
		t.Errorf("%d records", len(got))
	}
}

// A pacedSource waits for a completed checkpoint whenever it has given limit bytes.
type pacedSource struct {
	Source
	limit, given int
	completed    <-chan struct{}
}

func (s *pacedSource) Read(ctx context.Context, limit int) ([][]byte, error) {
	if s.given >= s.limit {
		select {
		case <-s.completed:
			s.given = 0
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	recs, err := s.Source.Read(ctx, min(limit, 100))
	for _, r := range recs {
		s.given += len(r)
	}
	return recs, err
}

// A tellingOutput says when a checkpoint is complete.
type tellingOutput struct {
	Output
	completed chan<- struct{}
}

func (o *tellingOutput) Complete(ctx context.Context, id uint64) error {
	err := o.Output.Complete(ctx, id)
	o.completed <- struct{}{}
	return err
}

// TestEncode: outputs get the encoder's bytes, each its own.
func TestEncode(t *testing.T) {
	one, two := newFakeStore(), newFakeStore()
	p := statelessPipeline(one, &checkpoint.Memory{}, []string{"1", "22"}, 1)
	p.Outputs = append(p.Outputs, two.sink("two"))
	p.Outputs[1].Encode = func(dst, rec []byte) ([]byte, error) { return append(append(dst, rec...), '!'), nil }
	sum, err := p.Run(t.Context())
	if err != nil || sum.Emitted != 4 || !slices.Equal(one.all(), []string{"1", "22"}) || !slices.Equal(two.all(), []string{"1!", "22!"}) {
		t.Errorf("%+v, %v, %q, %q", sum, err, one.all(), two.all())
	}
}

// TestOutputWithoutMemory: without Resumer the storage says where to go on.
func TestOutputWithoutMemory(t *testing.T) {
	recs := numbers("a", 1000, 3)
	storage := &checkpoint.Memory{}
	total := 0
	for _, n := range []int{400, 400, 1000} {
		out := &countingOutput{}
		p := &Pipeline{
			Sources: []Input{input("a", recs[:n])}, Storage: storage, Logger: quiet(),
			Outputs: []Sink{{Name: "out", Open: func(context.Context, Restored) (Output, error) { return out, nil }}},
		}
		if _, err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, l := range out.lanes {
			total += l.n
		}
	}
	if total != 1000 {
		t.Errorf("%d records", total)
	}
}

// TestRouteByKey: a function may route, and its name is held against positions.
func TestRouteByKey(t *testing.T) {
	recs := numbers("a", 900, 30)
	second := func(rec []byte) []byte { return field(rec, "key")[1:] }
	store := newFakeStore()
	p := statelessPipeline(store, nil, recs, 3)
	p.Route = ByKey("second", second)
	if _, err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	lane := map[string]string{}
	for name, l := range store.lanes {
		for _, r := range l.recs {
			key := string(second([]byte(r)))
			if was, ok := lane[key]; ok && was != name {
				t.Fatalf("key %s in lanes %s and %s", key, was, name)
			}
			lane[key] = name
		}
	}
	store.wipe()
	last := store.lanes["001"]
	last.audit, last.recs = last.audit[:2], nil
	for _, b := range last.audit {
		last.recs = append(last.recs, b.recs...)
	}
	p = statelessPipeline(store, nil, recs, 3)
	if _, err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `made with the route "key second"`) {
		t.Errorf("repeated with an unknown route: %v", err)
	}
	p = statelessPipeline(store, nil, recs, 3)
	p.Route = ByKey("second", second)
	if sum, err := p.Run(t.Context()); err != nil || sum.Repeated == 0 || !slices.Equal(sorted(store.all()), sorted(recs)) {
		t.Errorf("%+v, %v", sum, err)
	}
}

// TestDamagedCheckpointIsSaid: the newest checkpoint is damaged, and the outputs
// are further than the one before: refused. Without outputs that are further it
// is used, and that is logged.
func TestDamagedCheckpointIsSaid(t *testing.T) {
	recs := numbers("a", 500, 5)
	path := t.TempDir()
	storage, err := checkpoint.OpenDir(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	store := newFakeStore()
	store.failDone = func(n uint64) error {
		if n == 5 {
			return errNotice
		}
		return nil
	}
	if _, err := countPipeline(store, storage, recs).Run(t.Context()); !errors.Is(err, errNotice) {
		t.Fatal(err)
	}
	store.failDone = nil
	names, _ := filepath.Glob(filepath.Join(path, "checkpoint-*5"))
	if err := os.Truncate(names[0], 40); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	p := countPipeline(store, storage, recs)
	p.Logger = slog.New(slog.NewTextHandler(&log, nil))
	sum, err := p.Run(t.Context())
	if err != nil || sum.Skipped != 400 || !strings.Contains(log.String(), "checkpoint damaged") || !strings.Contains(log.String(), names[0]) {
		t.Errorf("%+v, %v, log: %s", sum, err, log.String())
	}
	checkCounts(t, sortedCounts(store.all()), recs)
	if err := os.Truncate(names[0], 40); err != nil {
		t.Fatal(err)
	}
	if _, err := countPipeline(store, storage, recs).Run(t.Context()); !errors.Is(err, committer.ErrStateBehind) {
		t.Error(err)
	}
}

// TestLandStateful runs a running count over a real log and the memory sink; runs
// end at a random record, checkpoints in a directory.
func TestLandStateful(t *testing.T) {
	a, b := numbers("a", 1500, 11), numbers("b", 900, 7)
	rng := rand.New(rand.NewPCG(7, 7))
	dir, store := t.TempDir(), memory.NewStore()
	for cycle := 0; ; cycle++ {
		storage, err := checkpoint.OpenDir(filepath.Join(dir, "checkpoints"), 2)
		if err != nil {
			t.Fatal(err)
		}
		left := rng.IntN(400)
		if cycle >= 15 {
			left = 1 << 30
		}
		p := &Pipeline{
			Sources: []Input{input("a", a), {Name: "b", Source: &brokenSource{Source: input("b", b).Source, left: left}}},
			Stages:  []Stage{Keyed("count", MemoryState{}, count)}, Route: ByField("key"), Lanes: []int{1, 4, 2}[cycle%3],
			Outputs: []Sink{Walsink("out", memory.Open(store, memory.Options{}), options(filepath.Join(dir, "log"), "job"), nil)},
			Storage: storage, Require: ExactlyOnce, Logger: quiet(),
			Checkpoints: checkpoint.Options{Records: uint64(50 + rng.IntN(200))},
		}
		_, err = p.Run(t.Context())
		if err == nil {
			break
		}
		if !errors.Is(err, errCrash) {
			t.Fatalf("cycle %d: %v", cycle, err)
		}
	}
	checkCounts(t, sortedCounts(landed(t, store)), a, b)
	if err := os.RemoveAll(filepath.Join(dir, "checkpoints")); err != nil {
		t.Fatal(err)
	}
	empty, err := checkpoint.OpenDir(filepath.Join(dir, "checkpoints"), 2)
	if err != nil {
		t.Fatal(err)
	}
	p := countPipeline(nil, empty, a)
	p.Sources = append(p.Sources, input("b", b))
	p.Outputs = []Sink{Walsink("out", memory.Open(store, memory.Options{}), options(filepath.Join(dir, "log"), "job"), nil)}
	if _, err := p.Run(t.Context()); !errors.Is(err, committer.ErrStateBehind) {
		t.Errorf("checkpoints deleted: %v", err)
	}
}

// TestLandFull: a batch that the log can never hold ends the run with the log's
// error, which names the stage; with OpenBytes the same input goes through.
func TestLandFull(t *testing.T) {
	big := make([]string, 400)
	for i := range big {
		big[i] = fmt.Sprintf(`{"n":%d,"x":%q}`, i, strings.Repeat("x", 64<<10))
	}
	run := func(openBytes uint64) (*memory.Store, error) {
		store := memory.NewStore()
		opts := options(t.TempDir(), "job")
		opts.Log.MaxBytes = 12 << 20
		p := &Pipeline{
			Sources: []Input{input("a", big)}, OpenBytes: openBytes, Logger: quiet(),
			Outputs: []Sink{Walsink("out", memory.Open(store, memory.Options{}), opts, nil)},
		}
		_, err := p.Run(t.Context())
		return store, err
	}
	if _, err := run(0); !errors.Is(err, wal.ErrFull) || !strings.Contains(err.Error(), "output out") {
		t.Errorf("without a limit: %v", err)
	}
	if store, err := run(2 << 20); err != nil || len(landed(t, store)) != len(big) {
		t.Errorf("with a limit: %v", err)
	}
}

// TestWalsinkOpenFails: the error names the output.
func TestWalsinkOpenFails(t *testing.T) {
	p := statelessPipeline(newFakeStore(), nil, nil, 1)
	p.Outputs = []Sink{Walsink("out", memory.Open(memory.NewStore(), memory.Options{}), walsink.Options{Dir: t.TempDir(), ID: "bad id"}, nil)}
	if _, err := p.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "open output out: ") {
		t.Error(err)
	}
}
