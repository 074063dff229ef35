package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

func someSnapshot(id uint64) Snapshot {
	return Snapshot{ID: id, Taken: time.UnixMilli(1_700_000_000_123).UTC(), Parts: []Part{
		{Name: "position", Data: []byte("here")}, {Name: "state/count/000", Data: bytes.Repeat([]byte{byte(id)}, 300)}, {Name: "empty", Data: []byte{}},
	}}
}

func TestStorages(t *testing.T) {
	dir, err := OpenDir(filepath.Join(t.TempDir(), "a", "checkpoints"), 2)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Storage{"memory": &Memory{Retain: 2}, "dir": dir} {
		t.Run(name, func(t *testing.T) {
			if got, damaged, err := s.Load(t.Context()); got.ID != 0 || damaged != nil || err != nil {
				t.Fatalf("empty: %v, %v, %v", got, damaged, err)
			}
			for i, want := range []uint64{3, 3, 4, 9} {
				id := []uint64{3, 4, 9, 10}[i]
				snap := someSnapshot(id)
				oldest, err := s.Save(t.Context(), snap)
				if err != nil || oldest != want {
					t.Fatalf("save %d: oldest %d, %v; want %d", id, oldest, err, want)
				}
				got, damaged, err := s.Load(t.Context())
				if !reflect.DeepEqual(got, snap) || damaged != nil || err != nil {
					t.Fatalf("load: %+v, %v, %v", got, damaged, err)
				}
			}
			got, _, _ := s.Load(t.Context())
			if data, ok := got.Part("position"); !ok || string(data) != "here" {
				t.Errorf("part: %q, %v", data, ok)
			}
			if _, ok := got.Part("none"); ok {
				t.Error("a part that is not there")
			}
		})
	}
}

func saved(t *testing.T, ids ...uint64) (*Dir, string) {
	t.Helper()
	path := t.TempDir()
	d, err := OpenDir(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := d.Save(t.Context(), someSnapshot(id)); err != nil {
			t.Fatal(err)
		}
	}
	return d, path
}

// TestDamagedNewest cuts the newest file at every byte and flips bits: the one
// before it is used, and that is said.
func TestDamagedNewest(t *testing.T) {
	d, _ := saved(t, 1, 2)
	name := d.file(2)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	damage := func(b []byte, what string) {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, damaged, err := d.Load(t.Context())
		if got.ID != 1 || len(damaged) != 1 || !errors.Is(damaged[0], ErrCorrupt) || err != nil {
			t.Fatalf("%s: checkpoint %d, %v, %v", what, got.ID, damaged, err)
		}
	}
	for n := range whole {
		damage(whole[:n], fmt.Sprintf("first %d bytes", n))
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1 << (i % 8)
		damage(b, fmt.Sprintf("byte %d", i))
	}
	if _, err := d.Save(t.Context(), someSnapshot(2)); err != nil {
		t.Fatal(err)
	}
	if got, damaged, err := d.Load(t.Context()); got.ID != 2 || damaged != nil || err != nil {
		t.Errorf("written again: %d, %v, %v", got.ID, damaged, err)
	}
}

// TestUnreadableNewest: a file that cannot be read is not passed over, since it may be
// readable the next time.
func TestUnreadableNewest(t *testing.T) {
	d, _ := saved(t, 1, 2)
	content, err := os.ReadFile(d.file(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(d.file(2)), os.Mkdir(d.file(2), 0o700)); err != nil { // reading fails, also for root
		t.Fatal(err)
	}
	if got, damaged, err := d.Load(t.Context()); err == nil || errors.Is(err, ErrCorrupt) || damaged != nil || got.ID != 0 {
		t.Errorf("checkpoint %d, %v, %v", got.ID, damaged, err)
	}
	if err := errors.Join(os.Remove(d.file(2)), os.WriteFile(d.file(2), content, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, damaged, err := d.Load(t.Context()); got.ID != 2 || damaged != nil || err != nil {
		t.Errorf("readable again: %d, %v, %v", got.ID, damaged, err)
	}
}

func TestAllDamaged(t *testing.T) {
	d, _ := saved(t, 1, 2)
	for _, id := range []uint64{1, 2} {
		if err := os.WriteFile(d.file(id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, damaged, err := d.Load(t.Context()); !errors.Is(err, ErrCorrupt) || len(damaged) != 2 {
		t.Errorf("%v, %v", damaged, err)
	}
}

func TestWrongName(t *testing.T) {
	d, _ := saved(t, 1, 2)
	if err := os.Rename(d.file(2), d.file(5)); err != nil {
		t.Fatal(err)
	}
	if got, damaged, err := d.Load(t.Context()); got.ID != 1 || len(damaged) != 1 || err != nil {
		t.Errorf("%d, %v, %v", got.ID, damaged, err)
	}
}

// TestNewerFormat: a snapshot of a later version is no damage, and not to be passed
// over.
func TestNewerFormat(t *testing.T) {
	d, _ := saved(t, 1)
	b := encode(someSnapshot(2))
	b[len(magic)]++
	b = appendCRC(b[:len(b)-4])
	if err := os.WriteFile(d.file(2), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Load(t.Context()); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
}

func TestLeftOvers(t *testing.T) {
	d, path := saved(t, 1)
	for _, name := range []string{d.file(2) + tempSuffix, filepath.Join(path, "other"), filepath.Join(path, filePrefix+"x")} {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := OpenDir(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.file(2) + tempSuffix); !os.IsNotExist(err) {
		t.Error("half a file is still there")
	}
	if got, damaged, err := d.Load(t.Context()); got.ID != 1 || damaged != nil || err != nil {
		t.Errorf("%d, %v, %v", got.ID, damaged, err)
	}
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	d, err := OpenDir(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Save(t.Context(), someSnapshot(1)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{path: 0o700, d.file(1): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestUnreadableDirectory(t *testing.T) {
	d, path := saved(t, 1)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Load(t.Context()); err == nil {
		t.Error("a directory that is gone is taken as empty")
	}
	if _, err := d.Save(t.Context(), someSnapshot(2)); err == nil {
		t.Error("saved into a directory that is gone")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(file, 1); err == nil {
		t.Error("a file is taken as a directory")
	}
}

func appendCRC(b []byte) []byte {
	sum := crc32.Checksum(b, castagnoli)
	return append(b, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
}

func TestGolden(t *testing.T) {
	want, err := os.ReadFile("testdata/snapshot-v1")
	if errors.Is(err, os.ErrNotExist) || *update {
		if err := os.WriteFile("testdata/snapshot-v1", encode(someSnapshot(7)), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Skip("golden file written")
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(slices.Clone(want))
	if err != nil || !reflect.DeepEqual(got, someSnapshot(7)) || !bytes.Equal(encode(got), want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(someSnapshot(1)))
	f.Add(encode(Snapshot{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, in := range [][]byte{b, appendCRC(append([]byte(magic), b...))} {
			s, err := decode(in)
			if err == nil {
				if again, err := decode(encode(s)); err != nil || !reflect.DeepEqual(again, s) {
					t.Errorf("%+v is written as %+v, %v", s, again, err)
				}
			} else if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Error(err)
			}
		}
	})
}
