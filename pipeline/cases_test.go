package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/sinks"
)

var errNotice = errors.New("notice lost")

// Test notices that get lost, and checkpoints that are aborted, over one source
// with a checkpoint each 100 records.
func TestNotices(t *testing.T) {
	recs := numbers("a", 500, 3)
	t.Run("C016 C023 lost notice", func(t *testing.T) {
		store := newFakeStore()
		store.failDone = func(n uint64) error {
			if n == 2 {
				return errNotice
			}
			return nil
		}
		sum, err := statelessPipeline(store, nil, recs, 1).Run(t.Context())
		if err != nil || sum.Checkpoints != 5 || !slices.Equal(store.all(), recs) {
			t.Errorf("%+v, %v", sum, err)
		}
		var ids []uint64
		for _, b := range store.lanes["000"].audit {
			ids = append(ids, b.n)
		}
		if !slices.Equal(ids, []uint64{1, 2, 3, 4, 5}) {
			t.Errorf("published in the order %v", ids)
		}
	})
	t.Run("C021 C022 aborted", func(t *testing.T) {
		store := newFakeStore()
		store.failSeal = func(n uint64) error {
			if n == 2 || n == 3 {
				return errors.New("no space")
			}
			return nil
		}
		sum, err := statelessPipeline(store, nil, recs, 1).Run(t.Context())
		if err != nil || sum.Aborted != 2 || !slices.Equal(store.all(), recs) {
			t.Errorf("%+v, %v", sum, err)
		}
		if store.count("abort 2") != 1 || store.count("complete 2") != 0 {
			t.Errorf("calls: %v", store.calls)
		}
	})
	t.Run("too many aborts", func(t *testing.T) {
		store := newFakeStore()
		full := errors.New("no space")
		store.failSeal = func(uint64) error { return full }
		p := statelessPipeline(store, nil, recs, 1)
		p.Checkpoints.MaxFailures = 3
		sum, err := p.Run(t.Context())
		if !errors.Is(err, full) || sum.Aborted != 3 || !strings.Contains(err.Error(), "number 3 in a row") {
			t.Errorf("%+v, %v", sum, err)
		}
	})
	t.Run("C024 the last notice fails", func(t *testing.T) {
		store, storage := newFakeStore(), &checkpoint.Memory{}
		store.failDone = func(uint64) error { return errNotice }
		p := countPipeline(store, storage, recs)
		if _, err := p.Run(t.Context()); !errors.Is(err, errNotice) {
			t.Fatal(err)
		}
		if snap, _, _ := storage.Load(t.Context()); snap.ID != 5 || len(store.all()) != 0 {
			t.Fatalf("checkpoint %d, %d records", snap.ID, len(store.all()))
		}
		store.failDone = nil
		sum, err := countPipeline(store, storage, recs).Run(t.Context())
		if err != nil || sum.Records != 0 {
			t.Errorf("%+v, %v", sum, err)
		}
		checkCounts(t, sortedCounts(store.all()), recs)
	})
}

