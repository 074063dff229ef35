package upgrade_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks"
)

// perBatch is the number of records of a batch, and total that of the source.
const (
	perBatch = 5
	total    = 6 * perBatch
)

// A store keeps its ledger beside the records.
type store interface {
	// open opens a sink, which does not own what it is open on.
	open() (sinks.Sink, error)
	// record is record n in today's form, and old in that of the first batches of
	// the fixture, whose format oldFormat is.
	record(t *testing.T, s sinks.Sink, n int) []byte
	old(t *testing.T, s sinks.Sink, n int) []byte
	oldFormat(s sinks.Sink) string
	// rows are what is in, in order; want is that after so many records.
	rows(t *testing.T) []string
	want(records int) []string
	// dump returns ledger and destination in the form of the fixture, load puts them
	// into an empty store.
	dump(t *testing.T) []byte
	load(t *testing.T, dump []byte)
	// newer makes a ledger of it that only a later version knows.
	newer(t *testing.T)
}

// A storeKind is a kind of fixture.
type storeKind struct {
	name, ext string
	newest    int
	empty     func(t *testing.T) store
	begin     string              // the dump of a store before the first record
	holdings  map[string][]string // of each fixture
	refusal   string              // of the ledger that newer makes
}

var storeKinds = []storeKind{postgresKind, redisKind}

func options(dir string) walsink.Options {
	return walsink.Options{Dir: dir, ID: "job", Logger: quiet, Log: logOptions}
}

// feed appends the records of batch n, counted from 0.
func feed(t *testing.T, out *walsink.Output, n int, record func(n int) []byte) {
	t.Helper()
	for i := n * perBatch; i < (n+1)*perBatch; i++ {
		if err := out.Append(t.Context(), record(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// end is the source's position after batch n.
func end(n int) []byte { return strconv.AppendInt(nil, int64(n+1)*perBatch, 10) }

// session opens an output on a sink that takes so many steps, runs do, and closes it.
func session(t *testing.T, st store, dir, format string, intake int, do func(out *walsink.Output, s sinks.Sink)) {
	t.Helper()
	s, err := st.open()
	if err != nil {
		t.Fatal(err)
	}
	out, err := walsink.Open(t.Context(), cutSink{s, s.(sinks.Ledger), intake, format}, options(dir))
	if err != nil {
		t.Fatal(err)
	}
	do(out, s)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// write leaves a job half done: two batches of the old form, of which the first is
// in the store, and two of today's, of which the last is of no complete checkpoint.
func (k storeKind) write(t *testing.T, archive string) {
	st, dir := k.empty(t), t.TempDir()
	st.load(t, []byte(k.begin))
	s, err := st.open()
	if err != nil {
		t.Fatal(err)
	}
	format := st.oldFormat(s)
	s.Close()
	checkpoint := func(out *walsink.Output, n int) {
		if _, err := out.Checkpoint(t.Context(), end(n)); err != nil {
			t.Fatal(err)
		}
	}
	session(t, st, dir, format, 1, func(out *walsink.Output, s sinks.Sink) {
		old := func(n int) []byte { return st.old(t, s, n) }
		feed(t, out, 0, old)
		checkpoint(out, 0)
		if err := out.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		feed(t, out, 1, old)
		checkpoint(out, 1)
	})
	session(t, st, dir, "", 0, func(out *walsink.Output, s sinks.Sink) {
		record := func(n int) []byte { return st.record(t, s, n) }
		feed(t, out, 2, record)
		checkpoint(out, 2)
		feed(t, out, 3, record)
		if err := out.Seal(t.Context(), out.Last()+1, end(3)); err != nil {
			t.Fatal(err)
		}
	})
	pack(t, archive, dir)
	if err := os.WriteFile(k.dumpOf(archive), st.dump(t), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dumpOf is the file beside an archive that has ledger and destination.
func (k storeKind) dumpOf(archive string) string {
	return strings.TrimSuffix(archive, ".tar.gz") + k.ext
}

// restore returns a store with the contents of the fixture.
func (k storeKind) restore(t *testing.T, archive string) store {
	t.Helper()
	dump, err := os.ReadFile(k.dumpOf(archive))
	if err != nil {
		t.Fatal(err)
	}
	st := k.empty(t)
	st.load(t, dump)
	if got := st.rows(t); !slices.Equal(got, st.want(perBatch)) {
		t.Fatalf("the fixture has rows %q", got)
	}
	return st
}

// TestUpgradeStores goes on from what an earlier version left in a store, with the state
// directory and without it, and ends with each record in once, in order (Q04).
func TestUpgradeStores(t *testing.T) {
	for _, k := range storeKinds {
		for _, archive := range archives(t, k.name, k.newest, func(archive string) { k.write(t, archive) }) {
			name := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
			t.Run(name+"/with its state", func(t *testing.T) {
				st := k.restore(t, archive)
				s, err := st.open()
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if got := holdings(t, unpack(t, archive), s.(sinks.Ledger)); !slices.Equal(got, k.holdings[name]) {
					t.Errorf("the fixture holds %q", got)
				}
				goOn(t, st, unpack(t, archive), 3)
			})
			t.Run(name+"/without state", func(t *testing.T) { goOn(t, k.restore(t, archive), t.TempDir(), 1) })
			t.Run(name+"/newer ledger", func(t *testing.T) { k.refuse(t, k.restore(t, archive), unpack(t, archive)) })
		}
	}
}

// goOn opens an output and reads the source to its end from batch next, counted from 0,
// which is where the output has to be.
func goOn(t *testing.T, st store, dir string, next int) {
	s, err := st.open()
	if err != nil {
		t.Fatal(err)
	}
	out, err := walsink.Open(t.Context(), s, options(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if string(out.Position()) != string(end(next-1)) || len(out.Barriers()) != 0 {
		t.Fatalf("position %q, barriers %v: want %q and none", out.Position(), out.Barriers(), end(next-1))
	}
	for n := next; n < total/perBatch; n++ {
		feed(t, out, n, func(n int) []byte { return st.record(t, s, n) })
		if _, err := out.Checkpoint(t.Context(), end(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := st.rows(t); !slices.Equal(got, st.want(total)) {
		t.Errorf("rows %q\nwant %q", got, st.want(total))
	}
	marks, err := s.(sinks.Ledger).Marks(t.Context(), "job")
	if err != nil || len(marks) != 1 || marks[0].Records != total || marks[0].Dead != 0 {
		t.Errorf("marks %+v, %v: want %d records", marks, err, total)
	}
}

// refuse wants a ledger of a later version to be refused by its name, and left as it is.
func (k storeKind) refuse(t *testing.T, st store, dir string) {
	st.newer(t)
	before := st.dump(t)
	s, err := st.open()
	if err == nil {
		var out *walsink.Output
		if out, err = walsink.Open(t.Context(), s, options(dir)); err == nil {
			out.Close()
		}
	}
	if sinks.KindOf(err) != sinks.Permanent || !strings.Contains(fmt.Sprint(err), k.refusal) {
		t.Errorf("error %v, want a permanent one with %q", err, k.refusal)
	}
	if after := st.dump(t); string(after) != string(before) {
		t.Errorf("the store has changed:\n%s\nwas\n%s", after, before)
	}
}
