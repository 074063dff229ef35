package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/internal/plant"
	"github.com/walsink/walsink/sinks"
)

// lane is the handle of an owner. Its fields belong to the one goroutine that
// calls its methods.
type lane struct {
	sink  *Sink
	fs    *files
	opts  Options
	id    sinks.LaneID
	log   *ledger
	fence uint64
	owner string // tells apart those who try for one fence

	cur       *manifest  // the newest one, as far as this owner knows
	published uint64     // the Step whose parts are known to be published
	unsure    bool       // a commit failed midway: what is in the log may not be durable
	broken    error      // an fsync of a final directory failed: nothing more is done
	names     int        // staged names given out
	comp      compressor // comp and buf are kept from part to part
	buf       *bufio.Writer
}

// Flush performs the step; see the package comment.
func (l *lane) Flush(ctx context.Context, step *sinks.Step) (sinks.Result, error) {
	var checkpoint uint64
	if len(step.Batches) > 0 {
		checkpoint = step.Batches[0].Checkpoint
	}
	return sinks.Result{}, fail("flush", l.id, checkpoint, l.blame(l.flush(ctx, step)))
}

// blame returns err, unless what looks like a fault of the directory is the work of
// a newer owner.
func (l *lane) blame(err error) error {
	if _, ok := errors.AsType[*sinks.Error](err); ok || err == nil {
		return err
	}
	if kind, _ := classify(err); kind == sinks.Permanent {
		if m, merr := l.log.newest(); merr == nil && m != nil && l.fencedBy(m) {
			return l.errFenced(m)
		}
	}
	return err
}

func (l *lane) fencedBy(m *manifest) bool {
	return m.Mark.Fence > l.fence && !plant.Active(plant.NoFence)
}

func (l *lane) errFenced(m *manifest) error {
	return &sinks.Error{Kind: sinks.Fenced, Op: "check fence", Lane: l.id,
		Err: fmt.Errorf("fence %d is in the store, this owner has %d", m.Mark.Fence, l.fence)}
}

func (l *lane) flush(ctx context.Context, step *sinks.Step) error {
	if err := l.ready(step); err != nil {
		return err
	}
	parts, err := l.stage(ctx, step)
	if err == nil {
		err = l.prepare(parts)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		l.discard(parts)
		return err
	}
	next := l.successor(step, parts)
	if err := l.log.fold(l.cur, next, l.opts.KeepAudit); err != nil {
		l.discard(parts)
		if isGone(err) {
			return l.taken()
		}
		return err
	}
	if err := l.commit(next); err != nil {
		return err
	}
	if err := l.publish(); err != nil {
		if kind, _ := classify(err); kind == sinks.Transient {
			err = unsure{err} // the mark has moved
		}
		return err
	}
	l.prune()
	return nil
}

// ready makes sure that the step before is published and that this one builds on
// the state in the store, as far as can be told before the commit.
func (l *lane) ready(step *sinks.Step) error {
	current := func() error {
		after, err := l.fs.lstat(l.log.path(l.cur.Number + 1))
		if err == nil && after != nil {
			err = errTaken
		}
		return errors.Join(err, l.log.stillThere(l.cur))
	}
	if err := current(); err != nil || l.unsure {
		if err := l.settle(); err != nil {
			return err
		}
	}
	if err := l.publish(); err != nil {
		return err
	}
	if got, want := l.cur.Mark.Tip(), step.Prev.Tip(); got != want && !plant.Active(plant.NoFence) {
		return &sinks.Error{Kind: sinks.Moved, Op: "flush", Lane: l.id,
			Err: fmt.Errorf("the tip in the store is %s, the step builds on %s", got, want)}
	}
	return nil
}

// successor is the manifest that the step leads to.
func (l *lane) successor(step *sinks.Step, parts []part) *manifest {
	now := time.Now().UTC()
	next := &manifest{
		Number: l.cur.Number + 1,
		Lane:   l.id,
		Prev:   step.Prev.Tip(),
		Mark:   step.Next,
		Step:   l.cur.Number + 1,
		Parts:  parts,
	}
	next.Mark.Fence = l.fence
	if next.Mark.UpdatedAt.IsZero() {
		next.Mark.UpdatedAt = now
	}
	for i, row := range step.Batches {
		if next.Mark.Partial != nil && i == len(step.Batches)-1 {
			break // does not end in this step
		}
		if row.FlushedAt.IsZero() {
			row.FlushedAt = now
		}
		next.Audit = append(next.Audit, row)
	}
	return next
}