// Starts from what an earlier one has left, over the same source.
func TestStartsAgain(t *testing.T) {
	recs := numbers("a", 500, 3)
	t.Run("C052 restored id", func(t *testing.T) {
		store, storage := newFakeStore(), &checkpoint.Memory{}
		for range 2 {
			if _, err := countPipeline(store, storage, recs).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if store.count("open restored=0") != 1 || store.count("open restored=5") != 1 || store.count("complete 5") != 2 {
			t.Errorf("calls: %v", store.calls)
		}
	})
	t.Run("C050 restored twice", func(t *testing.T) {
		store, storage := newFakeStore(), &checkpoint.Memory{}
		for range 3 {
			if _, err := countPipeline(store, storage, recs[:300]).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		checkCounts(t, sortedCounts(store.all()), recs[:300])
	})
	t.Run("C007 C077 nothing new", func(t *testing.T) {
		store := newFakeStore()
		for range 2 {
			if _, err := statelessPipeline(store, nil, recs, 1).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := store.count("seal"); n != 5 {
			t.Errorf("%d seals", n)
		}
	})
}

// A totals transform counts, and emits the total at the end of the input.
type totals struct{ n int }

func (s *totals) Process([]byte, Emit) error { s.n++; return nil }
func (s *totals) Finish(emit Emit) error     { return emit(fmt.Appendf(nil, `{"total":%d}`, s.n)) }
func (s *totals) Snapshot(context.Context, uint64) ([]byte, error) {
	return fmt.Append(nil, s.n), nil
}

func (s *totals) Restore(_ context.Context, _ uint64, parts [][]byte) error {
	for _, p := range parts {
		n := 0
		if _, err := fmt.Sscan(string(p), &n); err != nil {
			return err
		}
		s.n += n
	}
	return nil
}

func TestEndOfInput(t *testing.T) {
	recs := numbers("a", 250, 3)
	finishing := func(store *fakeStore, storage checkpoint.Storage) *Pipeline {
		p := countPipeline(store, storage, recs)
		p.Stages = []Stage{
			{Name: "totals", State: true, New: func(Owner) (Transform, error) { return &totals{}, nil }},
			{Name: "later", Func: func(rec []byte, emit Emit) error { return emit(append([]byte("later "), rec...)) }},
		}
		return p
	}
	t.Run("C078 records behind the last barrier", func(t *testing.T) {
		store := newFakeStore()
		if _, err := statelessPipeline(store, nil, recs, 4).Run(t.Context()); err != nil || len(store.all()) != 250 {
			t.Errorf("%d records, %v", len(store.all()), err)
		}
	})
	t.Run("C082 items of the end", func(t *testing.T) {
		store := newFakeStore()
		sum, err := finishing(store, &checkpoint.Memory{}).Run(t.Context())
		if err != nil || !slices.Equal(store.all(), []string{`later {"total":250}`}) || !sum.Ended {
			t.Errorf("%q, %+v, %v", store.all(), sum, err)
		}
	})
	t.Run("the final checkpoint is tried again, the end is not", func(t *testing.T) {
		store := newFakeStore()
		store.failSeal = func(n uint64) error {
			if n == 3 {
				return errors.New("no space")
			}
			return nil
		}
		if _, err := finishing(store, &checkpoint.Memory{}).Run(t.Context()); err != nil || len(store.all()) != 1 {
			t.Errorf("%q, %v", store.all(), err)
		}
	})
	t.Run("C083 the last flush fails", func(t *testing.T) {
		store, storage := newFakeStore(), &checkpoint.Memory{}
		store.down = true
		sum, err := finishing(store, storage).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "drain: output out: store is down") || sum.Last != 3 {
			t.Errorf("%+v, %v", sum, err)
		}
		store.down = false
		if _, err := statelessPipelineAfter(store, storage, recs).Run(t.Context()); err != nil || len(store.all()) != 1 {
			t.Errorf("%q, %v", store.all(), err)
		}
	})
	t.Run("a stop is not the end of the input", func(t *testing.T) {
		store := newFakeStore()
		p := finishing(store, &checkpoint.Memory{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.Sources = append(p.Sources, Input{Name: "b", Source: &endlessSource{after: func() { cancel() }}})
		sum, err := p.Run(ctx)
		if err != nil || len(store.all()) != 0 || sum.Ended {
			t.Errorf("%q, %+v, %v", store.all(), sum, err)
		}
	})
}

// statelessPipelineAfter opens the output of a pipeline with state and reads
// nothing.
func statelessPipelineAfter(store *fakeStore, storage checkpoint.Storage, recs []string) *Pipeline {
	p := countPipeline(store, storage, recs)
	p.Stages = []Stage{{Name: "totals", State: true, New: func(Owner) (Transform, error) { return struct{ Stateful }{&totals{}}, nil }}}
	return p
}

// An endlessSource gives one record and then nothing, and waits.
type endlessSource struct {
	after func()
	deaf  chan struct{} // Read does not return before it is closed, whatever ctx says
	reads int
	given bool
}

func (s *endlessSource) Open(context.Context, []byte) error { return nil }
func (s *endlessSource) Close() error                       { return nil }
func (s *endlessSource) Position() []byte                   { return []byte{1} }
func (s *endlessSource) Endless() bool                      { return false }
func (s *endlessSource) Read(ctx context.Context, _ int) ([][]byte, error) {
	s.reads++
	if !s.given {
		s.given = true
		return [][]byte{[]byte(`{"key":"e"}`)}, nil
	}
	if s.deaf != nil {
		<-s.deaf
		return nil, io.EOF
	}
	if s.after != nil {
		s.after()
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestC080StuckInput: one of two inputs is stuck. Alignment holds the other back,
// memory stays bounded, the checkpoint times out and is aborted, and when the
// input moves again the next one completes with everything.
func TestC080StuckInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, storage := newFakeStore(), &checkpoint.Memory{}
		stuck := &endlessSource{deaf: make(chan struct{})}
		recs := numbers("a", 50000, 3)
		p := countPipeline(store, storage, recs)
		p.Sources = append(p.Sources, Input{Name: "b", Source: stuck})
		p.Checkpoints = checkpoint.Options{Interval: 10 * time.Second, Timeout: 5 * time.Second}
		slow := make(chan struct{})
		store.block = slow
		done := make(chan error)
		go func() {
			_, err := p.Run(t.Context())
			done <- err
		}()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := p.Progress().Records; n > 2*(channelDepth+3)*readLimit {
			t.Errorf("%d records read while the lane stands still", n)
		}
		close(slow)
		time.Sleep(60 * time.Second)
		synctest.Wait()
		g := p.Progress()
		if g.Checkpoints != 0 || g.Aborted < 3 || !strings.Contains(g.LastAbort, "timed out after 5s waiting for tasks") || len(store.all()) != 0 {
			t.Errorf("while stuck: %+v, %d records visible", g, len(store.all()))
		}
		close(stuck.deaf)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		checkCounts(t, sortedCounts(store.all()), recs, []string{`{"key":"e"}`})
	})
}

// TestHeldBack: while an input waits at a barrier for the other, nothing more than
// what fits between source and lane is read from it; without alignment it goes on.
func TestHeldBack(t *testing.T) {
	for mode, held := range map[checkpoint.Mode]bool{checkpoint.ExactlyOnce: true, checkpoint.AtLeastOnce: false} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore()
				stuck := &endlessSource{deaf: make(chan struct{})}
				gate := &gatedSource{Source: input("a", numbers("a", 100000, 3)).Source, gate: make(chan struct{})}
				p := countPipeline(store, &checkpoint.Memory{}, nil)
				p.Sources = []Input{{Name: "a", Source: gate}, {Name: "b", Source: stuck}}
				p.Checkpoints, p.Mode = checkpoint.Options{Interval: time.Second}, mode
				done := make(chan error)
				go func() {
					_, err := p.Run(t.Context())
					done <- err
				}()
				time.Sleep(5 * time.Second) // the checkpoint is triggered, b does not deliver
				close(gate.gate)
				time.Sleep(time.Second)
				synctest.Wait()
				if n := p.Progress().Records; (n < 100000) != held {
					t.Errorf("%d records read", n)
				}
				close(stuck.deaf)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if len(store.all()) != 100001 {
					t.Errorf("%d records", len(store.all()))
				}
			})
		})
	}
}

