package file

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/walsink/walsink/record"
)

// spoolBytes is how much memory the records of all buckets of a step may take
// before they go to spill files.
const spoolBytes = 32 << 20

// spools hold the records of a step by bucket: first in memory, then in one spill
// file per bucket, open only while it is written.
type spools struct {
	lane *lane
	all  map[string]*spool
	size int // bytes in memory
	last *spool
}

// spool holds the records of one bucket, each with its uvarint length in front.
type spool struct {
	bucket  string
	mem     []byte
	spill   string // name of the spill file, "" if none
	spilled int64
}

// of returns the spool of a bucket, or nil.
func (sp *spools) of(bucket []byte) *spool {
	if sp.last == nil || sp.last.bucket != string(bucket) {
		if s := sp.all[string(bucket)]; s != nil {
			sp.last = s
		} else {
			return nil
		}
	}
	return sp.last
}

// add copies rec to the spool of a bucket.
func (sp *spools) add(bucket, rec []byte) error {
	s := sp.of(bucket)
	if s == nil {
		if len(sp.all) >= sp.lane.opts.MaxBuckets {
			return fmt.Errorf("%w: a step with more than %d buckets; raise MaxBuckets, or lower StepBytes", errRefused, len(sp.all))
		}
		s = &spool{bucket: string(bucket)}
		sp.all[s.bucket] = s
	}
	before := len(s.mem)
	s.mem = binary.AppendUvarint(s.mem, uint64(len(rec)))
	s.mem = append(s.mem, rec...)
	if sp.size += len(s.mem) - before; sp.size < spoolBytes {
		return nil
	}
	return sp.spillAll()
}

func (sp *spools) spillAll() error {
	for _, s := range sp.all {
		if len(s.mem) == 0 {
			continue
		}
		if err := sp.spill(s); err != nil {
			return fmt.Errorf("bucket %s: %w", s.bucket, err)
		}
	}
	sp.size = 0
	return nil
}

// spill appends what a spool has in memory to its file. The file need not survive a
// crash.
func (sp *spools) spill(s *spool) error {
	files := sp.lane.fs
	var f *stagedFile
	var err error
	if s.spill == "" {
		s.spill = sp.lane.stagedName("spill")
		f, err = files.create(s.spill, 0o600)
	} else {
		f, err = files.reopen(s.spill, os.O_WRONLY|os.O_APPEND)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(s.mem)
	s.spilled += int64(len(s.mem))
	s.mem = s.mem[:0]
	return errors.Join(err, f.Close())
}

// records ranges over the records of a bucket in order. A record is valid until the
// next one is asked for.
func (sp *spools) records(bucket string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		s := sp.all[bucket]
		if s.spill != "" && !sp.unspill(s, yield) {
			return
		}
		for mem := s.mem; len(mem) > 0; {
			n, w := binary.Uvarint(mem)
			end := w + int(n)
			if !yield(mem[w:end], nil) {
				return
			}
			mem = mem[end:]
		}
	}
}

// unspill yields the records of a spill file; false means stop.
func (sp *spools) unspill(s *spool, yield func([]byte, error) bool) bool {
	f, err := sp.lane.fs.reopen(s.spill, os.O_RDONLY)
	if err != nil {
		return yield(nil, err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(io.LimitReader(f, s.spilled), bufferSize)
	var rec []byte
	for {
		n, err := binary.ReadUvarint(r)
		if errors.Is(err, io.EOF) {
			return true
		}
		if err == nil && n > record.MaxRecord {
			err = fmt.Errorf("%s: %w: record of %d bytes", s.spill, errDamaged, n)
		}
		if err == nil {
			rec = slices.Grow(rec[:0], int(n))[:n]
			_, err = io.ReadFull(r, rec)
		}
		if !yield(rec, err) || err != nil {
			return false
		}
	}
}

// discard removes the spill files.
func (sp *spools) discard() {
	for _, s := range sp.all {
		if s.spill != "" {
			_ = sp.lane.fs.remove(s.spill) // the next sweep does it otherwise
		}
	}
}
