package state

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/pipeline"
)

// ErrBehind says that a checkpoint needs state which the directory does not hold:
// it was removed, replaced or rolled back. It wraps committer.ErrStateBehind.
var ErrBehind = fmt.Errorf("%w: the state directory is not the one of the checkpoint", committer.ErrStateBehind)

// Options configure a Store. The zero value is usable.
type Options struct {
	// Dirty is the number of bytes of changed state that a lane may hold in memory;
	// default 16 MiB.
	Dirty int
	// Logger gets Badger's warnings. Default slog.Default().
	Logger *slog.Logger
}

// A Store is keyed state in a directory; it is a pipeline.KeyedState for one
// stage. It is safe for concurrent use.
type Store struct {
	dir     string
	dirty   int
	db      *badger.DB
	lock    *os.File
	id      []byte        // of the directory, made when it was
	clock   atomic.Uint64 // highest version that was given out
	written atomic.Uint64 // highest version that was written

	mu       sync.Mutex // guards what follows
	versions map[uint64]uint64
	restored uint64 // version that the store was last restored to
	unused   uint64 // clock right after that; 0 if it was never restored
	closed   bool
}

const (
	defaultDirty = 16 << 20
	idSize       = 16
	keyPrefix    = 'k'
)

var idKey = []byte("id")

var _ pipeline.KeyedState = (*Store)(nil)

// Open opens or creates the store in a directory.
func Open(dir string, opts Options) (*Store, error) {
	if opts.Dirty <= 0 {
		opts.Dirty = defaultDirty
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open state %s: %w", dir, err)
	}
	s, err := openLocked(dir, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open state %s: %w", dir, err), lock.Close())
	}
	s.lock = lock
	return s, nil
}

func openLocked(dir string, opts Options) (*Store, error) {
	if err := removeEmpty(dir); err != nil {
		return nil, err
	}
	db, err := openBadger(dir, opts.Logger)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, dirty: opts.Dirty, db: db, versions: map[uint64]uint64{}}
	s.clock.Store(db.MaxVersion())
	s.written.Store(db.MaxVersion())
	if err := s.identify(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func openBadger(dir string, log *slog.Logger) (*badger.DB, error) {
	return badger.OpenManaged(badger.DefaultOptions(dir).
		WithLogger(logger{log}).
		WithSyncWrites(true).
		WithCompression(options.None).
		WithBlockCacheSize(32 << 20).
		WithMemTableSize(16 << 20).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithDetectConflicts(false).
		WithValueThreshold(1 << 20).
		WithMetricsEnabled(false))
}

// removeEmpty removes the logs without a byte, which Badger does not open: the
// process was killed between the creation of a file and its first byte.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		ext := filepath.Ext(e.Name())
		if info.Size() == 0 && (ext == ".mem" || ext == ".vlog") {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// identify reads the id of the directory, or gives it one.
func (s *Store) identify() error {
	txn := s.db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	item, err := txn.Get(idKey)
	if err == nil {
		s.id, err = item.ValueCopy(nil)
		return err
	}
	if !errors.Is(err, badger.ErrKeyNotFound) {
		return err
	}
	s.id = make([]byte, idSize)
	rand.Read(s.id)
	return s.write(func(wb *badger.WriteBatch) error { return wb.Set(idKey, s.id) })
}

// write writes what fill puts into a batch, under a new version.
func (s *Store) write(fill func(*badger.WriteBatch) error) error {
	version := s.clock.Add(1)
	wb := s.db.NewWriteBatchAt(version)
	defer wb.Cancel()
	if err := fill(wb); err != nil {
		return err
	}
	if err := wb.Flush(); err != nil {
		return err
	}
	for {
		old := s.written.Load()
		if old >= version || s.written.CompareAndSwap(old, version) {
			return nil
		}
	}
}

// Close closes the store. What was not in a snapshot is lost. It is idempotent.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if err := errors.Join(s.db.Close(), s.lock.Close()); err != nil {
		return fmt.Errorf("close state %s: %w", s.dir, err)
	}
	return nil
}