// A gatedSource gives one record, and the rest when the gate is open.
type gatedSource struct {
	Source
	gate  chan struct{}
	given bool
}

func (s *gatedSource) Read(ctx context.Context, limit int) ([][]byte, error) {
	if !s.given {
		s.given = true
		return s.Source.Read(ctx, 1)
	}
	select {
	case <-s.gate:
		return s.Source.Read(ctx, limit)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestIntervalAndShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		gate := &gatedSource{Source: input("a", numbers("a", 3, 1)).Source, gate: make(chan struct{})}
		p := &Pipeline{
			Sources: []Input{{Name: "a", Source: gate}}, Outputs: []Sink{store.sink("out")},
			Checkpoints: checkpoint.Options{Interval: 10 * time.Second}, Logger: quiet(),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan Summary)
		go func() {
			sum, err := p.Run(ctx)
			if err != nil {
				t.Error(err)
			}
			done <- sum
		}()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if g := p.Progress(); g.Last != 1 || g.LastAt.IsZero() || len(store.all()) != 1 {
			t.Errorf("after an interval: %+v", g)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if g := p.Progress(); g.Last != 1 {
			t.Errorf("checkpoints without records: %+v", g)
		}
		close(gate.gate) // the reader looks at it when it is interrupted
		cancel()
		if sum := <-done; sum.Last > 2 || len(store.all()) == 0 {
			t.Errorf("%+v, %q", sum, store.all())
		}
	})
}

