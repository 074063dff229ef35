package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func encodeBlock(t testing.TB, recs ...string) []byte {
	t.Helper()
	var b Builder
	for _, r := range recs {
		if err := b.Append([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
	return bytes.Clone(b.Finish(NewHasher()))
}

// reseal gives changed bytes a right checksum.
func reseal(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	return b
}

func sum(blocks ...Block) Digest {
	h := NewHasher()
	for _, b := range blocks {
		h.Add(b)
	}
	return h.Sum()
}

func checkRecords(t testing.TB, b Block, want [][]byte) {
	t.Helper()
	if b.Len() != len(want) {
		t.Fatalf("%d records, want %d", b.Len(), len(want))
	}
	for i, r := range b.All() {
		if !bytes.Equal(r, want[i]) || !bytes.Equal(b.Record(i), want[i]) {
			t.Fatalf("record %d is %q, want %q", i, r, want[i])
		}
	}
	if !bytes.Equal(b.Payload(), bytes.Join(want, nil)) {
		t.Fatal("payload is not the records")
	}
}

// randomRecords are records of many lengths, empty ones among them.
func randomRecords(r *rand.Rand, n int) (recs [][]byte) {
	for range n {
		rec := make([]byte, r.IntN(4)*r.IntN(100))
		for i := range rec {
			rec[i] = byte(r.Uint32())
		}
		recs = append(recs, rec)
	}
	return recs
}

func TestBlockRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var b Builder
	var block Block
	for n := range 200 {
		recs := randomRecords(r, n)
		b.Reset()
		for _, rec := range recs {
			if err := b.Append(rec); err != nil {
				t.Fatal(err)
			}
		}
		if b.Len() != n || b.Size() != len(bytes.Join(recs, nil)) {
			t.Fatalf("builder has %d records and %d bytes", b.Len(), b.Size())
		}
		h := NewHasher()
		var err error
		if block, err = Decode(b.Finish(h), block); err != nil {
			t.Fatal(err)
		}
		checkRecords(t, block, recs)
		if h.Sum() != sum(block) || h.Records() != uint64(n) || h.Bytes() != uint64(b.Size()) {
			t.Fatal("builder and block differ in digest or counts")
		}
		checkRecords(t, BlockOf(recs...), recs)
	}
}

// A block can be finished again after more records.
func TestFinishTwice(t *testing.T) {
	var b Builder
	_ = b.Append([]byte("one"))
	first := bytes.Clone(b.Finish(NewHasher()))
	_ = b.Append([]byte("two"))
	second, err := Decode(b.Finish(NewHasher()), Block{})
	if err != nil {
		t.Fatal(err)
	}
	checkRecords(t, second, [][]byte{[]byte("one"), []byte("two")})
	if _, err := Decode(first, Block{}); err != nil {
		t.Fatal(err)
	}
}

func TestFull(t *testing.T) {
	var b Builder
	for !b.Full() {
		if err := b.Append(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if b.Size() < BlockSize || b.Size() >= BlockSize+1000 {
		t.Errorf("full at %d bytes", b.Size())
	}
	for b.Reset(); !b.Full(); {
		if err := b.Append(nil); err != nil {
			t.Fatal(err)
		}
	}
	if b.Len() != BlockSize {
		t.Errorf("full at %d empty records", b.Len())
	}
}

func TestRecordLimit(t *testing.T) {
	var b Builder
	if err := b.Append(make([]byte, MaxRecord+1)); !errors.Is(err, ErrTooLarge) || b.Len() != 0 {
		t.Errorf("error %v with %d records, want ErrTooLarge and none", err, b.Len())
	}
	if testing.Short() {
		return
	}
	_ = b.Append(make([]byte, BlockSize-1))
	if err := b.Append(make([]byte, MaxRecord)); err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(b.Finish(NewHasher()), Block{}); err != nil {
		t.Errorf("the largest block: %v", err)
	}
}

func TestBlockDamage(t *testing.T) {
	enc := encodeBlock(t, "some", "", "records")
	refuse := func(src []byte) {
		t.Helper()
		if _, err := Decode(src, Block{}); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("error %v", err)
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
	refuse(make([]byte, 100)) // zero is never valid
	refuse(reseal(make([]byte, 100)))
}

// Lengths that lie are refused even under a right checksum, and before memory is
// taken on their word.
func TestBlockLies(t *testing.T) {
	enc := encodeBlock(t, "some", "", "records")
	at := len(enc) - trailerSize
	for name, lie := range map[string]func(b []byte){
		"size":         func(b []byte) { binary.LittleEndian.PutUint32(b[at:], 1<<31) },
		"lens":         func(b []byte) { binary.LittleEndian.PutUint32(b[at+4:], 1<<31) },
		"count":        func(b []byte) { binary.LittleEndian.PutUint32(b[at+8:], 1<<31) },
		"count short":  func(b []byte) { binary.LittleEndian.PutUint32(b[at+8:], 2) },
		"record long":  func(b []byte) { b[at-1]++ },
		"record short": func(b []byte) { b[at-1]-- },
		"shifted": func(b []byte) {
			binary.LittleEndian.PutUint32(b[at:], 10)
			binary.LittleEndian.PutUint32(b[at+4:], 4)
		},
	} {
		b := bytes.Clone(enc)
		lie(b)
		var err error
		allocs := testing.AllocsPerRun(1, func() { _, err = Decode(reseal(b), Block{}) })
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if allocs > 20 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// The digest depends on the records and where each ends, not on the blocks.
func TestDigestIgnoresCuts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	recs := randomRecords(r, 300)
	want := sum(BlockOf(recs...))
	for range 50 {
		var blocks []Block
		for rest := BlockOf(recs...); rest.Len() > 0; {
			n := 1 + r.IntN(rest.Len())
			blocks = append(blocks, rest.Slice(0, n))
			rest = rest.Slice(n, rest.Len())
		}
		if sum(blocks...) != want {
			t.Fatal("the digest depends on the cuts")
		}
	}
	if sum(BlockOf([]byte("ab"), []byte("c"))) == sum(BlockOf([]byte("a"), []byte("bc"))) {
		t.Error("the digest does not depend on where records end")
	}
	if sum(BlockOf([]byte("a"))) == sum(BlockOf([]byte("a"), nil)) {
		t.Error("the digest does not see an empty record")
	}
}

func TestSlice(t *testing.T) {
	recs := randomRecords(rand.New(rand.NewPCG(5, 6)), 12)
	b := BlockOf(recs...)
	for i := range b.Len() + 1 {
		for j := i; j <= b.Len(); j++ {
			s := b.Slice(i, j)
			checkRecords(t, s, recs[i:j])
			if s.Len() > 1 {
				checkRecords(t, s.Slice(1, s.Len()), recs[i+1:j])
			}
		}
	}
	// A slice cannot reach what follows it.
	s := b.Slice(0, 3)
	if cap(s.Payload()) != len(s.Payload()) {
		t.Error("an append to the payload of a slice would change the block")
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	var b Builder
	rec := make([]byte, 100)
	for !b.Full() {
		_ = b.Append(rec)
	}
	h := NewHasher()
	b.Finish(h)
	if n := testing.AllocsPerRun(10, func() {
		b.Reset()
		for !b.Full() {
			_ = b.Append(rec)
		}
		b.Finish(h)
	}); n != 0 {
		t.Errorf("%v allocations per block", n)
	}
}

func FuzzBlock(f *testing.F) {
	for _, recs := range [][]string{{}, {""}, {"a", "bc"}, goldenRecords} {
		f.Add(encodeBlock(f, recs...), false)
		f.Add(encodeBlock(f, recs...), true)
	}
	f.Fuzz(func(t *testing.T, src []byte, fix bool) {
		if fix && len(src) >= 4 {
			src = reseal(bytes.Clone(src))
		}
		b, err := Decode(src, Block{})
		if err != nil {
			return
		}
		var again Builder
		for _, r := range b.All() {
			if err := again.Append(r); err != nil {
				t.Fatal(err)
			}
		}
		// Lengths can be written in more than one way, so compare what is read.
		c, err := Decode(again.Finish(NewHasher()), Block{})
		if err != nil || c.Len() != b.Len() || sum(b) != sum(c) || !bytes.Equal(b.Payload(), c.Payload()) {
			t.Errorf("%x is not the same when written again: %v", src, err)
		}
	})
}

func BenchmarkBuilder(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var block Builder
			h := NewHasher()
			rec := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				_ = block.Append(rec)
				if block.Full() {
					block.Finish(h)
					block.Reset()
				}
			}
		})
	}
}