// Restore goes back to the snapshot that parts name, for all lanes at the first
// call, and returns the state of the lane.
func (s *Store) Restore(_ context.Context, _ pipeline.Owner, parts [][]byte) (pipeline.LaneState, error) {
	version, err := s.version(parts)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("restore state %s: closed", s.dir)
	}
	if s.unused == 0 || version != s.restored || s.clock.Load() != s.unused {
		if err := s.rewind(version); err != nil {
			return nil, fmt.Errorf("restore state %s: %w", s.dir, err)
		}
		s.restored, s.unused = version, s.clock.Load()
	}
	return &lane{store: s, changed: map[string][]byte{}, value: make([]byte, 0, 64)}, nil
}

const handleVersion = 1

// A handle is version u8 = 1, the id of the directory, and the version of the
// snapshot, u64 big endian.
func (s *Store) handle(version uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{handleVersion}, s.id...), version)
}

// version returns the version of the snapshot that parts name together: the
// highest, since all lanes stood still when it was given out.
func (s *Store) version(parts [][]byte) (uint64, error) {
	var version uint64
	for _, p := range parts {
		if len(p) != 1+idSize+8 || p[0] != handleVersion {
			return 0, fmt.Errorf("%w: %s: the checkpoint has no state of this kind", pipeline.ErrSnapshot, s.dir)
		}
		if !bytes.Equal(p[1:1+idSize], s.id) {
			return 0, fmt.Errorf("%w: %s was made anew; restore the directory, or start over under another sink id", ErrBehind, s.dir)
		}
		version = max(version, binary.BigEndian.Uint64(p[1+idSize:]))
	}
	if now := s.written.Load(); version > now {
		return 0, fmt.Errorf("%w: %s is at version %d, the checkpoint is of %d; restore a newer copy", ErrBehind, s.dir, now, version)
	}
	return version, nil
}

// rewind makes every key what it was at a version. A crash in the middle does no
// harm: the next restore does it again.
func (s *Store) rewind(version uint64) error {
	then := s.db.NewTransactionAt(version, false)
	defer then.Discard()
	now := s.db.NewTransactionAt(math.MaxUint64, false)
	defer now.Discard()
	it := now.NewIterator(badger.IteratorOptions{AllVersions: true, SinceTs: version, Prefix: []byte{keyPrefix}})
	defer it.Close()
	if it.Rewind(); !it.Valid() {
		return nil
	}
	return s.write(func(wb *badger.WriteBatch) error {
		var last []byte
		for ; it.Valid(); it.Next() {
			if bytes.Equal(it.Item().Key(), last) {
				continue
			}
			last = it.Item().KeyCopy(nil)
			if err := putBack(wb, then, last); err != nil {
				return err
			}
		}
		return nil
	})
}

func putBack(wb *badger.WriteBatch, then *badger.Txn, key []byte) error {
	item, err := then.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return wb.Delete(key)
	}
	if err != nil {
		return err
	}
	value, err := item.ValueCopy(nil)
	if err != nil {
		return err
	}
	return wb.Set(key, value)
}

// note remembers the version of a checkpoint, for Retire.
func (s *Store) note(checkpoint, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[checkpoint] = max(s.versions[checkpoint], version)
}

// Retire lets Badger forget what no checkpoint from oldest on needs.
func (s *Store) Retire(oldest uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if version, ok := s.versions[oldest]; ok {
		s.db.SetDiscardTs(version)
	}
	for checkpoint := range s.versions {
		if checkpoint < oldest {
			delete(s.versions, checkpoint)
		}
	}
	return nil
}

// A logger hands Badger's warnings on.
type logger struct{ log *slog.Logger }

func (l logger) Errorf(format string, args ...any) {
	l.log.Error("state: " + fmt.Sprintf(format, args...))
}
func (l logger) Warningf(format string, args ...any) {
	l.log.Warn("state: " + fmt.Sprintf(format, args...))
}
func (l logger) Infof(string, ...any)  {}
func (l logger) Debugf(string, ...any) {}
