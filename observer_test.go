package walsink_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/walsink/walsink"
	rec "github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks/memory"
)

// Both observers are told of every record and every batch, and of nothing that is
// only compared.
func TestObserver(t *testing.T) {
	r := newRig(t, 1)
	var lists [2][]string
	watch := func(n int) walsink.Observer {
		return walsink.Observer{
			Appended: func(_ context.Context, lane string) { lists[n] = append(lists[n], lane) },
			Sealed: func(lane string, b rec.Batch) {
				lists[n] = append(lists[n], fmt.Sprintf("%s batch %d checkpoint %d records %d", lane, b.Seq, b.Checkpoint, b.Records))
			},
		}
	}
	opts := r.options()
	opts.Observer = walsink.Observers(watch(0), walsink.Observer{}, watch(1))
	out, err := walsink.Open(t.Context(), memory.Open(r.store, memory.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	r.read(out, 0, 2)
	if _, err := out.Checkpoint(t.Context(), position(2)); err != nil {
		t.Fatal(err)
	}
	r.read(out, 2, 3)
	closed(t, out)
	want := []string{"000", "000", "000 batch 1 checkpoint 1 records 2", "000"}
	if !slices.Equal(lists[0], want) || !slices.Equal(lists[1], want) {
		t.Errorf("told %q and %q, want %q", lists[0], lists[1], want)
	}
}

// Records that come again after a loss of state, and are compared only, are counted.
func TestRepeatedRecordsAreCounted(t *testing.T) {
	r := newRig(t, 2)
	out := r.open()
	r.drive(out, 10, 10)
	drain(t, out)
	r.blocked.Store(1)
	r.drive2(out, 10, 20, 10)
	r.until(func() bool { return len(r.store.Records(r.id(0))) == 10 })
	closed(t, out)
	r.blocked.Store(-1)
	r.wipe()
	out = r.open()
	defer closed(t, out)
	r.drive(out, 30, 10)
	drain(t, out)
	r.check(30, false)
	st := out.Status()
	if st.Lanes[0].Skipped != 5 || st.Lanes[1].Skipped != 0 {
		t.Errorf("skipped %d and %d records, want 5 and 0", st.Lanes[0].Skipped, st.Lanes[1].Skipped)
	}
	if st.Log.Lanes[0].Records != 5 || st.Log.Lanes[1].Records != 10 {
		t.Errorf("the log took %d and %d records", st.Log.Lanes[0].Records, st.Log.Lanes[1].Records)
	}
}

// Nobody who does not watch pays: an append to a lane allocates nothing.
func TestAppendWithoutObserverAllocatesNothing(t *testing.T) {
	r := newRig(t, 1)
	out := r.open()
	defer closed(t, out)
	l, err := out.Lane(t.Context(), lane(0))
	if err != nil {
		t.Fatal(err)
	}
	line := record(1)
	if n := testing.AllocsPerRun(1000, func() {
		if err := l.Append(t.Context(), line); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per record", n)
	}
}
