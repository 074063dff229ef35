package walsink_test

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"reflect"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	wire "github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/wal"
)

// apart is a job of two lanes of which the first has 15 records in the store and the
// second 10, of 30 read; the state directory is lost.
func apart(t *testing.T) *rig {
	r := newRig(t, 2)
	out := r.open()
	r.drive(out, 20, 10)
	drain(t, out)
	r.blocked.Store(1)
	r.drive2(out, 20, 30, 10)
	r.until(func() bool { return len(r.store.Records(r.id(0))) == 15 })
	closed(t, out)
	r.blocked.Store(-1)
	r.wipe()
	return r
}

// A source that cannot be read again cannot repeat checkpoints. That is found when the
// output opens, each time, and not at every checkpoint of a run.
func TestLanesApartWithoutReplay(t *testing.T) {
	r := apart(t)
	opts := r.options()
	opts.Flush.NoReplay = true
	r.inspected(opts, committer.ErrStateBehind)
	for range 2 {
		out, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts)
		if err == nil {
			closed(t, out)
		}
		if !errors.Is(err, committer.ErrStateBehind) {
			t.Fatalf("got %v, want ErrStateBehind", err)
		}
	}

	opts.Flush.Accept = committer.AcceptLoss
	out, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, out)
	if got := string(out.Position()); got != "30" || len(out.Barriers()) != 0 {
		t.Fatalf("position %s, %d barriers, want 30 and none", got, len(out.Barriers()))
	}
	r.drive2(out, 30, 50, 10)
	drain(t, out)
	if got := len(r.store.Records(r.id(0))); got != 25 {
		t.Errorf("the lane that was ahead holds %d records, want 25", got)
	}
	if got := len(r.store.Records(r.id(1))); got != 20 {
		t.Errorf("the lane that was behind holds %d records, want 20: 5 are lost, and no more", got)
	}
}

// A batch of which a part is in, no log that has the rest, and a source that cannot
// send it again.
func TestPartOfABatchWithoutReplay(t *testing.T) {
	r := newRig(t, 1)
	mopts := memory.Options{StepBytes: 30, Chunked: true}
	sink := onceSink{memory.Open(r.store, mopts)}
	opts := r.options()
	out, err := walsink.Open(t.Context(), sink, opts)
	if err != nil {
		t.Fatal(err)
	}
	r.drive(out, 10, 10)
	r.until(func() bool { return len(r.store.Records(r.id(0))) > 0 })
	closed(t, out)
	done := len(r.store.Records(r.id(0)))
	if done == 10 {
		t.Fatal("the whole batch is in")
	}
	r.wipe()

	opts.Flush.NoReplay = true
	_, err = walsink.Open(t.Context(), memory.Open(r.store, mopts), opts)
	if !errors.Is(err, committer.ErrStateBehind) {
		t.Fatalf("got %v, want ErrStateBehind", err)
	}
	opts.Flush.Accept = committer.AcceptLoss
	out, err = walsink.Open(t.Context(), memory.Open(r.store, mopts), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, out)
	r.drive2(out, 10, 20, 10)
	drain(t, out)
	if got := len(r.store.Records(r.id(0))); got != done+10 {
		t.Errorf("%d records, want the %d that were in and 10 more", got, done)
	}
	marks, err := memory.Open(r.store, mopts).Marks(t.Context(), "job")
	if err != nil || marks[0].Records != uint64(done)+10 || marks[0].Dead != uint64(10-done) {
		t.Errorf("marks %+v, %v, want %d records and %d dead", marks, err, done+10, 10-done)
	}
	chained(t, memory.Open(r.store, mopts), r.id(0))
}

// chained makes sure that the audit rows of a lane are a chain.
func chained(t *testing.T, l sinks.Ledger, id sinks.LaneID) {
	t.Helper()
	chain := id.Genesis()
	for row, err := range l.Audit(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if row.Prev != chain {
			t.Errorf("batch %d does not continue the one before", row.Seq)
		}
		chain = row.Chain()
	}
}

// A onceSink takes one chunk of a batch and no more.
type onceSink struct{ *memory.Sink }

func (s onceSink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, m, err := s.Sink.Acquire(ctx, id)
	return halfLane{l, sinks.LaneID{Sink: id.Sink, Lane: lane(1)}}, m, err
}

// A forgetfulSink has no audit rows.
type forgetfulSink struct{ *memory.Sink }

func (forgetfulSink) Audit(context.Context, sinks.LaneID, uint64) iter.Seq2[sinks.Audit, error] {
	return func(func(sinks.Audit, error) bool) {}
}

// A refusal that comes from all lanes together leaves the log as it was: batches of a
// lane that does not connect, which a restored ledger would make connect again, are
// not set aside before.
func TestRefusalOfAPlanChangesNothing(t *testing.T) {
	r := newRig(t, 3)
	out := r.open()
	r.drive(out, 30, 10)
	drain(t, out)
	r.blocked.Store(1)
	r.drive2(out, 30, 60, 10)
	r.until(func() bool { return len(r.store.Records(r.id(0))) == 20 && len(r.store.Records(r.id(2))) == 20 })
	closed(t, out)

	// Another owner went on with lane 0, from another directory.
	stranger := r.options()
	stranger.Dir = t.TempDir()
	out, err := walsink.Open(t.Context(), blocker{memory.Open(r.store, memory.Options{}), r}, stranger)
	if err != nil {
		t.Fatal(err)
	}
	r.drive(out, 90, 10)
	r.until(func() bool { return len(r.store.Records(r.id(0))) == 30 })
	closed(t, out)
	r.blocked.Store(-1)

	before := r.held()
	r.inspected(r.options(), nil)
	for range 2 {
		out, err := walsink.Open(t.Context(), forgetfulSink{memory.Open(r.store, memory.Options{})}, r.options())
		if err == nil {
			closed(t, out)
		}
		if !errors.Is(err, committer.ErrLedgerBehind) {
			t.Fatalf("got %v, want ErrLedgerBehind", err)
		}
	}
	if after := r.held(); !reflect.DeepEqual(before, after) {
		t.Errorf("the log held %v, and after a refusal %v", before, after)
	}
}

// inspected makes sure that Inspect foresees a refusal, or none, and touches neither
// the store nor the state directory.
func (r *rig) inspected(opts walsink.Options, want error) {
	r.t.Helper()
	sink := memory.Open(r.store, memory.Options{})
	before, err := sink.Marks(r.t.Context(), "job")
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = os.Stat(opts.Dir)
	missing := errors.Is(err, fs.ErrNotExist)
	in, err := walsink.Inspect(r.t.Context(), sink, opts)
	if err != nil || !errors.Is(in.Refusal, want) || in.Log == missing || len(in.Lanes) != r.lanes {
		r.t.Fatalf("inspected %+v, %v, want %d lanes and %v", in, err, r.lanes, want)
	}
	after, err := sink.Marks(r.t.Context(), "job")
	if err != nil || !reflect.DeepEqual(before, after) {
		r.t.Errorf("marks were %+v, and are %+v, %v", before, after, err)
	}
	if _, err := os.Stat(opts.Dir); errors.Is(err, fs.ErrNotExist) != missing {
		r.t.Error("the state directory was made")
	}
}

// held are the batches of each lane in the log.
func (r *rig) held() map[string][]wire.Batch {
	r.t.Helper()
	l, err := wal.Open(r.dir, r.options().Log)
	if err != nil {
		r.t.Fatal(err)
	}
	defer closed(r.t, l)
	held := make(map[string][]wire.Batch)
	for _, name := range l.Lanes() {
		held[name] = l.Batches(name)
	}
	return held
}
