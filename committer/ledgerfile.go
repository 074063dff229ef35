package committer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A fileLedger keeps each lane in a directory of its own. Every change creates
// the file with the next number, by hard link, which fails if the number is
// taken: a true compare-and-set, without a lock that a crash could leave behind
// or that a network file system does not honour. The highest number is the mark.
//
//	dir/sink/lane/00000000000000000042.json    the mark
//	dir/sink/lane/00000000000000000041.json    the one before, kept for people
//	dir/sink/lane/.new-2398471                 left by a crash, harmless
//
// A file holds one line of JSON and, on a second line, its CRC-32C.
type fileLedger struct{ dir string }

// NewFileLedger returns a Ledger in a directory, which it creates (mode 0700).
// The file system must have hard links and honour fsync.
func NewFileLedger(dir string) (Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &fileLedger{dir}, nil
}

func (l *fileLedger) Raise(ctx context.Context, id sinks.LaneID) (sinks.Mark, error) {
	if err := l.create(id); err != nil {
		return sinks.Mark{}, err
	}
	return l.change(ctx, id, func(m *sinks.Mark) error {
		m.Fence++
		return nil
	})
}

func (l *fileLedger) Load(_ context.Context, id sinks.LaneID) (sinks.Mark, error) {
	m, _, err := l.read(id)
	return m, err
}

func (l *fileLedger) Swap(ctx context.Context, id sinks.LaneID, prev, next sinks.Mark) error {
	_, err := l.change(ctx, id, func(m *sinks.Mark) error {
		err := swap(id, *m, prev, next)
		*m = next
		return err
	})
	return err
}

// create makes the directory of a lane, durably.
func (l *fileLedger) create(id sinks.LaneID) error {
	if err := id.Validate(); err != nil {
		return &sinks.Error{Kind: sinks.Permanent, Op: "ledger", Lane: id, Err: err}
	}
	if err := os.MkdirAll(l.lane(id), 0o700); err != nil {
		return l.fail(id, err)
	}
	for _, dir := range []string{filepath.Dir(l.dir), l.dir, filepath.Join(l.dir, id.Sink)} {
		if err := syncDir(dir); err != nil {
			return l.fail(id, err)
		}
	}
	return nil
}

func (l *fileLedger) lane(id sinks.LaneID) string { return filepath.Join(l.dir, id.Sink, id.Lane) }

// fail classifies an error of the file system. Only one after the link is
// Ambiguous, and says so itself.
func (l *fileLedger) fail(id sinks.LaneID, err error) error {
	if _, ok := errors.AsType[*sinks.Error](err); ok {
		return err
	}
	kind := sinks.Transient
	if errors.Is(err, record.ErrCorrupt) || errors.Is(err, fs.ErrPermission) {
		kind = sinks.Permanent
	}
	return &sinks.Error{Kind: kind, Op: "ledger", Lane: id, Err: err}
}

// read returns the mark and its number; number 0 is a lane never seen.
func (l *fileLedger) read(id sinks.LaneID) (sinks.Mark, uint64, error) {
	var missing error
	for range 10 {
		numbers, err := l.numbers(id)
		if err != nil {
			return sinks.Mark{}, 0, l.fail(id, err)
		}
		if len(numbers) == 0 {
			return sinks.Mark{Chain: id.Genesis()}, 0, nil
		}
		n := numbers[len(numbers)-1]
		data, err := os.ReadFile(l.name(id, n))
		if errors.Is(err, fs.ErrNotExist) { // replaced meanwhile
			missing = err
			continue
		}
		m, err := decodeMark(data, err)
		if err != nil {
			return m, n, l.fail(id, fmt.Errorf("%s: %w; the file before it is the mark before", l.name(id, n), err))
		}
		return m, n, nil
	}
	return sinks.Mark{}, 0, l.fail(id, missing)
}

// change replaces the mark.
func (l *fileLedger) change(ctx context.Context, id sinks.LaneID, f func(*sinks.Mark) error) (sinks.Mark, error) {
	if err := ctx.Err(); err != nil {
		return sinks.Mark{}, &sinks.Error{Kind: sinks.Cancelled, Op: "ledger", Lane: id, Err: err}
	}
	m, n, err := l.read(id)
	if err == nil {
		err = f(&m)
	}
	var data []byte
	if err == nil {
		data, err = encodeMark(m)
	}
	if err == nil {
		err = l.write(id, n+1, data)
	}
	if err != nil {
		return m, l.fail(id, err)
	}
	l.prune(id, n)
	return m, nil
}

// write creates file n with data, durably.
func (l *fileLedger) write(id sinks.LaneID, n uint64, data []byte) error {
	tmp, err := os.CreateTemp(l.lane(id), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), l.name(id, n)); errors.Is(err, fs.ErrExist) {
		return errConflict
	} else if err != nil {
		return err
	}
	if err := syncDir(l.lane(id)); err != nil {
		return &sinks.Error{Kind: sinks.Ambiguous, Op: "ledger", Lane: id, Err: err}
	}
	return l.newest(id, n)
}

// newest makes sure that the file just created is the mark. If it is not, either
// another owner has built on it already, or we slept since we looked, n was taken
// and removed meanwhile, and it never counted. The mark will tell.
func (l *fileLedger) newest(id sinks.LaneID, n uint64) error {
	numbers, err := l.numbers(id)
	switch {
	case err != nil:
	case len(numbers) == 0 || numbers[len(numbers)-1] < n:
		err = fmt.Errorf("%s: %w", l.name(id, n), fs.ErrNotExist)
	case numbers[len(numbers)-1] > n:
		err = errors.Join(errConflict, os.Remove(l.name(id, n)))
	default:
		return nil
	}
	return &sinks.Error{Kind: sinks.Ambiguous, Op: "ledger", Lane: id, Err: err}
}

// prune removes the marks before n. What it leaves is removed the next time.
func (l *fileLedger) prune(id sinks.LaneID, n uint64) {
	numbers, err := l.numbers(id)
	if err != nil {
		return
	}
	for _, old := range numbers {
		if old < n {
			_ = os.Remove(l.name(id, old))
		}
	}
}

func (l *fileLedger) name(id sinks.LaneID, n uint64) string {
	return filepath.Join(l.lane(id), fmt.Sprintf("%020d.json", n))
}

// numbers lists the marks of a lane, ascending.
func (l *fileLedger) numbers(id sinks.LaneID) ([]uint64, error) {
	entries, err := os.ReadDir(l.lane(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		n, err := strconv.ParseUint(name, 10, 64)
		if ok && err == nil && len(name) == 20 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

var errConflict = errors.New("another owner changed the mark at the same time")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeMark(m sinks.Mark) ([]byte, error) {
	data, err := json.Marshal(m)
	return fmt.Appendf(data, "\n%08x\n", crc32.Checksum(data, castagnoli)), err
}

// decodeMark reads what encodeMark wrote.
func decodeMark(data []byte, err error) (sinks.Mark, error) {
	var m sinks.Mark
	if err != nil {
		return m, err
	}
	i := len(data) - len("\n00000000\n")
	if i < 0 || string(data[i:]) != fmt.Sprintf("\n%08x\n", crc32.Checksum(data[:i], castagnoli)) {
		return m, fmt.Errorf("%w: mark checksum", record.ErrCorrupt)
	}
	if err := json.Unmarshal(data[:i], &m); err != nil {
		return m, fmt.Errorf("%w: mark: %v", record.ErrCorrupt, err)
	}
	return m, nil
}

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
