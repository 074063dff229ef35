package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strconv"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/sinks"
)

// foldEvery is how many manifests a lane has before one takes over all audit rows
// and the older ones are removed.
const foldEvery = 64

// ledger is the manifests of one lane.
type ledger struct {
	fs   *files
	id   sinks.LaneID
	lane string // the lane's directory
}

func (g *ledger) dir() string { return path.Join(g.lane, "log") }

func (g *ledger) path(number uint64) string {
	return path.Join(g.dir(), fmt.Sprintf("%020d", number))
}

// newest returns the manifest that is the state of the lane, or nil if there is
// none. A directory that is there but cannot be read is an error.
func (g *ledger) newest() (*manifest, error) {
	for range maxTries {
		numbers, err := g.numbers()
		if err != nil || len(numbers) == 0 {
			return nil, err
		}
		m, err := g.read(numbers[len(numbers)-1])
		if !isGone(err) {
			return m, err
		}
	}
	return nil, fmt.Errorf("%s: %w: manifests come and go", g.dir(), errTaken)
}

// numbers lists the manifests, ascending.
func (g *ledger) numbers() ([]uint64, error) {
	names, err := g.fs.list(g.dir())
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, name := range names {
		if name[0] == '.' {
			continue // some network file systems put theirs there
		}
		n, err := strconv.ParseUint(name, 10, 64)
		if err != nil || len(name) != 20 {
			return nil, fmt.Errorf("%s/%s: %w: not a manifest; move it out of the directory", g.dir(), name, errRefused)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}

func (g *ledger) read(number uint64) (*manifest, error) {
	name := g.path(number)
	raw, err := g.fs.read(name, maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(raw)
	if err == nil && (m.Number != number || m.Lane != g.id) {
		err = fmt.Errorf("%w: it is number %d of lane %s", errDamaged, m.Number, m.Lane)
	}
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w; it holds the mark of lane %s, and without it nobody knows which batches"+
			" are in: restore the file from a backup, do not remove it", name, err, g.id)
	}
	return m, nil
}

// commit makes next the successor of cur, which is nil for the first manifest, and
// is durable on return. It fails with errTaken if cur is not the newest manifest,
// and with an unsure error if next may be there or not. Bytes pass through the file
// tmp.
func (g *ledger) commit(cur, next *manifest, tmp string) error {
	raw, err := next.encode()
	if err != nil {
		return err
	}
	if err := g.stage(tmp, raw); err != nil {
		_ = g.fs.remove(tmp) // the sweep of the next owner removes it otherwise
		return err
	}
	crash.Point(crash.FlushMarkWritten)
	switch err := g.fs.place(tmp, g.path(next.Number)); {
	case errors.Is(err, fs.ErrExist):
		_ = g.fs.remove(tmp)
		return errTaken
	case isGone(err): // a newer owner has swept tmp
		return errTaken
	case err != nil:
		return unsure{err}
	}
	if err := g.stillThere(cur); err != nil {
		return err
	}
	if err := g.fs.syncDir(g.dir()); err != nil {
		return unsure{err}
	}
	return nil
}

func (g *ledger) stage(tmp string, raw []byte) error {
	f, err := g.fs.create(tmp, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(raw); err != nil {
		f.Close()
		return err
	}
	return f.finish()
}

// stillThere makes sure that the number after cur was free because nobody had
// taken it, and not because it had been taken and removed: manifests are removed in
// ascending order, cur before its successor. The first one is never removed.
func (g *ledger) stillThere(cur *manifest) error {
	if cur == nil || plant.Active(plant.NoFence) {
		return nil
	}
	raw, err := g.fs.read(g.path(cur.Number), maxManifest)
	switch {
	case isGone(err), err == nil && !bytes.Equal(raw, cur.raw):
		return errTaken
	case err != nil:
		return unsure{err}
	}
	return nil
}

// fold gives next, the successor of cur, all rows to keep if it is time for that.
func (g *ledger) fold(cur, next *manifest, keep int) error {
	next.Base = cur.Base
	if next.Number-cur.Base < foldEvery {
		return nil
	}
	return g.takeOver(cur, next, keep)
}

// takeOver gives next, the successor of cur, all rows to keep, so that it needs no
// manifest before it.
func (g *ledger) takeOver(cur, next *manifest, keep int) error {
	rows, err := g.rows(cur)
	if err != nil {
		return err
	}
	for _, row := range next.Audit {
		if len(rows) == 0 || row.Seq > rows[len(rows)-1].Seq {
			rows = append(rows, row)
		}
	}
	next.Audit = rows[max(0, len(rows)-keep):]
	next.Base = next.Number
	return nil
}

// prune removes the manifests before cur.Base, but for the first, in ascending
// order. It stops at the first error; the next fold tries again.
func (g *ledger) prune(cur *manifest) error {
	numbers, err := g.numbers()
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if n >= cur.Base {
			break
		}
		if n == 1 {
			continue
		}
		if err := g.fs.remove(g.path(n)); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

// rows returns all retained audit rows up to m, ascending.
func (g *ledger) rows(m *manifest) (rows []sinks.Audit, err error) {
	for n := m.Base; n <= m.Number; n++ {
		at := m
		if n != m.Number {
			if at, err = g.read(n); err != nil {
				return nil, err
			}
		}
		for _, row := range at.Audit {
			if len(rows) == 0 || row.Seq > rows[len(rows)-1].Seq {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// Marks returns the mark of every lane of the sink id, ordered by lane. It changes
// nothing.
func (s *Sink) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	if err := (sinks.LaneID{Sink: sink, Lane: "x"}).Validate(); err != nil {
		return nil, &sinks.Error{Kind: sinks.Permanent, Op: "marks", Err: err}
	}
	names, err := s.fs.list(path.Join(hidden, sink))
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fail("marks", sinks.LaneID{}, 0, err)
	}
	slices.Sort(names)
	var marks []sinks.LaneMark
	for _, name := range names {
		id := sinks.LaneID{Sink: sink, Lane: name}
		if err := ctx.Err(); err != nil {
			return nil, fail("marks", id, 0, err)
		}
		if id.Validate() != nil {
			continue
		}
		m, err := s.ledger(id).newest()
		if err != nil {
			return nil, fail("marks", id, 0, err)
		}
		if m != nil {
			marks = append(marks, sinks.LaneMark{LaneID: id, Mark: m.Mark})
		}
	}
	return marks, nil
}

// Audit ranges over the retained audit rows of a lane. It changes nothing.
func (s *Sink) Audit(ctx context.Context, id sinks.LaneID, after uint64) iter.Seq2[sinks.Audit, error] {
	return func(yield func(sinks.Audit, error) bool) {
		rows, err := s.audit(ctx, id)
		if err != nil {
			yield(sinks.Audit{}, fail("audit", id, 0, err))
			return
		}
		for _, row := range rows {
			if row.Seq > after && !yield(row, nil) {
				return
			}
		}
	}
}

// audit reads the rows, once more if the lane's owner folded them meanwhile.
func (s *Sink) audit(ctx context.Context, id sinks.LaneID) ([]sinks.Audit, error) {
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	g := s.ledger(id)
	var last error
	for range maxTries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, err := g.newest()
		if err != nil || m == nil {
			return nil, err
		}
		rows, err := g.rows(m)
		if !isGone(err) {
			return rows, err
		}
		last = err
	}
	return nil, fmt.Errorf("%w: a manifest that the newest one needs is gone: %w", errDamaged, last)
}
