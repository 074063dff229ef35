package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/walsink/walsink/internal/crash"
)

// Files of a generation beside those of Badger, and the one of Badger that is named
// here: there is one memory table, because a generation never outgrows it.
const (
	valueFile  = "BLOCKS"
	indexFile  = "00001.mem"
	syncedFile = "SYNCED" // the last synced version; its presence ends creation
	sealedFile = "SEALED" // checksums of the files that a clean close left
)

const (
	genPrefix  = "gen-"
	dropPrefix = "drop-"
	spareFile  = "SPARE" // blocks kept for a small generation
)

const (
	// slack is more than Badger writes beyond the end of an entry.
	slack = 64 << 10
	// fileCost is what the other files of a new generation take.
	fileCost = 256 << 10
	// floor is what must stay free where blocks cannot be taken ahead of use.
	floor = 64 << 20
	// reserveStep is by how much blocks for values are taken ahead.
	reserveStep = 16 << 20
)

// A badgerDirs is the real backend: directories gen-00000001, gen-00000002, ...
type badgerDirs struct {
	dir        string
	generation int64
	log        *slog.Logger
	kept       map[uint64]*badgerStore // those of a crash, see open
	home       os.FileInfo             // of dir when it was first listed
}

// inPlace fails if another directory is where the log's was, as when its disk was
// unmounted. What is written there would be acknowledged and not found again.
func (d *badgerDirs) inPlace() error {
	now, err := os.Stat(d.dir)
	if err == nil && d.home != nil && !os.SameFile(d.home, now) {
		err = fmt.Errorf("%s is no longer the directory that was opened; see whether its disk is mounted, and start again", d.dir)
	}
	return err
}

func (d *badgerDirs) path(n uint64) string {
	return filepath.Join(d.dir, fmt.Sprintf("%s%08d", genPrefix, n))
}

