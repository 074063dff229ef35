package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func testBatch() Batch {
	return Batch{
		Seq: 7, Checkpoint: 42, Prev: Genesis("orders", "0"), Records: 3, Bytes: 1 << 33,
		Digest:   Digest{1, 2, 3, 15: 16},
		Position: []byte(`{"offset":9}`), Format: "ndjson/1", SealedAt: 1700000000000,
	}
}

func TestBatchRoundTrip(t *testing.T) {
	for name, b := range map[string]Batch{
		"full":  testBatch(),
		"zero":  {},
		"large": {Position: bytes.Repeat([]byte("p"), MaxPosition), Format: strings.Repeat("f", MaxFormat), SealedAt: -1},
	} {
		t.Run(name, func(t *testing.T) {
			enc, err := b.AppendBinary([]byte("before"))
			if err != nil {
				t.Fatal(err)
			}
			var got Batch
			if err := got.UnmarshalBinary(enc[len("before"):]); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, b) {
				t.Errorf("got %+v, want %+v", got, b)
			}
			if got.Chain() != b.Chain() {
				t.Error("the chain value changed")
			}
		})
	}
}

func TestBatchLimits(t *testing.T) {
	for _, b := range []Batch{
		{Position: make([]byte, MaxPosition+1)},
		{Format: strings.Repeat("f", MaxFormat+1)},
	} {
		if _, err := b.MarshalBinary(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("error %v, want ErrTooLarge", err)
		}
	}
}

// Every prefix, every flipped bit and every byte too many is refused, and leaves
// the batch as it was.
func TestBatchDamage(t *testing.T) {
	enc, err := testBatch().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(src []byte) {
		t.Helper()
		got := Batch{Seq: 99}
		err := got.UnmarshalBinary(src)
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("error %v", err)
		}
		if !reflect.DeepEqual(got, Batch{Seq: 99}) {
			t.Fatal("the batch was changed")
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
}

func TestVersions(t *testing.T) {
	enc, _ := testBatch().MarshalBinary()
	enc[0] = version + 1
	if err := new(Batch).UnmarshalBinary(reseal(enc)); !errors.Is(err, ErrVersion) {
		t.Errorf("batch of a newer version: %v", err)
	}
	block := encodeBlock(t, "a", "bc")
	block[len(block)-5] = version + 1
	if _, err := Decode(reseal(block), Block{}); !errors.Is(err, ErrVersion) {
		t.Errorf("block of a newer version: %v", err)
	}
}

// TestGolden reads what version 1 wrote, for ever.
func TestGolden(t *testing.T) {
	batch, err := testBatch().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var recs [][]byte
	for _, r := range goldenRecords {
		recs = append(recs, []byte(r))
	}
	for name, enc := range map[string][]byte{"batch-1.hex": batch, "block-1.hex": encodeBlock(t, goldenRecords...)} {
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(enc) + "\n"; got != string(want) {
			t.Errorf("%s: this build writes\n%s\nversion 1 is\n%s", name, got, want)
		}
	}
	raw, err := os.ReadFile(filepath.Join("testdata", "block-1.hex"))
	if err != nil {
		t.Fatal(err)
	}
	enc, err := hex.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Decode(enc, Block{})
	if err != nil {
		t.Fatal(err)
	}
	checkRecords(t, b, recs)
}

var goldenRecords = []string{"first", "", "third\x00record", strings.Repeat("4", 130)}

// TestChainVectors fixes the values that stores hold.
func TestChainVectors(t *testing.T) {
	for _, v := range []struct{ what, got, want string }{
		{"genesis", Genesis("orders", "0").String(), "213d64ec82a2a7469ca51f44723d1a43910690b267ff34c94a08e8fa1270b866"},
		{"chain", testBatch().Chain().String(), "690b51e9cfad96302224472f7905313ba7f758fa0719018ca12babccbcbcb8a8"},
		{"digest", sum(BlockOf([]byte("a"), nil, []byte("bc"))).String(), "44bc2cf5ad7709991c97e095e492b2a8"},
	} {
		if v.got != v.want {
			t.Errorf("%s is %s, want %s", v.what, v.got, v.want)
		}
	}
}

func TestGenesisKeepsNamesApart(t *testing.T) {
	if Genesis("a", "bc") == Genesis("ab", "c") {
		t.Error("two names, one genesis")
	}
}

// Every field of the chain matters, and no other does.
func TestChainFields(t *testing.T) {
	base := testBatch()
	for name, change := range map[string]func(*Batch){
		"prev":       func(b *Batch) { b.Prev[5]++ },
		"checkpoint": func(b *Batch) { b.Checkpoint++ },
		"records":    func(b *Batch) { b.Records++ },
		"bytes":      func(b *Batch) { b.Bytes++ },
		"digest":     func(b *Batch) { b.Digest[0]++ },
		"position":   func(b *Batch) { b.Position = []byte("else") },
	} {
		b := base
		if change(&b); b.Chain() == base.Chain() {
			t.Errorf("%s is not part of the chain", name)
		}
	}
	b := base
	b.Seq, b.Format, b.SealedAt = 1, "other", 1
	if b.Chain() != base.Chain() {
		t.Error("sequence, format or time are part of the chain")
	}
	h := base.Head()
	if h.Chain != base.Chain() || h.Seq != base.Seq || h.Checkpoint != base.Checkpoint || !bytes.Equal(h.Position, base.Position) {
		t.Errorf("head is %+v", h)
	}
}

func TestHexText(t *testing.T) {
	c := Genesis("a", "b")
	text, err := c.MarshalText()
	if err != nil || string(text) != c.String() {
		t.Fatal(string(text), err)
	}
	var back Chain
	if err := back.UnmarshalText(text); err != nil || back != c {
		t.Fatal(back, err)
	}
	var d Digest
	for _, bad := range []string{"", "00", strings.Repeat("0", 31), strings.Repeat("g", 32)} {
		if err := d.UnmarshalText([]byte(bad)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("digest %q: %v", bad, err)
		}
		if err := back.UnmarshalText([]byte(bad)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("chain %q: %v", bad, err)
		}
	}
}

func FuzzBatch(f *testing.F) {
	enc, _ := testBatch().MarshalBinary()
	empty, _ := Batch{}.MarshalBinary()
	for _, seed := range [][]byte{enc, empty, {}, enc[:40]} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, src []byte, fix bool) {
		if fix && len(src) >= 4 { // get past the checksum
			src = reseal(bytes.Clone(src))
		}
		var b Batch
		if b.UnmarshalBinary(src) != nil {
			return
		}
		again, err := b.MarshalBinary()
		if err != nil || !bytes.Equal(again, src) {
			t.Errorf("%x was read and is written as %x, %v", src, again, err)
		}
	})
}
