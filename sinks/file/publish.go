package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/sinks"
)

func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// partPrefix begins the names of all parts of a lane, and of no other lane.
func partPrefix(id sinks.LaneID) string { return id.Sink + "+" + id.Lane + "+" }

// maxParts is how many parts a step may have in one bucket: their numbers have
// five digits, so that they sort.
const maxParts = 100_000

// partName is the visible name of part number n of the step's records in a bucket.
func (l *lane) partName(step *sinks.Step, n int, dead bool) (string, error) {
	first, last := step.Batches[0].Checkpoint, step.Batches[len(step.Batches)-1].Checkpoint
	span := fmt.Sprintf("%020d", first)
	if last != first {
		span += fmt.Sprintf("-%d", last)
	}
	if plant.Active(plant.PartReset) {
		span = fmt.Sprintf("%020d", 0)
	}
	suffix := l.opts.suffix()
	if dead {
		suffix = ".ndjson"
	}
	name := fmt.Sprintf("%s%s+%05d%s", partPrefix(l.id), span, n, suffix)
	switch {
	case n >= maxParts:
		return "", fmt.Errorf("%w: checkpoint %d has more than %d parts in one bucket; let parts be larger", errRefused, first, maxParts)
	case len(name) > 255:
		return "", fmt.Errorf("%w: the name %s has %d bytes, the limit is 255; use a shorter sink id or lane name", errRefused, name, len(name))
	}
	return name, nil
}

// prepare makes the directories that the parts go to, and refuses the step if a
// name is not free. After the commit it would be late for that.
func (l *lane) prepare(parts []part) error {
	for _, p := range parts {
		if err := l.bucketDir(p); err != nil {
			return err
		}
		info, err := l.fs.lstat(p.path(l.log.lane))
		if err != nil {
			return err
		}
		if info != nil && !plant.Active(plant.ReplayUpsert) {
			return foreign(p.path(l.log.lane))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	if err := l.fs.syncDir(l.staged("")); err != nil {
		// The next attempt makes new files with new names, so its fsync stands for itself.
		return &sinks.Error{Kind: sinks.Transient, Op: "flush", Lane: l.id, Err: err}
	}
	return nil
}

func foreign(name string) error {
	return fmt.Errorf("%w: %s is there already and was not written by this step; nothing is replaced: move it away,"+
		" or use another sink id", errRefused, name)
}

// bucketDir makes the bucket's directory, its entry durable. A consumer may have
// removed the one that was known to be.
func (l *lane) bucketDir(p part) error {
	if p.Dead || p.Bucket == "" {
		return nil
	}
	made, err := l.fs.mkdir(p.Bucket, l.opts.dirMode())
	if err != nil {
		return fmt.Errorf("bucket %s: %w", p.Bucket, err)
	}
	s := l.sink
	s.mu.Lock()
	known := s.synced[p.Bucket]
	s.mu.Unlock()
	if known && !made {
		return nil
	}
	if err := l.fs.syncDir("."); err != nil {
		return l.latch(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.synced) >= l.opts.MaxBuckets {
		clear(s.synced)
	}
	s.synced[p.Bucket] = true
	return nil
}

// publish makes the parts of the newest manifest visible, those that are not yet.
// It may be done any number of times, by several owners at once.
func (l *lane) publish() error {
	if l.broken != nil || l.published == l.cur.Step {
		return l.broken
	}
	if len(l.cur.Parts) > 0 {
		if err := l.begin(); err != nil {
			return err
		}
		for _, p := range l.cur.Parts {
			if err := l.publishPart(p); err != nil {
				return err
			}
		}
		crash.Point(crash.FileRenamed)
		if err := l.syncParts(); err != nil {
			return l.latch(err)
		}
	}
	old := l.published
	l.published = l.cur.Step
	if old != 0 {
		_ = l.fs.remove(l.ticket(old)) // the next sweep removes it otherwise
	}
	return nil
}

// latch returns err, and stops the handle for good if the fsync of a directory
// failed that nothing is going to be written to again: to repeat it would prove
// nothing.
func (l *lane) latch(err error) error {
	if errors.Is(err, errSync) {
		l.broken = err
	}
	return err
}

// begin writes the ticket. Before there is one, every part is either staged or
// visible; if not, records that the mark calls written are lost.
func (l *lane) begin() error {
	ticket, err := l.fs.lstat(l.ticket(l.cur.Step))
	if err != nil || ticket != nil {
		return err
	}
	for _, p := range l.cur.Parts {
		staged, err := l.fs.lstat(l.staged(p.Staged))
		if err != nil {
			return err
		}
		if staged != nil {
			continue
		}
		if err := l.lost(p); err != nil {
			return err
		}
	}
	return l.fs.touch(l.ticket(l.cur.Step))
}

// lost decides about a part that is not staged and has no ticket.
func (l *lane) lost(p part) error {
	final, err := l.fs.lstat(p.path(l.log.lane))
	if err != nil {
		return err
	}
	if final != nil && final.Mode().IsRegular() && final.Size() == p.Bytes {
		return nil
	}
	return fmt.Errorf("%w: part %s with %d records is in the ledger, but was never published, and its staging %s is gone:"+
		" restore that file, or make an empty file %s to accept the loss",
		errRefused, p.path(l.log.lane), p.Records, l.staged(p.Staged), l.ticket(l.cur.Step))
}

// publishPart renames a part to its final name. Someone who owns the lane, or did
// own it, may be doing the same.
func (l *lane) publishPart(p part) error {
	from, to := l.staged(p.Staged), p.path(l.log.lane)
	staged, err := l.fs.lstat(from)
	if err != nil || staged == nil {
		return err // with a ticket, what is not staged has been published
	}
	if err := l.bucketDir(p); err != nil {
		return err
	}
	crash.Point(crash.FilePublish)
	err = l.fs.place(from, to)
	switch {
	case errors.Is(err, fs.ErrExist):
		return l.sameFile(from, to, staged)
	case isGone(err):
		if now, lerr := l.fs.lstat(from); lerr != nil || now == nil {
			return lerr
		}
	}
	return err
}

// sameFile settles the case that the final name is taken: by the part itself, if a
// crash came between a link and the removal of the staged name, or by a foreign
// file.
func (l *lane) sameFile(from, to string, staged fs.FileInfo) error {
	final, err := l.fs.lstat(to)
	if err != nil {
		return err
	}
	if final == nil || !os.SameFile(staged, final) {
		return foreign(to)
	}
	if err := l.fs.remove(from); err != nil && !isGone(err) {
		return err
	}
	return nil
}

// syncParts makes the final names durable.
func (l *lane) syncParts() error {
	syncs := newSyncs()
	done := map[string]bool{}
	for _, p := range l.cur.Parts {
		dir := p.dir(l.log.lane)
		if done[dir] {
			continue
		}
		done[dir] = true
		syncs.Go(func() error {
			if err := l.fs.syncDir(dir); !isGone(err) { // a consumer may remove an empty bucket
				return err
			}
			return nil
		})
	}
	return syncs.Wait()
}

// stagedPart is the base name of a new staged part.
func (l *lane) stagedPart() string { return path.Base(l.stagedName("part")) }