func (d *badgerDirs) list() ([]uint64, error) {
	files, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	if d.home, err = os.Stat(d.dir); err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, f := range files {
		path := filepath.Join(d.dir, f.Name())
		if strings.HasPrefix(f.Name(), dropPrefix) {
			if err := os.RemoveAll(path); err != nil {
				return nil, err
			}
			continue
		}
		digits, ok := strings.CutPrefix(f.Name(), genPrefix)
		n, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil {
			continue
		}
		if unfinished(path) {
			d.log.Info("log generation was never finished, removing it", "generation", n)
			if err := os.RemoveAll(path); err != nil {
				return nil, err
			}
			continue
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}

// unfinished reports whether a generation was never ready to take an entry.
func unfinished(dir string) bool {
	for _, name := range []string{syncedFile, sealedFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	index, err := os.ReadFile(filepath.Join(dir, indexFile))
	return err != nil || indexEnd(index) <= logHeader
}

func (d *badgerDirs) create(n uint64, small bool) (store, error) {
	if err := d.inPlace(); err != nil {
		return nil, fmt.Errorf("create generation %d: %w", n, err)
	}
	if small {
		if err := os.Remove(filepath.Join(d.dir, spareFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := raiseFormat(d.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("create generation %d: %w", n, err)
	}
	s := &badgerStore{dir: d.path(n), shape: shapeOf(d.generation, small), writable: true, log: d.log}
	if err := s.create(); err != nil {
		if cerr := errors.Join(s.close(), os.RemoveAll(s.dir)); cerr != nil {
			d.log.Warn("removing a log generation that could not be created", "generation", n, "error", cerr)
		}
		return nil, fmt.Errorf("create generation %d: %w", n, err)
	}
	if err := firstErr(syncDir(d.dir), d.inPlace()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	d.keepSpare()
	return s, nil
}

// keepSpare takes the blocks of two small generations, or of one, if there are
// any left: it is called whenever blocks may have become free.
func (d *badgerDirs) keepSpare() {
	if d.inPlace() != nil {
		return
	}
	path := filepath.Join(d.dir, spareFile)
	s := shapeOf(d.generation, true)
	one := s.index + s.headroom + fileCost + 4*slack
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return // there will be another time
	}
	if reserveBlocks(f, 2*one) != nil && reserveBlocks(f, one) != nil {
		_ = os.Remove(path)
	}
	_ = f.Close()
}

// takeSpace makes a file with blocks for so many bytes, or fails with ErrNoSpace.
func takeSpace(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return noSpace(err)
	}
	return errors.Join(reserveBlocks(f, size), f.Close())
}

// reserveBlocks takes the blocks of a file up to size; where the file system
// cannot, it checks that they and a floor are free.
func reserveBlocks(f *os.File, size int64) error {
	err := allocate(f, size)
	if !errors.Is(err, errNoAllocate) {
		return noSpace(err)
	}
	avail, err := free(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if avail < floor+max(0, size-used(info)) {
		return fmt.Errorf("%w: %d bytes free, which leaves less than the floor of %d", ErrNoSpace, avail, int64(floor))
	}
	return nil
}

// noSpace turns "disk full" into ErrNoSpace and leaves other errors alone.
func noSpace(err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// create makes the directory and everything in it. Badger maps its new files and
// writes into them before anybody could reserve their blocks, so the same amount
// is taken first and given back just before.
func (s *badgerStore) create() error {
	if err := makeDir(s.dir); err != nil {
		return noSpace(err)
	}
	space := filepath.Join(s.dir, "space")
	err := takeSpace(space, s.shape.index+s.shape.headroom+fileCost+2*slack)
	if err := errors.Join(err, os.Remove(space)); err != nil {
		return err
	}
	if err := s.openBadger(); errors.Is(err, errFault) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err) // somebody was faster; if the disk is gone, the next attempt says so
	} else if err != nil {
		return err
	}
	if s.indexLog, err = openToSync(filepath.Join(s.dir, indexFile)); err != nil {
		return err
	}
	if err := s.reserveIndex(s.shape.index + slack); err != nil {
		return err
	}
	if err := s.values.create(s.dir); err != nil {
		return err
	}
	if err := s.reserve(s.shape.headroom); err != nil {
		return err
	}
	if err := private(s.dir); err != nil {
		return err
	}
	if err := createFile(filepath.Join(s.dir, syncedFile), encodeSynced(0)); err != nil {
		return noSpace(err)
	}
	return nil
}

func (s *badgerStore) reserveIndex(size int64) error {
	f, err := os.OpenFile(filepath.Join(s.dir, indexFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(reserveBlocks(f, size), f.Close())
}

func (s *badgerStore) reserve(bytes int64) error { return s.values.reserve(bytes) }

// open opens a generation for reading. One that was not closed has its index in a
// memory table still. Badger never closes the file of such a table in a database
// that is only read, so these stay open until they are dropped.
func (d *badgerDirs) open(n uint64) (store, error) {
	if s := d.kept[n]; s != nil {
		return s, nil
	}
	s := &badgerStore{dir: d.path(n), shape: shapeOf(d.generation, false), log: d.log}
	s.synced.Store(readSynced(s.dir))
	if err := prepareFiles(s.dir); err != nil {
		return nil, err
	}
	if err := s.values.open(s.dir); err != nil {
		return nil, err
	}
	if err := s.openBadger(); err != nil {
		return nil, errors.Join(err, s.values.close())
	}
	s.last.Store(s.db.MaxVersion())
	if err := s.dropTorn(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if _, err := os.Stat(filepath.Join(s.dir, indexFile)); err == nil {
		s.keep = true
		if d.kept == nil {
			d.kept = make(map[uint64]*badgerStore)
		}
		d.kept[n] = s
	}
	return s, nil
}

// closeKept closes a store that open kept.
func (d *badgerDirs) closeKept(n uint64) error {
	s := d.kept[n]
	if s == nil {
		return nil
	}
	delete(d.kept, n)
	s.keep = false
	return s.close()
}

func (d *badgerDirs) close() error {
	var errs []error
	for n := range d.kept {
		errs = append(errs, d.closeKept(n))
	}
	d.keepSpare()
	return errors.Join(errs...)
}

func (d *badgerDirs) drop(n uint64) error {
	if err := d.closeKept(n); err != nil {
		return err
	}
	gone := filepath.Join(d.dir, fmt.Sprintf("%s%08d", dropPrefix, n))
	if err := os.Rename(d.path(n), gone); err != nil {
		return err
	}
	if err := syncDir(d.dir); err != nil {
		return err
	}
	crash.Point(crash.DropHalf)
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	d.keepSpare()
	return nil
}

// encodeSynced is the content of the file SYNCED: magic, version, CRC-32C.
func encodeSynced(version uint64) []byte {
	b := binary.LittleEndian.AppendUint64([]byte("walsync1"), version)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// writeSynced notes that all up to a version is synced. The note itself is not
// synced: it may be late, never early.
func writeSynced(dir string, version uint64) error {
	f, err := os.OpenFile(filepath.Join(dir, syncedFile), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(encodeSynced(version), 0)
	return errors.Join(err, f.Close())
}

// readSynced returns what writeSynced noted, or 0.
func readSynced(dir string) uint64 {
	b, err := os.ReadFile(filepath.Join(dir, syncedFile))
	if err != nil || len(b) != 20 || string(b[:8]) != "walsync1" ||
		crc32.Checksum(b[:16], castagnoli) != binary.LittleEndian.Uint32(b[16:]) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[8:])
}

// makeDir makes a directory that only its owner can use, whatever the umask.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// private takes the rights of others from the files in dir, whatever the umask.
func private(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Chmod(filepath.Join(dir, f.Name()), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// createFile makes a file with its content, wholly or not at all, durably.
func createFile(path string, content []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