// commit makes next the state of the lane. After an error the staging stays: it may
// be that of the newest manifest.
func (l *lane) commit(next *manifest) error {
	err := l.log.commit(l.cur, next, l.stagedName("manifest"))
	for plant.Active(plant.NoFence) && errors.Is(err, errTaken) {
		next.Number++
		next.Step++
		err = l.log.commit(nil, next, l.stagedName("manifest"))
	}
	if errors.Is(err, errTaken) {
		return l.taken()
	}
	if _, ok := errors.AsType[unsure](err); ok {
		l.unsure = true
	}
	if err == nil {
		l.cur, l.unsure = next, false
	}
	return err
}

// taken says why the number of the next manifest was not to be had.
func (l *lane) taken() error {
	if err := l.settle(); err != nil {
		return err
	}
	return &sinks.Error{Kind: sinks.Moved, Op: "flush", Lane: l.id, Err: errTaken}
}

// Mark reads the mark from the newest manifest. When it returns, that manifest is
// durable, its parts are published, and no staging of an earlier Flush is left.
func (l *lane) Mark(ctx context.Context) (sinks.Mark, error) {
	err := ctx.Err()
	if err == nil {
		err = l.settle()
	}
	if err == nil {
		err = l.publish()
	}
	if err != nil {
		return sinks.Mark{}, fail("mark", l.id, 0, l.blame(err))
	}
	l.sweep()
	return l.cur.Mark, nil
}

// settle reads the state of the lane anew. If a commit failed midway, the state is
// committed once more under the next number: an fsync that failed is not tried
// again, and its second answer would prove nothing. The new manifest needs none of
// those before, which a power cut may still take.
func (l *lane) settle() error {
	m, err := l.log.newest()
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%w: all manifests in %s are gone: restore the directory; until then nobody knows which batches are in",
			errRefused, l.log.dir())
	}
	if l.fencedBy(m) {
		return l.errFenced(m)
	}
	if m.Mark.Fence < l.fence {
		return &sinks.Error{Kind: sinks.Moved, Op: "check fence", Lane: l.id,
			Err: fmt.Errorf("fence %d is in the store, this owner raised it to %d: an older state of the directory was put back",
				m.Mark.Fence, l.fence)}
	}
	l.cur = m
	if !l.unsure {
		return nil
	}
	again := *m
	again.Number++
	if err := l.log.takeOver(m, &again, l.opts.KeepAudit); err != nil {
		return err
	}
	if err := l.log.commit(m, &again, l.stagedName("manifest")); err != nil {
		return err
	}
	l.cur, l.unsure = &again, false
	return nil
}

// prune removes old manifests when the newest one has taken over their rows. A
// failure costs only space.
func (l *lane) prune() {
	if l.cur.Base != l.cur.Number {
		return
	}
	crash.Point(crash.PruneBefore)
	_ = l.log.prune(l.cur)
	crash.Point(crash.PruneAfter)
}

// Close releases the handle. The directory stays as it is.
func (l *lane) Close() error { return nil }

// Staged names begin with the fence of their owner. What an owner removes has its
// own fence or a lower one, and no lower one can commit any more.

// stagedName returns a name below stage that nobody has had.
func (l *lane) stagedName(kind string) string {
	l.names++
	return path.Join(l.log.lane, "stage", fmt.Sprintf("%020d-%s-%06d.%s", l.fence, l.owner, l.names, kind))
}

func (l *lane) staged(name string) string { return path.Join(l.log.lane, "stage", name) }

// ticket is the name of the file that says that the publishing of a step has begun.
func (l *lane) ticket(step uint64) string { return l.staged(fmt.Sprintf("%020d.publishing", step)) }

// sweep removes from stage what no owner needs any more. What it cannot remove costs
// only space, until the next one.
func (l *lane) sweep() {
	names, err := l.fs.list(l.staged(""))
	if err != nil {
		return
	}
	needed := map[string]bool{}
	for _, p := range l.cur.Parts {
		needed[p.Staged] = true
	}
	for _, name := range names {
		if !needed[name] && l.leftover(name) {
			_ = l.fs.remove(l.staged(name))
		}
	}
}

// leftover reports whether the name is staging of this owner or a former one, or
// the ticket of a step before the last.
func (l *lane) leftover(name string) bool {
	number, rest, ok := strings.Cut(name, "-")
	if !ok {
		number, ok = strings.CutSuffix(name, ".publishing")
		step, err := strconv.ParseUint(number, 10, 64)
		return ok && err == nil && step < l.cur.Step
	}
	fence, err := strconv.ParseUint(number, 10, 64)
	return err == nil && rest != "" && fence <= l.fence
}

// discard removes the staging of a step that was not committed. What it cannot
// remove, the next sweep does.
func (l *lane) discard(parts []part) {
	for _, p := range parts {
		_ = l.fs.remove(l.staged(p.Staged))
	}
}
