package file

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// stager writes the parts of one step. However many buckets there are, at any time it
// has at most one part open that is written, one spill file, and maxSyncs parts that
// are being synced.
type stager struct {
	*lane
	step  *sinks.Step
	parts []part
	w     *partWriter // the open part, nil if none
	next  int         // number of the next part in this bucket
	bad   []sinks.Reject
	syncs *errgroup.Group // nil to sync each part as it ends
}

// maxSyncs is how many files or directories are synced at once: a file system
// commits those that come together together.
const maxSyncs = 8

func newSyncs() *errgroup.Group {
	g := new(errgroup.Group)
	g.SetLimit(maxSyncs)
	return g
}

// maxBad is how many bad records one error names.
const maxBad = 1000

// stage writes the step's records to staged parts, durably. After an error, parts
// are those to discard.
func (l *lane) stage(ctx context.Context, step *sinks.Step) ([]part, error) {
	s := &stager{lane: l, step: step}
	var err error
	if l.opts.Buckets {
		err = s.byBucket(ctx)
	} else {
		err = s.inOrder(ctx)
	}
	if s.syncs != nil {
		if serr := s.syncs.Wait(); err == nil {
			err = serr
		}
		s.syncs = nil
	}
	if err == nil && len(s.bad) == 0 {
		err = s.count()
	}
	if err == nil && len(step.Dead) > 0 {
		err = s.deadLetters()
	}
	if err == nil && len(s.bad) > 0 {
		err = &sinks.Error{Kind: sinks.Poison, Op: "flush", Lane: l.id, Checkpoint: step.Batches[0].Checkpoint, Bad: s.bad}
	}
	if err != nil && s.w != nil {
		s.w.file.Close()
	}
	if err == nil {
		crash.Point(crash.FlushBegun)
	}
	return s.parts, err
}

// count makes sure that the parts hold as many records as the step says it has.
func (s *stager) count() error {
	var n int64
	for _, p := range s.parts {
		n += p.Records
	}
	if n != s.step.Records {
		return fmt.Errorf("%w: the step has %d records, the parts %d; verify the log", errRefused, s.step.Records, n)
	}
	return nil
}

// inOrder writes the records as they come, whole runs at a time.
func (s *stager) inOrder(ctx context.Context) error {
	for run, err := range s.step.Runs {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if s.opts.Format != "raw" {
			s.checkLines(run)
		}
		if len(s.bad) > 0 {
			continue
		}
		if err := s.write(part{}, run.Block); err != nil {
			return err
		}
	}
	return s.finish()
}

// checkLines finds records that would run into the one that follows.
func (s *stager) checkLines(run sinks.Run) {
	for i, rec := range run.Block.All() {
		if len(rec) == 0 || rec[len(rec)-1] != '\n' {
			s.reject(run, i, errNoNewline.Error())
		}
	}
}

func (s *stager) reject(run sinks.Run, i int, reason string) {
	if len(s.bad) < maxBad {
		s.bad = append(s.bad, sinks.Reject{Batch: run.Batch, Number: run.First + uint64(i), Reason: reason})
	}
}

// write adds the records of a block to the open part of a bucket, or to the parts
// after it.
func (s *stager) write(p part, block record.Block) error {
	for i := 0; i < block.Len(); {
		if s.w == nil {
			if err := s.open(p); err != nil {
				return err
			}
		}
		j := s.fit(block, i)
		if j == i {
			if err := s.finish(); err != nil {
				return err
			}
			continue
		}
		if err := s.w.write(block.Slice(i, j).Payload(), j-i); err != nil {
			return err
		}
		i = j
	}
	return nil
}

// fit returns how far the records of block from i on go into the open part. An empty
// part takes at least one.
func (s *stager) fit(block record.Block, i int) int {
	if s.opts.MaxPartBytes == 0 || s.w.size+int64(len(block.Payload())) <= s.opts.MaxPartBytes {
		return block.Len()
	}
	size, j := s.w.size, i
	for ; j < block.Len(); j++ {
		size += int64(len(block.Record(j)))
		if size > s.opts.MaxPartBytes && (j > i || s.w.part.Records > 0) {
			break
		}
	}
	return j
}

// writeOne adds one record to the open part, or to the one after it.
func (s *stager) writeOne(p part, rec []byte) error {
	if limit := s.opts.MaxPartBytes; limit > 0 && s.w != nil && s.w.part.Records > 0 && s.w.size+int64(len(rec)) > limit {
		if err := s.finish(); err != nil {
			return err
		}
	}
	if s.w == nil {
		if err := s.open(p); err != nil {
			return err
		}
	}
	return s.w.write(rec, 1)
}

// open begins the next part.
func (s *stager) open(p part) (err error) {
	if p.Name, err = s.partName(s.step, s.next, p.Dead); err != nil {
		return err
	}
	p.Staged = s.stagedPart()
	s.next++
	s.parts = append(s.parts, p)
	s.w, err = s.newPart(p)
	return err
}

// finish ends the open part, if there is one.
func (s *stager) finish() error {
	if s.w == nil {
		return nil
	}
	w := s.w
	s.w = nil
	p, err := w.end()
	s.parts[len(s.parts)-1] = p
	switch {
	case err != nil:
		return err
	case s.syncs == nil:
		return w.sync()
	}
	s.syncs.Go(w.sync)
	return nil
}

// byBucket sorts the records by bucket, then writes one bucket after the other.
func (s *stager) byBucket(ctx context.Context) error {
	sp := &spools{lane: s.lane, all: map[string]*spool{}}
	defer sp.discard()
	for run, err := range s.step.Runs {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if err := s.sort(sp, run); err != nil {
			return err
		}
	}
	if len(s.bad) > 0 {
		return nil
	}
	s.syncs = newSyncs()
	for _, bucket := range slices.Sorted(maps.Keys(sp.all)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.next = 0
		for rec, err := range sp.records(bucket) {
			if err == nil {
				err = s.writeOne(part{Bucket: bucket}, rec)
			}
			if err != nil {
				return err
			}
		}
		if err := s.finish(); err != nil {
			return err
		}
	}
	return nil
}

// sort puts the records of a run into the spools of their buckets.
func (s *stager) sort(sp *spools, run sinks.Run) error {
	lines := s.opts.Format != "raw"
	for i, wire := range run.Block.All() {
		name, rec, err := splitBucket(wire)
		if err == nil && sp.of(name) == nil {
			err = checkBucket(name)
		}
		switch {
		case err != nil:
			s.reject(run, i, err.Error())
		case lines && (len(rec) == 0 || rec[len(rec)-1] != '\n'):
			s.reject(run, i, "record does not end in a newline; encode it with file.JSON, file.Line or file.CSV")
		case len(s.bad) == 0:
			if err := sp.add(name, rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// deadLetter is a line of a part of dead letters.
type deadLetter struct {
	Checkpoint uint64 `json:"checkpoint"`
	Number     uint64 `json:"number"`
	Field      string `json:"field,omitempty"`
	Code       string `json:"code,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Record is the record in the sink's wire form, in base 64.
	Record []byte `json:"record"`
}

func (s *stager) deadLetters() error {
	s.next = 0
	if err := s.open(part{Dead: true}); err != nil {
		return err
	}
	for _, d := range s.step.Dead {
		line, err := encodeDead(d)
		if err != nil {
			return err
		}
		if err := s.w.write(line, 1); err != nil {
			return err
		}
	}
	return s.finish()
}