// TestGrace: a stop is bounded, whatever hangs.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.block = make(chan struct{})
		p := statelessPipeline(store, nil, numbers("a", 5000, 1), 1)
		p.Grace = 7 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := p.Run(ctx)
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		cancel()
		if err := <-done; !errors.Is(err, ErrGrace) || time.Since(start) != 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestErrorsNameStageAndRecord(t *testing.T) {
	boom := errors.New("boom")
	at := func(n string) Func {
		return func(rec []byte, emit Emit) error {
			if string(field(rec, "n")) == n {
				return boom
			}
			return emit(rec)
		}
	}
	recs := numbers("a", 3000, 4)
	for name, c := range map[string]struct {
		change func(p *Pipeline, s *fakeStore)
		want   string
	}{
		"first transform": {func(p *Pipeline, _ *fakeStore) {
			p.Stages = []Stage{{Name: "one", Func: at("1500")}, {Name: "two", Func: at("-")}}
		}, "source a record 1501 lane 000: transform one: boom"},
		"second transform": {func(p *Pipeline, _ *fakeStore) {
			p.Stages = []Stage{{Name: "one", Func: at("-")}, {Name: "two", Func: at("1500")}}
		}, "source a record 1501 lane 000: transform two: boom"},
		"encoder": {func(p *Pipeline, _ *fakeStore) {
			p.Outputs[0].Encode = func(dst, rec []byte) ([]byte, error) { return append(dst, rec...), at("7")(rec, discard) }
		}, "source a record 8 lane 000: encode for output out: boom"},
		"output": {func(_ *Pipeline, s *fakeStore) {
			s.onAppend = func(_ string, rec []byte) error { return at("7")(rec, discard) }
		}, "source a record 8 lane 000: output out: boom"},
		"source": {func(p *Pipeline, _ *fakeStore) {
			p.Sources[0].Source = &brokenSource{Source: p.Sources[0].Source, left: 3}
		}, "source a: crash"},
		"seal": {func(p *Pipeline, s *fakeStore) {
			s.failSeal = func(uint64) error { return boom }
			p.Checkpoints.MaxFailures = 1
		}, "checkpoint 1: number 1 in a row to be aborted, the limit: output out: seal checkpoint 1: boom"},
		"open output": {func(p *Pipeline, _ *fakeStore) {
			p.Outputs[0].Open = func(context.Context, Restored) (Output, error) { return nil, boom }
		}, "open output out: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			store := newFakeStore()
			p := statelessPipeline(store, nil, recs, 1)
			c.change(p, store)
			if _, err := p.Run(t.Context()); err == nil || err.Error() != c.want {
				t.Errorf("error %v\nwant  %s", err, c.want)
			}
		})
	}
}

func discard([]byte) error { return nil }

