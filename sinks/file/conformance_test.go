package file_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink/faults"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/file"
	"github.com/walsink/walsink/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	t.Run("raw in buckets", func(t *testing.T) {
		h := harness(t, file.Options{Format: "raw", Buckets: true})
		h.Binary = true
		h.Encode = func(_ sinks.LaneID, payload []byte) []byte {
			return append(binary.AppendUvarint([]byte("\x01b"), uint64(len(payload))), payload...)
		}
		h.Bad = func(_ sinks.LaneID, payload []byte) []byte { return append([]byte("\x02.."), payload...) }
		sinktest.Run(t, h)
	})
	t.Run("lines", func(t *testing.T) {
		h := harness(t, file.Options{})
		h.Encode = func(_ sinks.LaneID, payload []byte) []byte { return append(slices.Clone(payload), '\n') }
		h.Bad = func(_ sinks.LaneID, payload []byte) []byte { return payload }
		sinktest.Run(t, h)
	})
}

// harness is all but the wire form.
func harness(t *testing.T, opts file.Options) sinktest.Harness {
	dir, plan := t.TempDir(), faults.NewPlan()
	return sinktest.Harness{
		Open: func(t testing.TB) sinks.Sink {
			s, err := file.Open(dir, opts)
			if err != nil {
				t.Fatal(err)
			}
			return plan.Wrap(s)
		},
		Visible: func(t testing.TB, id sinks.LaneID) [][]byte {
			if opts.Format == "" {
				return bytes.Fields(concatenated(t, filepath.Join(dir, id.Sink+"+"+id.Lane+"+*")))
			}
			return lengths(t, concatenated(t, filepath.Join(dir, "b", id.Sink+"+"+id.Lane+"+*")))
		},
		DeadLetters: func(t testing.TB, id sinks.LaneID) (all []sinks.DeadLetter) {
			lines := concatenated(t, filepath.Join(dir, ".walsink", id.Sink, id.Lane, "dead", "*"))
			for d := json.NewDecoder(bytes.NewReader(lines)); d.More(); {
				var l sinks.DeadLetter
				if err := d.Decode(&l); err != nil {
					t.Fatal(err)
				}
				all = append(all, l)
			}
			return all
		},
		Snapshot: func(t testing.TB) func() {
			backup := filepath.Join(t.TempDir(), "backup")
			if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			return func() { putBack(t, dir, backup) }
		},
		Break: func(testing.TB) func() {
			down := &sinks.Error{Kind: sinks.Transient, Op: "call", Err: errors.New("input/output error")}
			for _, op := range []faults.Op{faults.Acquire, faults.Flush, faults.ReadMark} {
				plan.Add(faults.Fault{Op: op, Before: down})
			}
			return plan.Heal
		},
		LoseAnswers: func(testing.TB) func() {
			plan.Add(faults.Fault{Op: faults.Flush, After: &sinks.Error{Kind: sinks.Ambiguous, Op: "flush", Err: errors.New("no answer")}})
			return plan.Heal
		},
	}
}

// concatenated is the contents of the files that match, in the order of their names.
func concatenated(t testing.TB, pattern string) (all []byte) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	for _, name := range names {
		var b []byte
		if err == nil {
			b, err = os.ReadFile(name)
		}
		all = append(all, b...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// lengths cuts records that begin with their length.
func lengths(t testing.TB, b []byte) (recs [][]byte) {
	t.Helper()
	for len(b) > 0 {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			t.Fatalf("a part ends in the middle of a record: %.40q", b)
		}
		recs, b = append(recs, b[w:w+int(n)]), b[w+int(n):]
	}
	return recs
}

// putBack makes the contents of dir those of backup. The directory stays, since
// sinks have it open.
func putBack(t testing.TB, dir, backup string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "lost+found") {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err = errors.Join(err, os.CopyFS(dir, os.DirFS(backup))); err != nil {
		t.Fatal(err)
	}
}
