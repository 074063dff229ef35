package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// A badgerStore is a generation in a Badger directory. It is opened for writing
// once, by the process that creates it, and for reading ever after.
//
// Badger is used for what it is good at, an ordered index whose changes are atomic,
// and kept from everything else: the memory table never fills up, so that nothing
// is flushed or compacted while records come in and one sync covers all that was
// written; nothing is deleted; no file is written that has not got its blocks from
// the file system before. Values that are not small are in a file beside it, to
// which the index points: see values.
type badgerStore struct {
	dir      string
	shape    shape
	writable bool
	log      *slog.Logger
	keep     bool // close does nothing

	put      sync.Mutex // held from the choice of a version until its entries are in
	last     atomic.Uint64
	synced   atomic.Uint64
	index    int64 // index bytes used, under put
	values   values
	indexLog *os.File // the log of the memory table, to be synced

	handle sync.RWMutex // held shared while db is in use
	db     *badger.DB
	fault  atomic.Pointer[error] // what Badger said only in its log
	broken atomic.Bool           // Badger may hold its own locks for ever
}

// badgerOptions are those of a generation; see the package comment.
func badgerOptions(dir string, s shape, readOnly bool) badger.Options {
	o := badger.DefaultOptions(dir)
	o.ReadOnly = readOnly
	o.SyncWrites = false // one explicit Sync per group
	o.MemTableSize = s.index
	o.NumMemtables = 1
	o.ValueThreshold = inline
	o.ValueLogFileSize = 1 << 20 // the least; no value of ours is as long as inline
	o.NumCompactors = 0
	o.CompactL0OnClose = false
	o.Compression = options.None
	o.BlockCacheSize = 0
	o.IndexCacheSize = 0
	o.DetectConflicts = false
	o.MetricsEnabled = false
	o.VerifyValueChecksum = false // our values have checksums of their own
	o.BypassLockGuard = true      // the log has a lock of its own
	return o
}

// openBadger opens a directory. A panic in this goroutine becomes an error, and so does
// a fault: Badger writes the beginning of its new files through mappings.
func (s *badgerStore) openBadger() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(&err)
	o := badgerOptions(s.dir, s.shape, !s.writable)
	o.Logger = badgerLogger{s}
	db, err := badger.OpenManaged(o)
	if err != nil {
		return err
	}
	s.db = db
	return nil
}

// errFault says that a mapped file has no block to read or write.
var errFault = errors.New("fault in a mapped file, as on a disk that is full or gone")

// guard turns a panic, a fault of mapped memory included, into an error. It is
// deferred by functions that call into Badger.
func guard(err *error) {
	switch p := recover().(type) {
	case nil:
	case interface{ Addr() uintptr }:
		*err = fmt.Errorf("badger: %w: %v", errFault, p)
	default:
		*err = fmt.Errorf("badger: %v", p)
	}
}

// use runs fn with the open database and turns a panic into an error. After one
// the database is never closed: it may hold locks that nobody will release.
func (s *badgerStore) use(fn func(*badger.DB) error) (err error) {
	s.handle.RLock()
	defer s.handle.RUnlock()
	if s.db == nil {
		return ErrClosed
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	ok := false
	defer func() {
		if !ok {
			s.broken.Store(true)
		}
	}()
	defer guard(&err)
	err = fn(s.db)
	ok = true
	return err
}

func (s *badgerStore) failure() error {
	if p := s.fault.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *badgerStore) append(entries ...entry) error {
	s.put.Lock()
	defer s.put.Unlock()
	index, values := cost(entries...)
	if s.index+index > s.shape.index || !s.values.fit(values) {
		return fmt.Errorf("%w: generation has no room for %d bytes", ErrNoSpace, index+values)
	}
	if err := s.use(func(db *badger.DB) error { return s.commit(db, entries) }); err != nil {
		return err
	}
	s.index += index
	s.last.Add(1)
	return s.failure()
}

// commit writes the values that are not small, and then the entries.
func (s *badgerStore) commit(db *badger.DB, entries []entry) error {
	txn := db.NewTransactionAt(math.MaxUint64, true)
	defer txn.Discard()
	for _, e := range entries {
		be := badger.NewEntry(e.key, e.value)
		if len(e.value) >= inline {
			ptr, err := s.values.append(e.value)
			if err != nil {
				return err
			}
			be = badger.NewEntry(e.key, ptr).WithMeta(metaPointer)
		}
		if err := txn.SetEntry(be); err != nil {
			return err
		}
	}
	return txn.CommitAt(s.last.Load()+1, nil)
}

func (s *badgerStore) sync() error {
	last := s.last.Load()
	if last == s.synced.Load() {
		return s.failure()
	}
	if err := s.syncFiles(); err != nil {
		return err
	}
	if err := s.failure(); err != nil {
		return err
	}
	if err := writeSynced(s.dir, last); err != nil {
		return err
	}
	s.synced.Store(max(last, s.synced.Load()))
	return nil
}

func (s *badgerStore) syncValues() error { return firstErr(s.failure(), s.values.sync()) }

// syncFiles syncs the values and then the log of the index or, for a reader, all
// files. On Linux, the sync of a file is also that of its mappings (msync(2) does the
// same), and Badger's own Sync would flush the disk once more, for an empty value log.
func (s *badgerStore) syncFiles() error {
	if s.writable {
		if err := s.values.sync(); err != nil {
			return err
		}
		if s.indexLog != nil {
			return syncData(s.indexLog)
		}
		return s.use((*badger.DB).Sync)
	}
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, d := range files {
		f, err := os.OpenFile(filepath.Join(s.dir, d.Name()), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return syncDir(s.dir)
}

func (s *badgerStore) get(key, dst []byte) ([]byte, error) {
	err := s.use(func(db *badger.DB) error {
		txn := db.NewTransactionAt(s.present(), false)
		defer txn.Discard()
		item, err := txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return errAbsent
		}
		if err != nil {
			return err
		}
		dst, err = s.value(item, dst)
		return err
	})
	return dst, err
}

func (s *badgerStore) scan(kind byte, fn func(key, value []byte, version uint64) error) error {
	return s.use(func(db *badger.DB) error {
		txn := db.NewTransactionAt(s.present(), false)
		defer txn.Discard()
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte{kind}})
		defer it.Close()
		var value []byte
		for it.Rewind(); it.Valid(); it.Next() {
			var err error
			item := it.Item()
			if value, err = s.value(item, value[:0]); err != nil {
				return fmt.Errorf("key %q: %w", item.Key(), err)
			}
			if err := fn(item.Key(), value, item.Version()); err != nil {
				return err
			}
		}
		return nil
	})
}