// TestFailedOutput: an output that fails on its own ends the run.
func TestFailedOutput(t *testing.T) {
	store := newFakeStore()
	p := statelessPipeline(store, nil, nil, 1)
	p.Sources[0].Source = &endlessSource{}
	open := p.Outputs[0].Open
	p.Outputs[0].Open = func(ctx context.Context, r Restored) (Output, error) {
		out, err := open(ctx, r)
		f := out.(*fakeOutput)
		f.err = errors.New("disk is gone")
		close(f.failed)
		return out, err
	}
	if _, err := p.Run(t.Context()); err == nil || err.Error() != "output out: disk is gone" {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	store := newFakeStore()
	good := func() *Pipeline { return statelessPipeline(store, nil, nil, 1) }
	noop := func(rec []byte, emit Emit) error { return emit(rec) }
	for want, change := range map[string]func(p *Pipeline){
		"no source":                        func(p *Pipeline) { p.Sources = nil },
		"no output":                        func(p *Pipeline) { p.Outputs = nil },
		`source "a" is nil`:                func(p *Pipeline) { p.Sources[0].Source = nil },
		`output "out" has no Open`:         func(p *Pipeline) { p.Outputs[0].Open = nil },
		`two sources are called "a"`:       func(p *Pipeline) { p.Sources = append(p.Sources, p.Sources[0]) },
		"want exactly one of Func and New": func(p *Pipeline) { p.Stages = []Stage{{Name: "x"}} },
		"2000 lanes; want 1 to 1000":       func(p *Pipeline) { p.Lanes = 2000 },
		"-1 lanes":                         func(p *Pipeline) { p.Lanes = -1 },
		"needs a Route by key": func(p *Pipeline) {
			p.Stages, p.Storage, p.Lanes, p.Route = []Stage{Keyed("c", MemoryState{}, count)}, &checkpoint.Memory{}, 2, Route{}
		},
		"there is no Storage": func(p *Pipeline) { p.Stages = []Stage{Keyed("c", MemoryState{}, count)} },
		"two transforms with state": func(p *Pipeline) {
			p.Storage = &checkpoint.Memory{}
			p.Stages = []Stage{Keyed("c", MemoryState{}, count), Keyed("c", MemoryState{}, count)}
		},
		`two outputs are called "out"`: func(p *Pipeline) { p.Outputs = append(p.Outputs, p.Outputs[0]) },
		"C013: checkpoints are off":    nil,
		"Stage.State is true": func(p *Pipeline) {
			p.Storage = &checkpoint.Memory{}
			p.Stages = []Stage{{Name: "s", Func: noop, State: true}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			p := good()
			if change == nil {
				want = strings.TrimPrefix(want, "C013: ")
				p.Checkpoints, p.Sources[0].Source = checkpoint.Options{}, endless{p.Sources[0].Source}
			} else {
				change(p)
			}
			if _, err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

type endless struct{ Source }

func (endless) Endless() bool { return true }

type forgetful struct{ Source }

func (forgetful) Replayable() (bool, string) { return false, "it forgets" }

type declared struct {
	Output
	g sinks.Guarantee
}

func (d declared) Guarantee() (sinks.Guarantee, string) { return d.g, "it says so" }

// TestWeakestPartDecides: the guarantee of a pipeline is that of its weakest part.
func TestWeakestPartDecides(t *testing.T) {
	plain, lossy := input("a", nil), Input{Name: "stdin", Source: forgetful{input("b", nil).Source}}
	exact, idem, least := declared{g: sinks.ExactlyOnce}, declared{g: sinks.Idempotent}, declared{g: sinks.AtLeastOnce}
	var silent struct{ Output }
	const strongest = "exactly-once (every source can be read again, every output takes records and mark in one atomic step)"
	for _, c := range []struct {
		sources []Input
		outs    []Output
		mode    checkpoint.Mode
		state   bool
		want    string
	}{
		{[]Input{plain}, []Output{exact}, 0, false, strongest},
		{[]Input{plain}, []Output{exact, exact}, 0, true, strongest},
		{[]Input{plain}, []Output{idem}, 0, false, "at-least-once (output o0: idempotent: it says so)"},
		{[]Input{plain}, []Output{exact, least}, 0, false, "at-least-once (output o1: it says so)"},
		{[]Input{plain}, []Output{silent}, 0, false, "at-least-once (output o0: it does not say what a replayed flush does)"},
		{[]Input{lossy}, []Output{exact}, 0, false, "at-most-once (source stdin: it forgets)"},
		{[]Input{plain, lossy}, []Output{least}, 0, false, "at-most-once (source stdin: it forgets)"},
		{[]Input{plain, plain}, []Output{exact}, checkpoint.AtLeastOnce, true, "at-least-once (mode: inputs are not aligned)"},
		{[]Input{plain}, []Output{exact}, checkpoint.AtLeastOnce, true, strongest},
		{[]Input{plain, plain}, []Output{exact}, checkpoint.AtLeastOnce, false, strongest},
	} {
		p := &Pipeline{Sources: c.sources, Mode: c.mode}
		if c.state {
			p.Stages = []Stage{{State: true}}
		}
		for i := range c.outs {
			p.Outputs = append(p.Outputs, Sink{Name: fmt.Sprint("o", i)})
		}
		got := p.promise(c.outs)
		if got.String() != c.want {
			t.Errorf("got %v, want %s", got, c.want)
		}
		for g := AtMostOnce; g <= ExactlyOnce; g++ {
			p.Require = g
			if err := p.require(got); (err != nil) != (g > got.Guarantee) || (err != nil && !errors.Is(err, ErrGuarantee)) {
				t.Errorf("%v with %v required: %v", got, g, err)
			}
		}
	}
	for _, c := range []struct {
		found []sinks.Finding
		want  string
	}{
		{[]sinks.Finding{{Subject: "a", Found: "fine", Guarantee: sinks.ExactlyOnce, Advice: "could be better"}}, strongest},
		{[]sinks.Finding{{Subject: "b", Found: "poor", Guarantee: sinks.AtLeastOnce, Advice: "mend it"}}, "at-least-once (output o0: b: poor; mend it)"},
		{[]sinks.Finding{{Subject: "b", Found: "poor", Guarantee: sinks.Idempotent}, {Subject: "c", Found: "broken", Guarantee: sinks.ExactlyOnce, Refuse: true}},
			"at-most-once (output o0: c: broken)"},
	} {
		p := &Pipeline{Sources: []Input{plain}, Outputs: []Sink{{Name: "o0", Findings: c.found}}}
		if got := p.promise([]Output{exact}); got.String() != c.want {
			t.Errorf("findings %+v: got %v, want %s", c.found, got, c.want)
		}
	}
	store := newFakeStore()
	p := statelessPipeline(store, nil, nil, 1)
	p.Sources[0], p.Require = lossy, ExactlyOnce
	opened := false
	open := p.Outputs[0].Open
	p.Outputs[0].Open = func(ctx context.Context, r Restored) (Output, error) {
		opened = true
		return open(ctx, r)
	}
	if _, err := p.Run(t.Context()); !errors.Is(err, ErrGuarantee) || store.count("seal") != 0 || opened {
		t.Errorf("%v, opened %v", err, opened)
	}
}
