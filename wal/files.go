package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// prepareFiles makes a generation ready to be opened for reading, without taking
// space. After a clean close it compares the files with their checksums, because
// Badger ends the process on some kinds of damage in them. After a crash it cuts
// the files to what was written, which Badger refuses to do for a reader.
func prepareFiles(dir string) error {
	sums, err := os.ReadFile(filepath.Join(dir, sealedFile))
	if err == nil {
		return checkFiles(dir, sums)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		switch filepath.Ext(f.Name()) {
		case ".mem":
			err = cutIndex(path)
		case ".vlog":
			err = cutValues(path)
		}
		if f.Name() == valueFile {
			err = cutReserved(path)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return forgetTable(dir)
}

// emptyManifest is the length of a manifest of Badger that lists no table.
const emptyManifest = 16

// forgetTable cuts the manifest to what it was before the memory table became a table
// file, if there is none and the log of the memory table still is, which has everything.
// Badger leaves that when the manifest could not be synced: it removes the file that it
// has listed, and would then refuse the directory.
func forgetTable(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, indexFile)); err != nil {
		return ignoreAbsent(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) > 0 {
		return err
	}
	path := filepath.Join(dir, "MANIFEST")
	info, err := os.Stat(path)
	if err != nil || info.Size() <= emptyManifest {
		return ignoreAbsent(err)
	}
	return os.Truncate(path, emptyManifest)
}

// ignoreAbsent is for a file that Badger will ask for, if it is needed.
func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// logHeader is the length of the header of Badger's log files.
const logHeader = 20

// cutIndex cuts the log of a memory table behind its last whole transaction, or
// removes it if there is none.
func cutIndex(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	end := indexEnd(b)
	if end <= logHeader {
		return os.Remove(path)
	}
	if end == len(b) {
		return nil
	}
	return os.Truncate(path, int64(end))
}

// Flags in the header of an entry.
const (
	metaTxn = 1 << 6 // part of a transaction
	metaFin = 1 << 7 // end of a transaction
)

// indexEnd is the end of the last whole transaction in the log of a memory
// table: an entry is header, key, value and CRC-32C, a transaction is entries of
// one version and one that ends them.
func indexEnd(b []byte) int {
	end, open := logHeader, uint64(0)
	for at := logHeader; at < len(b); {
		h, ok := parseHeader(b[at:])
		size := h.size + h.key + h.value
		if !ok || h.key == 0 || h.key > 1<<16 || size+4 > int64(len(b)-at) {
			return end
		}
		body := b[at : at+int(size)]
		if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[at+int(size):]) {
			return end
		}
		at += int(size) + 4
		key := body[h.size : h.size+h.key]
		switch {
		case h.meta&metaTxn != 0 && (open == 0 || open == versionOf(key)):
			open = versionOf(key)
		case h.meta&metaFin != 0 && string(body[h.size+h.key:]) == fmt.Sprint(open):
			end, open = at, 0
		default:
			return end
		}
	}
	return end
}

// versionOf is the version that Badger appends to a key.
func versionOf(key []byte) uint64 {
	if len(key) <= 8 {
		return 0
	}
	return math.MaxUint64 - binary.BigEndian.Uint64(key[len(key)-8:])
}

// An entryHeader is the start of an entry in a log of Badger.
type entryHeader struct {
	meta             byte
	size, key, value int64
}

// parseHeader reads an entry's header: two bytes of flags, then the lengths of
// key and value and the expiry as uvarints.
func parseHeader(b []byte) (h entryHeader, ok bool) {
	if len(b) < 5 {
		return h, false
	}
	h.meta, h.size = b[0], 2
	for _, dst := range [...]*int64{&h.key, &h.value, new(int64)} {
		v, n := binary.Uvarint(b[h.size:])
		if n <= 0 || v > math.MaxUint32 {
			return h, false
		}
		*dst, h.size = int64(v), h.size+int64(n)
	}
	return h, true
}

// cutValues gives back the blocks that were reserved and never written, if the
// file holds nothing behind its last entry.
func cutValues(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return os.Remove(path)
	}
	end, err := valuesEnd(f, info.Size())
	if err != nil {
		return err
	}
	if end = (end + slack - 1) / slack * slack; end < info.Size() && blank(f, end) {
		return f.Truncate(end)
	}
	return nil
}

// valuesEnd hops over the entries of a value log, which format 1 used, without
// reading the values.
func valuesEnd(r io.ReaderAt, size int64) (int64, error) {
	var buf [22]byte
	for at := int64(logHeader); ; {
		n, err := r.ReadAt(buf[:], at)
		if err != nil && err != io.EOF {
			return 0, err
		}
		h, ok := parseHeader(buf[:n])
		next := at + h.size + h.key + h.value + 4
		if !ok || h.key == 0 || next > size {
			return at, nil
		}
		at = next
	}
}

// sealFiles writes the checksums of the files that Badger trusts blindly.
func sealFiles(dir string) error {
	if err := private(dir); err != nil {
		return err
	}
	sums, err := sumFiles(dir)
	if err != nil {
		return err
	}
	if err := createFile(filepath.Join(dir, sealedFile), sums); err != nil && !isNoSpace(err) {
		return err
	}
	return nil // without the file the generation counts as one of a crash
}

func checkFiles(dir string, want []byte) error {
	got, err := sumFiles(dir)
	if err != nil {
		return err
	}
	if bytes.Equal(got, want) {
		return nil
	}
	known := make(map[string]bool)
	for line := range bytes.Lines(want) {
		known[string(line)] = true
	}
	for line := range bytes.Lines(got) {
		if !known[string(line)] {
			return fmt.Errorf("file %s is not as it was written", strings.Fields(string(line))[0])
		}
	}
	return errors.New("a file is missing, or SEALED is not as it was written")
}

// sumFiles lists the manifest, the key registry and the tables of a generation
// with their sizes and checksums, one a line.
func sumFiles(dir string) ([]byte, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, f := range files {
		name := f.Name()
		if name != "MANIFEST" && name != "KEYREGISTRY" && filepath.Ext(name) != ".sst" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, "%s %d %08x\n", name, len(b), crc32.Checksum(b, castagnoli))
	}
	return out, nil
}
