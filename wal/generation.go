package wal

import (
	"errors"
	"sync"
)

// A generation is one store of the log. Fields in the second group belong to
// Log.mu.
type generation struct {
	number uint64
	shape  shape
	small  bool // made of the spare blocks, for control entries only

	live    int   // batches that need it, open ones included
	index   int64 // index bytes used or, when closed, 0
	values  int64 // value bytes used or, when closed, bytes on disk
	carried bool  // holds the state of all lanes, synced
	damage  error // why it cannot be read
	foreign bool  // holds entries that another process did not get to sync

	mu       sync.RWMutex // held shared while st is in use
	st       store        // nil while not open
	created  bool         // st was created, not opened
	writable bool         // takes entries

	syncing sync.Mutex // after mu
	lost    error      // why a sync failed, which is final
}

// errRetired says that a generation takes no more entries.
var errRetired = errors.New("generation is retired")

func (g *generation) append(entries ...entry) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.writable {
		return errRetired
	}
	return g.st.append(entries...)
}

func (g *generation) reserve(bytes int64) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.writable {
		return errRetired
	}
	return g.st.reserve(bytes)
}

// sync makes durable what was appended. It does nothing for one that was closed,
// which was synced before.
func (g *generation) sync() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.syncing.Lock()
	defer g.syncing.Unlock()
	if g.created && g.lost == nil {
		g.lost = g.st.sync()
	}
	return g.lost
}

// syncBlocks makes the values durable that were appended, not the index.
func (g *generation) syncBlocks() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.syncing.Lock()
	defer g.syncing.Unlock()
	if g.created && g.lost == nil {
		g.lost = g.st.syncValues()
	}
	return g.lost
}

// syncForeign makes durable what the process before, which was killed, left
// unsynced: it is there, and what is acknowledged from now on builds on it.
func (l *Log) syncForeign(g *generation) error {
	for {
		g.mu.RLock()
		if g.st != nil {
			defer g.mu.RUnlock()
			return g.st.sync()
		}
		g.mu.RUnlock()
		if err := l.openReader(g); err != nil {
			return err
		}
	}
}

// retire ends writing: it syncs and closes the store. Others can read and sync
// until it is closed.
func (g *generation) retire() (size int64, err error) {
	g.mu.Lock()
	writable := g.writable
	g.writable = false
	g.mu.Unlock()
	if !writable {
		return 0, nil
	}
	err = g.sync()
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.st
	g.st, g.created = nil, false
	if err != nil {
		return 0, errors.Join(err, st.close())
	}
	if g.lost = st.close(); g.lost != nil {
		return 0, g.lost
	}
	return st.size(), nil
}

// abandon ends writing without a sync: nothing is known to be durable by it.
func (g *generation) abandon() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.writable {
		return nil
	}
	g.writable, g.created, g.lost = false, false, errRetired
	st := g.st
	g.st = nil
	return st.close()
}

// closeReader closes the store if it is open for reading.
func (g *generation) closeReader() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.st == nil || g.created {
		return nil
	}
	st := g.st
	g.st = nil
	return st.close()
}

// get reads a value, opening the store if need be.
func (l *Log) get(g *generation, key, dst []byte) ([]byte, error) {
	for {
		g.mu.RLock()
		if g.st != nil {
			defer g.mu.RUnlock()
			return g.st.get(key, dst)
		}
		g.mu.RUnlock()
		if err := l.openReader(g); err != nil {
			return dst, err
		}
	}
}

// maxReaders is how many generations are kept open for reading.
const maxReaders = 2

func (l *Log) openReader(g *generation) error {
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	if l.filesClosed {
		return ErrClosed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.st != nil {
		return nil
	}
	st, err := l.files.open(g.number)
	if err != nil {
		return err
	}
	g.st = st
	l.readers = append(l.readers, g)
	if len(l.readers) > maxReaders {
		oldest := l.readers[0]
		l.readers = l.readers[1:]
		return oldest.closeReader()
	}
	return nil
}

// createGeneration makes the next generation.
func (l *Log) createGeneration(n uint64, small bool) (*generation, error) {
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	st, err := l.files.create(n, small)
	if err != nil {
		return nil, err
	}
	return &generation{number: n, shape: shapeOf(l.opts.GenerationBytes, small), small: small, st: st, created: true, writable: true}, nil
}

// dropGeneration removes a generation that nobody needs.
func (l *Log) dropGeneration(g *generation) error {
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	for i, r := range l.readers {
		if r == g {
			l.readers = append(l.readers[:i:i], l.readers[i+1:]...)
			break
		}
	}
	return errors.Join(g.closeReader(), l.files.drop(g.number))
}

// charge counts entries that were appended. The caller holds Log.mu.
func (g *generation) charge(entries ...entry) {
	index, values := cost(entries...)
	g.index += index
	g.values += values
}
