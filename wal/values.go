package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/walsink/walsink/record"
)

// values is the file of a generation that holds its blocks, and other values that
// are not small, one after the other. Badger holds where each is. It could keep them
// itself, in its value log; that is written through a mapping of a sparse file, at
// the price of a page fault for each 4 KiB, two copies, and on a full disk a signal
// that ends the process.
//
// One goroutine at a time appends, one reserves and one syncs, each beside the others
// and beside those that read.
type values struct {
	f        *os.File     // nil if a generation that is read has none
	used     atomic.Int64 // bytes appended
	reserved atomic.Int64 // bytes for which there are blocks
	synced   atomic.Int64
	started  int64 // bytes that the disk was told to begin with
}

// metaPointer marks an entry of Badger whose value is where the value is.
const metaPointer = 1

// pointerSize is the length of such a place: offset and length.
const pointerSize = 12

// maxValue is more than an encoded block takes.
const maxValue = 2 * record.MaxRecord

// writeStep is how much is given to the disk at a time while it is written.
const writeStep = 4 << 20

// errShort says that the file ends before a value does.
var errShort = errors.New("file " + valueFile + " is cut short")

// create makes the file.
func (v *values) create(dir string) (err error) {
	v.f, err = os.OpenFile(filepath.Join(dir, valueFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	return noSpace(err)
}

// open opens the file for reading. A generation that was made by a build that wrote
// values through Badger has none.
func (v *values) open(dir string) (err error) {
	v.f, err = os.Open(filepath.Join(dir, valueFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// fit reports whether so many bytes can be appended.
func (v *values) fit(bytes int64) bool {
	return v.used.Load()+bytes <= v.reserved.Load()
}

// reserve takes blocks for so many bytes in all, and some more if there are.
func (v *values) reserve(bytes int64) error {
	reserved := v.reserved.Load()
	if bytes <= reserved {
		return nil
	}
	ahead := max(bytes, reserved+min(reserveStep, reserved))
	err := reserveBlocks(v.f, ahead)
	if errors.Is(err, ErrNoSpace) && ahead > bytes {
		ahead = bytes
		err = reserveBlocks(v.f, ahead)
	}
	if err != nil {
		return err
	}
	v.reserved.Store(ahead)
	return nil
}

// append writes a value and returns where it is.
func (v *values) append(value []byte) (ptr []byte, err error) {
	at := v.used.Load()
	if _, err := v.f.WriteAt(value, at); err != nil {
		return nil, noSpace(err)
	}
	end := at + int64(len(value))
	v.used.Store(end)
	if end-v.started >= writeStep {
		startWriting(v.f, v.started, end)
		v.started = end
	}
	ptr = binary.LittleEndian.AppendUint64(make([]byte, 0, pointerSize), uint64(at))
	return binary.LittleEndian.AppendUint32(ptr, uint32(len(value))), nil
}

// read appends the value at a place to dst.
func (v *values) read(ptr, dst []byte) ([]byte, error) {
	switch {
	case len(ptr) != pointerSize:
		return dst, fmt.Errorf("place of %d bytes, want %d", len(ptr), pointerSize)
	case v.f == nil:
		return dst, fmt.Errorf("file %s is missing", valueFile)
	}
	at, length := binary.LittleEndian.Uint64(ptr), binary.LittleEndian.Uint32(ptr[8:])
	if length > maxValue || at > 1<<62 {
		return dst, fmt.Errorf("place of %d bytes at %d", length, at)
	}
	start, size := len(dst), int(length)
	if cap(dst)-start < size {
		dst = append(make([]byte, 0, start+size), dst...)
	}
	dst = dst[:start+size]
	n, err := v.f.ReadAt(dst[start:], int64(at))
	if n == size {
		return dst, nil
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it ends at %d, and a value of %d bytes begins at %d", errShort, int64(at)+int64(n), size, at)
	}
	return dst[:start], err
}

// sync makes durable what was appended before.
func (v *values) sync() error {
	used := v.used.Load()
	if used == v.synced.Load() {
		return nil
	}
	if err := syncData(v.f); err != nil {
		return err
	}
	v.synced.Store(used)
	return nil
}

// finish gives the blocks back that were not used, and closes the file.
func (v *values) finish() error {
	if v.f == nil {
		return nil
	}
	return errors.Join(v.f.Truncate(v.used.Load()), v.close())
}

func (v *values) close() error {
	if v.f == nil {
		return nil
	}
	f := v.f
	v.f = nil
	return f.Close()
}

// intact reports whether a value ends with the checksum that finish gave it.
func intact(value []byte) bool {
	n := len(value) - 4
	return n > 0 && crc32.Checksum(value[:n], castagnoli) == binary.LittleEndian.Uint32(value[n:])
}

// cutReserved gives back the blocks behind the end of the file of values, which a
// process that was killed had taken ahead.
func cutReserved(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if used(info) <= (info.Size()+slack)/slack*slack {
		return nil
	}
	return os.Truncate(path, info.Size())
}
