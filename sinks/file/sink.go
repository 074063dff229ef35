package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/walsink/walsink/sinks"
)

// maxTries bounds the loops that run again because somebody else was faster.
const maxTries = 100

// A Sink writes files below one directory. Any number of sinks, in any number of
// processes, may have the same directory open.
type Sink struct {
	opts   Options
	target string
	fs     *files

	mu     sync.Mutex
	synced map[string]bool // bucket directories whose entries this sink knows to be durable
}

// Open opens the sink on a directory, which it makes if it is not there. It does
// not look for lanes and writes nothing into the directory.
func Open(dir string, opts Options) (*Sink, error) {
	opts, err := opts.resolve()
	if err != nil {
		return nil, fmt.Errorf("open file sink %q: %w", dir, err)
	}
	target, err := filepath.Abs(dir)
	if err == nil {
		err = makeDir(target)
	}
	if err != nil {
		return nil, fmt.Errorf("open file sink: %w", err)
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return nil, fmt.Errorf("open file sink: %w", err)
	}
	return &Sink{opts: opts, target: target, fs: &files{root: root}, synced: map[string]bool{}}, nil
}

// Info describes the sink.
func (s *Sink) Info() sinks.Info {
	return sinks.Info{
		Name:      "file",
		Target:    s.target,
		Guarantee: sinks.ExactlyOnce,
		Format:    s.opts.fingerprint(),
		StepBytes: s.opts.StepBytes,
	}
}

// Close releases the directory. It is idempotent.
func (s *Sink) Close() error { return s.fs.root.Close() }

func (s *Sink) ledger(id sinks.LaneID) *ledger {
	return &ledger{fs: s.fs, id: id, lane: laneDir(id.Sink, id.Lane)}
}

// Acquire raises the lane's fence by the next manifest, publishes what a former
// owner committed and did not publish, and removes its staging.
func (s *Sink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	l, err := s.acquire(ctx, id)
	if err != nil {
		return nil, sinks.Mark{}, fail("acquire", id, 0, err)
	}
	return l, l.cur.Mark, nil
}

func (s *Sink) acquire(ctx context.Context, id sinks.LaneID) (*lane, error) {
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	if err := s.makeLane(id); err != nil {
		return nil, err
	}
	l := &lane{sink: s, fs: s.fs, opts: s.opts, id: id, log: s.ledger(id), owner: rand.Text()[:10]}
	for range maxTries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := l.raise()
		if errors.Is(err, errTaken) {
			continue
		}
		if err == nil {
			err = l.publish()
		}
		if err != nil {
			return nil, l.blame(err)
		}
		l.sweep()
		return l, nil
	}
	return nil, fmt.Errorf("%w: %d others were faster", errTaken, maxTries)
}

// makeLane makes the hidden directories of a lane durable, whoever made them.
func (s *Sink) makeLane(id sinks.LaneID) error {
	lane := laneDir(id.Sink, id.Lane)
	for _, dir := range []string{hidden, path.Dir(lane), lane, path.Join(lane, "log"), path.Join(lane, "stage"), path.Join(lane, "dead")} {
		if _, err := s.fs.mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	for _, dir := range []string{".", hidden, path.Dir(lane), lane} {
		if err := s.fs.syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// raise commits the manifest that makes l the owner.
func (l *lane) raise() error {
	cur, err := l.log.newest()
	if err != nil {
		return err
	}
	next := &manifest{Number: 1, Lane: l.id, Base: 1, Prev: l.id.Genesis(), Mark: sinks.Mark{Chain: l.id.Genesis()}}
	if cur == nil {
		if err := l.sink.noStrayParts(l.id); err != nil {
			if m, merr := l.log.newest(); merr == nil && m != nil {
				return errTaken // somebody began the lane meanwhile
			}
			return err
		}
	} else {
		*next = *cur
		next.Number++
		if err := l.log.fold(cur, next, l.opts.KeepAudit); isGone(err) {
			return errTaken // pruned meanwhile
		} else if err != nil {
			return err
		}
	}
	next.Mark.Fence++
	next.Mark.UpdatedAt = time.Now().UTC()
	l.fence = next.Mark.Fence
	if err := l.log.commit(cur, next, l.stagedName("manifest")); err != nil {
		return err
	}
	l.cur = next
	return nil
}

// noStrayParts refuses a lane that has parts and no ledger. To begin it at zero
// would write its records a second time.
func (s *Sink) noStrayParts(id sinks.LaneID) error {
	prefix := partPrefix(id)
	return fs.WalkDir(s.fs.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			return fs.SkipDir // another's directory; ours are found when they are opened
		case d.IsDir() && name != "." && (name == hidden || !s.opts.Buckets || strings.Contains(name, "/")):
			return fs.SkipDir
		case !d.IsDir() && strings.HasPrefix(d.Name(), prefix):
			return fmt.Errorf("%w: %s is a part of the lane, but the lane has no ledger below %s: restore that directory,"+
				" or move the lane's parts away to begin again", errRefused, name, hidden)
		}
		return nil
	})
}
