package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/walsink/walsink/record"
)

// A codec is one of the values of the log, for the tests that all must pass.
type codec interface {
	decode(b []byte) error
	again() ([]byte, error)
}

func (f *footer) again() ([]byte, error)         { return f.encode() }
func (s *laneState) again() ([]byte, error)      { return s.encode(), nil }
func (s *committedState) again() ([]byte, error) { return s.encode(), nil }
func (s *completeState) again() ([]byte, error)  { return s.encode(), nil }

func codecs() map[string]struct{ full, empty codec } {
	head := record.Head{Seq: 3, Chain: record.Chain{1, 2}, Checkpoint: 9, Position: []byte("pos")}
	return map[string]struct{ full, empty codec }{
		"footer": {&footer{
			lane: "s/a", blocks: 7, segments: []segment{{4, 0}, {6, 5}},
			batch: record.Batch{Seq: 4, Checkpoint: 9, Position: []byte("p"), Format: "f"},
		}, &footer{}},
		"lane":      {&laneState{floor: 5<<32 | 1, head: head, committed: 2, durable: 3}, &laneState{}},
		"committed": {&committedState{floor: 1, seq: 2}, &committedState{}},
		"complete":  {&completeState{checkpoint: 8, position: []byte("p")}, &completeState{}},
	}
}

func TestValuesRoundTrip(t *testing.T) {
	for name, c := range codecs() {
		t.Run(name, func(t *testing.T) {
			enc, err := c.full.again()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.empty.decode(enc); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(c.empty, c.full) {
				t.Errorf("got %+v, want %+v", c.empty, c.full)
			}
			refuse := func(b []byte) {
				t.Helper()
				if err := c.empty.decode(b); !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrVersion) {
					t.Fatalf("%x: %v", b, err)
				}
			}
			for n := range enc {
				refuse(enc[:n])
			}
			for i := range len(enc) * 8 {
				enc[i/8] ^= 1 << (i % 8)
				refuse(enc)
				enc[i/8] ^= 1 << (i % 8)
			}
			refuse(append(bytes.Clone(enc), 0))
			enc[0]++
			if err := c.empty.decode(resum(enc)); !errors.Is(err, record.ErrVersion) {
				t.Errorf("a newer version: %v", err)
			}
		})
	}
}

// resum gives changed bytes a right checksum.
func resum(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	return b
}

func FuzzValues(f *testing.F) {
	for _, c := range codecs() {
		enc, err := c.full.again()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(enc, true)
		f.Add(enc[:len(enc)/2], false)
	}
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix && len(b) >= 4 {
			b = resum(bytes.Clone(b))
		}
		for name, c := range codecs() {
			if c.empty.decode(b) != nil {
				continue
			}
			enc, err := c.empty.again()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			second := codecs()[name].empty
			if err := second.decode(enc); err != nil || !reflect.DeepEqual(second, c.empty) {
				t.Errorf("%s: %x reads as %+v and then as %+v, %v", name, b, c.empty, second, err)
			}
		}
	})
}

// newStore makes a generation outside of a log.
func newStore(t testing.TB) (dirs *badgerDirs, s *badgerStore) {
	t.Helper()
	dirs = &badgerDirs{dir: t.TempDir(), generation: 1 << 20, log: quiet}
	st, err := dirs.create(1, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.close(); dirs.close() })
	return dirs, st.(*badgerStore)
}

// TestIndexEnd: the end that the log finds in a memory table's log is the one
// that Badger cuts it to when it opens the directory for writing.
func TestIndexEnd(t *testing.T) {
	_, s := newStore(t)
	for i := range 20 {
		value := bytes.Repeat([]byte{byte(i)}, i*60)
		if err := s.append(entry{fmt.Append(nil, "key", i), value}, entry{fmt.Append(nil, "more", i), nil}); err != nil {
			t.Fatal(err)
		}
	}
	index, err := os.ReadFile(filepath.Join(s.dir, indexFile))
	if err != nil {
		t.Fatal(err)
	}
	end := indexEnd(index)
	for _, cut := range []int{end, end - 1, end - 30, end / 2, logHeader + 7, logHeader} {
		torn := append(bytes.Clone(index[:cut]), make([]byte, 1000)...)
		ours := indexEnd(torn)
		if got, want := keysIn(t, torn), keysIn(t, torn[:ours]); got != want {
			t.Errorf("cut at %d of %d: Badger finds %d keys, the log keeps %d", cut, end, got, want)
		}
	}
	if n := keysIn(t, index); n != 40 {
		t.Errorf("Badger finds %d keys, want 40", n)
	}
}

// keysIn has Badger recover a directory that holds only the given memory table.
func keysIn(t *testing.T, index []byte) (n int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, indexFile), index, 0o600); err != nil {
		t.Fatal(err)
	}
	o := badgerOptions(dir, shapeOf(1<<20, false), false)
	o.Logger = nil
	db, err := badger.OpenManaged(o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	txn := db.NewTransactionAt(1<<62, false)
	defer txn.Discard()
	it := txn.NewIterator(badger.IteratorOptions{})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		n++
	}
	return n
}

func FuzzIndexEnd(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	b := append([]byte(nil), make([]byte, logHeader)...)
	b = append(b, metaTxn, 0, 9, 1, 0)
	b = append(b, "k\xff\xff\xff\xff\xff\xff\xff\xfev"...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b[logHeader:], castagnoli))
	at := len(b)
	b = append(b, metaFin, 0, 9, 1, 0)
	b = append(b, "t\xff\xff\xff\xff\xff\xff\xff\xfe1"...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
	f.Add(b)
	if indexEnd(b) != len(b) {
		f.Fatalf("the seed ends at %d, want %d", indexEnd(b), len(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		end := indexEnd(b)
		if end > max(len(b), logHeader) || end < logHeader {
			t.Fatalf("end %d of %d", end, len(b))
		}
		if len(b) >= end && indexEnd(b[:end]) != end {
			t.Fatal("cutting at the end changes the end")
		}
		if _, err := valuesEnd(bytes.NewReader(b), int64(len(b))); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSealedFiles: the checksums find any change of a file they cover.
func TestSealedFiles(t *testing.T) {
	dirs, s := newStore(t)
	if err := s.append(entry{[]byte("key"), []byte("value")}); err != nil {
		t.Fatal(err)
	}
	if err := firstErr(s.sync(), s.close()); err != nil {
		t.Fatal(err)
	}
	if err := prepareFiles(s.dir); err != nil {
		t.Fatal(err)
	}
	st, err := dirs.open(1)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := st.get([]byte("key"), nil); err != nil || string(v) != "value" {
		t.Fatalf("%q, %v", v, err)
	}
	if _, err := st.get([]byte("other"), nil); !errors.Is(err, errAbsent) {
		t.Errorf("absent key: %v", err)
	}
	if last, synced := st.versions(); last != 1 || synced != 1 {
		t.Errorf("versions %d, %d", last, synced)
	}
	if err := st.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := st.get([]byte("key"), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("get after close: %v", err)
	}
	for _, name := range []string{"MANIFEST", "KEYREGISTRY", "000001.sst"} {
		path := filepath.Join(s.dir, name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2]++
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := dirs.open(1); err == nil {
			t.Errorf("%s was changed, and nobody notices", name)
		}
		b[len(b)/2]--
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
