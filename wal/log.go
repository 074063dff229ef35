package wal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/walsink/walsink/internal/crash"
)

// A Log is an open log. All methods are safe for concurrent use; what must not
// run beside appending to a lane says so.
type Log struct {
	dir  string
	opts Options
	lock *os.File

	failed   atomic.Pointer[error] // why nothing is taken any more: a failure, or ErrClosed
	jobs     chan job              // full blocks
	finished chan job              // the same with checksums, for the writer
	wake     chan struct{}         // for the tender
	quit     chan struct{}         // closed by Close
	tasks    sync.WaitGroup        // finisher, writer and tender
	rounds   syncRounds

	filesMu     sync.Mutex // guards the next three; taken with or without mu, never before it
	files       backend
	filesClosed bool
	readers     []*generation // open for reading, the oldest first

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced when something changed that others wait for
	lanes      map[string]*Lane
	gens       map[uint64]*generation // all but next
	active     *generation            // takes entries; nil until the first
	next       *generation            // prepared to be active
	retiring   []*generation          // no longer active, still open for writing
	number     uint64                 // of the newest generation
	counter    uint32                 // of the last batch id
	complete   completeState
	completing completeState     // the highest that was written; complete once it is synced
	ended      sealedState       // what SealDone was told of
	voids      map[uint64]uint64 // void batches, with the generation of their footer
	promised   int64             // value bytes promised to open blocks
	open       int               // open blocks, including those the writer has
	sealed     []*batch          // sealed since the last sync began
	uncertain  bool              // a commit is in memory only, or not synced
	wantNext   bool              // somebody waits for next
	nextErr    error             // why next could not be made, for those who wait
	hungry     int               // how many wait for room
	suspect    uint64            // newest generation with acknowledged entries lost
	damage     []error           // found by Open
	closed     bool
}

// Open opens the log in dir, or makes one there. It never needs space: after
// a crash, on a full disk, what is held can be read, flushed and dropped. Open
// keeps open and sealed batches that no completed checkpoint covers; see
// Truncate.
//
// Errors: ErrLocked, ErrFormat, ErrUnsupported, and those of the file system.
// Damage does not fail it, see Stat; a damaged lane takes no records until Reset.
func Open(dir string, opts Options) (*Log, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	lock, err := openDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", dir, err)
	}
	l := &Log{
		dir: dir, opts: opts, lock: lock,
		files:    opts.backend,
		jobs:     make(chan job),
		finished: make(chan job),
		wake:     make(chan struct{}, 1),
		quit:     make(chan struct{}),
		changed:  make(chan struct{}),
		lanes:    make(map[string]*Lane),
		gens:     make(map[uint64]*generation),
		voids:    make(map[uint64]uint64),
	}
	if l.files == nil {
		l.files = &badgerDirs{dir: dir, generation: opts.GenerationBytes, log: opts.Logger}
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", dir, err), l.closeFiles(), lock.Close())
	}
	l.tasks.Go(l.finish)
	l.tasks.Go(l.write)
	l.tasks.Go(l.tend)
	l.kick()
	crash.Point(crash.OpenPending)
	return l, nil
}

// Close syncs what was sealed since Open and closes the log. Records of open
// batches are forgotten. An error is [ErrFailed]. Close is idempotent.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	failed := l.failure()
	closed := ErrClosed
	l.failed.CompareAndSwap(nil, &closed)
	l.broadcast()
	l.mu.Unlock()

	close(l.quit)
	l.tasks.Wait()
	crash.Point(crash.CloseInside)
	err := errors.Join(l.closeGenerations(), l.closeFiles(), l.lock.Close())
	if err != nil {
		err = fmt.Errorf("%w: close: %w", ErrFailed, err)
	}
	return errors.Join(failed, err)
}

// closeGenerations ends writing. Called when no task runs any more. After a failed
// sync no newer generation is synced: a footer must not be durable before its
// blocks.
func (l *Log) closeGenerations() error {
	l.mu.Lock()
	writing := slices.Clone(l.retiring)
	if l.active != nil {
		writing = append(writing, l.active)
	}
	next := l.next
	l.mu.Unlock()
	var errs []error
	lost := !errors.Is(l.failure(), ErrClosed)
	for _, g := range writing {
		if lost {
			errs = append(errs, g.abandon())
			continue
		}
		_, err := g.retire()
		lost = err != nil
		errs = append(errs, err)
	}
	if next != nil {
		_, err := next.retire()
		errs = append(errs, err, l.dropGeneration(next))
	}
	return errors.Join(errs...)
}

// closeFiles closes what is open for reading.
func (l *Log) closeFiles() error {
	l.filesMu.Lock()
	defer l.filesMu.Unlock()
	l.filesClosed = true
	var errs []error
	for _, g := range l.readers {
		errs = append(errs, g.closeReader())
	}
	l.readers = nil
	return errors.Join(append(errs, l.files.close())...)
}

// failure is why the log takes nothing any more, or nil.
func (l *Log) failure() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail latches the log: the storage failed, so nothing is acknowledged any more.
// It returns the first failure.
func (l *Log) fail(cause error) error {
	err := fmt.Errorf("%w: %w", ErrFailed, cause)
	if l.failed.CompareAndSwap(nil, &err) {
		l.opts.Logger.Error("log failed, nothing is acknowledged any more", "dir", l.dir, "error", cause)
	}
	return l.failure()
}

// failLocked is fail for a caller that holds mu, and wakes those who wait.
func (l *Log) failLocked(cause error) error {
	err := l.fail(cause)
	l.broadcast()
	return err
}

// broadcast wakes all who wait for a change. The caller holds mu.
func (l *Log) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// kick wakes the tender.
func (l *Log) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Lane returns the lane of that name, always the same one. A lane that the log
// does not know begins with the genesis chain of its name, "sink/lane", unless
// Reset is called first.
func (l *Log) Lane(name string) (*Lane, error) {
	if name == "" || len(name) > maxLane {
		return nil, fmt.Errorf("lane %q: want a name of 1 to %d bytes", name, maxLane)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lane(name)
}

func (l *Log) lane(name string) (*Lane, error) {
	if ln := l.lanes[name]; ln != nil {
		return ln, nil
	}
	if limit := int(shapeOf(l.opts.GenerationBytes, false).intake / 2 / blockIndex); len(l.lanes) >= limit {
		return nil, fmt.Errorf("lane %s: %w: the log has %d lanes, its limit; raise GenerationBytes", name, ErrFull, limit)
	}
	ln := newLane(l, name)
	if l.suspect != 0 {
		ln.broken = l.lost(ln, l.suspect)
	}
	l.lanes[name] = ln
	return ln, nil
}

// Lanes returns the names of all lanes, sorted.
func (l *Log) Lanes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.lanes))
}