// present is the version up to which entries are there.
func (s *badgerStore) present() uint64 {
	if s.writable {
		return math.MaxUint64
	}
	return s.last.Load()
}

// dropTorn finds what a power cut has torn before it was synced: entries whose values
// are not blocks and did not reach the disk. The first of them ends the generation, as
// if the cut had come before it, so that an append is there as a whole or not at all,
// and none without those before it. Blocks have their batch to tell.
func (s *badgerStore) dropTorn() error {
	synced := s.synced.Load()
	return s.use(func(db *badger.DB) error {
		txn := db.NewTransactionAt(math.MaxUint64, false)
		defer txn.Discard()
		it := txn.NewIterator(badger.IteratorOptions{AllVersions: true, SinceTs: synced})
		defer it.Close()
		var value []byte
		for it.Rewind(); it.Valid(); it.Next() {
			item := it.Item()
			if v := item.Version(); item.UserMeta() != metaPointer || item.Key()[0] == kindBlock || v <= synced || v > s.last.Load() {
				continue
			}
			var err error
			value, err = s.value(item, value[:0])
			if err != nil && !errors.Is(err, errShort) {
				return fmt.Errorf("key %q: %w", item.Key(), err)
			}
			if err != nil || !intact(value) {
				s.last.Store(item.Version() - 1)
			}
		}
		return nil
	})
}

// value appends the value of an entry to dst, wherever it is.
func (s *badgerStore) value(item *badger.Item, dst []byte) ([]byte, error) {
	if item.UserMeta() != metaPointer {
		if len(dst) == 0 {
			return item.ValueCopy(dst)
		}
		err := item.Value(func(v []byte) error {
			dst = append(dst, v...)
			return nil
		})
		return dst, err
	}
	err := item.Value(func(ptr []byte) (err error) {
		dst, err = s.values.read(ptr, dst)
		return err
	})
	return dst, err
}

func (s *badgerStore) versions() (last, synced uint64) { return s.last.Load(), s.synced.Load() }

func (s *badgerStore) size() int64 {
	var sum int64
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return 0
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			sum += used(info)
		}
	}
	return sum
}

// close closes the database. For one that was written, Badger turns the memory
// table into a table file now, for which the blocks that were reserved and not
// used are given back first.
func (s *badgerStore) close() (err error) {
	if s.keep {
		return nil
	}
	s.handle.Lock()
	defer s.handle.Unlock()
	db := s.db
	s.db = nil
	defer s.closeFiles()
	if db == nil || s.broken.Load() {
		return nil
	}
	defer guard(&err)
	if !s.writable {
		_ = db.Close() // nothing was written, so nothing can be lost
		return nil
	}
	if err := errors.Join(s.values.finish(), s.giveBack()); err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if err := s.failure(); err != nil {
		return err
	}
	return sealFiles(s.dir)
}

// closeFiles closes the files that are open beside Badger, if they are. What was written
// to them was synced, or is not known to be there.
func (s *badgerStore) closeFiles() {
	_ = s.values.close()
	if s.indexLog != nil {
		_ = s.indexLog.Close()
		s.indexLog = nil
	}
}

// giveBack frees what was reserved of the index and not used.
func (s *badgerStore) giveBack() error {
	f, err := os.OpenFile(filepath.Join(s.dir, indexFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = punch(f, s.index+slack, s.shape.index+slack)
	if errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// A badgerLogger listens to what Badger only logs. What it says about a
// generation that is being written at warning or above is an error of the
// storage, whatever its methods returned.
type badgerLogger struct{ s *badgerStore }

// flushRetry is what Badger says each second, for ever, when it cannot write its
// memory table on Close.
const flushRetry = "error flushing memtable"

// invalidRead is what Badger says of an entry whose lengths are damaged. It then keeps
// the value log locked for reading, and Close would wait for that lock for ever.
const invalidRead = "Invalid read"

func (l badgerLogger) Errorf(format string, args ...any) {
	text := strings.TrimSpace(fmt.Sprintf(format, args...))
	if strings.HasPrefix(format, invalidRead) {
		l.s.broken.Store(true)
	}
	if !l.s.writable {
		l.s.log.Debug("badger", "dir", l.s.dir, "text", text)
		return
	}
	err := fmt.Errorf("badger: %s", text)
	l.s.fault.CompareAndSwap(nil, &err)
	if strings.HasPrefix(format, flushRetry) {
		runtime.Goexit() // ends the retries; the memory table's own log has everything
	}
}

func (l badgerLogger) Warningf(format string, args ...any) { l.Errorf(format, args...) }
func (l badgerLogger) Infof(string, ...any)                {}
func (l badgerLogger) Debugf(string, ...any)               {}
