package file

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/walsink/walsink/sinks"
)

// Reconcile reads the parts again. Without buckets and dead letters the bytes of each
// checkpoint are compared by their digest; else, if records are lines, their number.
// It implements [sinks.Reconciler].
func (s *Sink) Reconcile(ctx context.Context, lanes []sinks.LaneRows) (r sinks.Reconciliation, err error) {
	r.Compared = append(r.Compared, "parts: bytes and records of each checkpoint, read again")
	unchecked := map[string]bool{}
	for _, l := range lanes {
		a := &auditor{sink: s, lane: l, unchecked: unchecked}
		if err := a.run(ctx); err != nil {
			return r, fail("reconcile", l.LaneID, 0, err)
		}
		r.Differences = append(r.Differences, a.found...)
	}
	for text := range unchecked {
		r.Unchecked = append(r.Unchecked, text)
	}
	slices.Sort(r.Unchecked)
	return r, nil
}

// An auditor compares the parts of one lane.
type auditor struct {
	sink      *Sink
	lane      sinks.LaneRows
	found     []sinks.Difference
	unchecked map[string]bool
}

// A span is the parts of one step, and the rows of the batches that ended in it.
type span struct {
	first, last uint64
	parts       []string // paths, in order
	rows        []sinks.Audit
}

func (a *auditor) run(ctx context.Context) error {
	spans, err := a.spans()
	if err != nil {
		return err
	}
	if len(a.lane.Rows) == 0 {
		if a.lane.Seq > 0 {
			a.unchecked["parts: the ledger keeps no audit rows"] = true
		}
		return nil
	}
	if first := a.lane.Rows[0]; first.Seq > 1 {
		a.unchecked[fmt.Sprintf("parts before checkpoint %d of lane %s: no audit rows reach back so far", first.Checkpoint, a.lane.LaneID)] = true
	}
	rows := a.lane.Rows
	for _, sp := range spans {
		if sp.last < a.lane.Rows[0].Checkpoint {
			continue
		}
		for len(rows) > 0 && rows[0].Checkpoint < sp.first {
			a.absent(rows[0])
			rows = rows[1:]
		}
		for len(rows) > 0 && rows[0].Checkpoint <= sp.last {
			sp.rows, rows = append(sp.rows, rows[0]), rows[1:]
		}
		if err := a.compare(ctx, sp); err != nil {
			return err
		}
	}
	for _, row := range rows {
		a.absent(row)
	}
	return nil
}

// absent is a batch without a part.
func (a *auditor) absent(row sinks.Audit) {
	if good := row.Records - row.Dead; good > 0 {
		a.differ(row, "records", group(good), "no part: taken away, lost, or not yet published by the next start")
	}
}

func (a *auditor) differ(row sinks.Audit, what, ledger, found string) {
	a.found = append(a.found, sinks.Difference{
		Lane: a.lane.LaneID, Seq: row.Seq, Checkpoint: row.Checkpoint, What: what, Ledger: ledger, Found: found,
	})
}

func group(n uint64) string { return strconv.FormatUint(n, 10) }

// spans lists the parts of the lane, by step.
func (a *auditor) spans() ([]span, error) {
	byName := map[string]*span{}
	prefix := partPrefix(a.lane.LaneID)
	err := fs.WalkDir(a.sink.fs.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			return fs.SkipDir // another's directory
		case d.IsDir() && name != "." && (name == hidden || !a.sink.opts.Buckets || strings.Contains(name, "/")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasPrefix(d.Name(), prefix):
			return nil
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(d.Name(), prefix), "+")
		first, last, ok := parseSpan(text)
		if !ok {
			return nil // not a name that a sink gives
		}
		if byName[text] == nil {
			byName[text] = &span{first: first, last: last}
		}
		byName[text].parts = append(byName[text].parts, name)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var spans []span
	for _, sp := range byName {
		slices.Sort(sp.parts)
		spans = append(spans, *sp)
	}
	slices.SortFunc(spans, func(x, y span) int { return cmp.Compare(x.first, y.first) })
	return spans, nil
}

// parseSpan reads the checkpoints in the name of a part.
func parseSpan(text string) (first, last uint64, ok bool) {
	from, to, several := strings.Cut(text, "-")
	first, err := strconv.ParseUint(from, 10, 64)
	last = first
	if several && err == nil {
		last, err = strconv.ParseUint(to, 10, 64)
	}
	return first, last, err == nil && len(from) == 20 && last >= first
}

// compare reads the parts of a step.
func (a *auditor) compare(ctx context.Context, sp span) error {
	if len(sp.rows) == 0 {
		row := sinks.Audit{}
		row.Checkpoint = sp.first
		a.differ(row, "parts", "no such batch", sp.parts[0])
		return nil
	}
	var records, dead, size uint64
	for _, row := range sp.rows {
		records, dead, size = records+row.Records, dead+row.Dead, size+row.Bytes
	}
	sizes, err := a.measure(ctx, sp.parts)
	if err != nil {
		return err
	}
	exact := !a.sink.opts.Buckets && dead == 0
	header := sizes.bytes != size && sizes.bytes-sizes.headers == size && a.sink.opts.Format == "csv"
	switch lines := sizes.lines; {
	case exact && (sizes.bytes == size || header):
		return a.digests(ctx, sp, header)
	case exact:
		a.differ(sp.rows[0], "bytes", group(size), group(sizes.bytes)+" in "+sp.parts[0])
	case a.sink.opts.Format == "raw":
		a.unchecked["records of raw parts with dead letters or buckets: nothing says where a record ends"] = true
	case lines != records-dead && (a.sink.opts.Format != "csv" || lines-uint64(len(sp.parts)) != records-dead):
		a.differ(sp.rows[0], "records", group(records-dead), group(lines)+" in "+sp.parts[0])
	default:
		a.unchecked["bytes of checkpoints with dead letters, and in buckets: only their records are counted"] = true
	}
	return nil
}

// A measure is what parts hold: bytes, lines and, of those, the bytes of first lines.
type measure struct{ bytes, lines, headers uint64 }

func (a *auditor) measure(ctx context.Context, parts []string) (m measure, err error) {
	csv := a.sink.opts.Format == "csv"
	for _, name := range parts {
		quoted, first := false, true
		err := a.read(ctx, name, func(b []byte) {
			m.bytes += uint64(len(b))
			for len(b) > 0 {
				line := b
				i := bytes.IndexByte(b, '\n')
				if i >= 0 {
					line = b[:i+1]
				}
				if csv && bytes.Count(line, []byte{'"'})%2 == 1 {
					quoted = !quoted
				}
				if first {
					m.headers += uint64(len(line))
				}
				if i >= 0 && !quoted {
					m.lines++
					first = false
				}
				b = b[len(line):]
			}
		})
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// digests compares the bytes of each batch of a step.
func (a *auditor) digests(ctx context.Context, sp span, header bool) error {
	i, left := 0, sp.rows[0].Bytes
	sum := xxhash.New()
	next := func() {
		for i < len(sp.rows) && left == 0 {
			row := sp.rows[i]
			if want := row.Digest.String()[:16]; fmt.Sprintf("%016x", sum.Sum64()) != want {
				a.differ(row, "digest", want, fmt.Sprintf("%016x in %s", sum.Sum64(), sp.parts[0]))
			}
			if i++; i < len(sp.rows) {
				left = sp.rows[i].Bytes
			}
			sum.Reset()
		}
	}
	next()
	for _, name := range sp.parts {
		quoted, skip := false, header
		err := a.read(ctx, name, func(b []byte) {
			for skip && len(b) > 0 {
				quoted = quoted != (b[0] == '"')
				skip = b[0] != '\n' || quoted
				b = b[1:]
			}
			for len(b) > 0 && i < len(sp.rows) {
				n := min(left, uint64(len(b)))
				_, _ = sum.Write(b[:n]) // documented never to fail
				b, left = b[n:], left-n
				next()
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// read hands the contents of a part, decompressed, to use.
func (a *auditor) read(ctx context.Context, name string, use func([]byte)) (err error) {
	f, err := a.sink.fs.root.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var r io.Reader = bufio.NewReaderSize(f, bufferSize)
	switch path.Ext(name) {
	case ".gz":
		if r, err = gzip.NewReader(r); err != nil {
			return a.unreadable(name, err)
		}
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return a.unreadable(name, err)
		}
		defer z.Close()
		r = z
	}
	buf := make([]byte, bufferSize)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(buf)
		use(buf[:n])
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return a.unreadable(name, err)
		}
	}
}

// unreadable notes a part that cannot be decompressed. What is compared next will differ.
func (a *auditor) unreadable(name string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	a.differ(sinks.Audit{}, "part "+name, "whole", err.Error())
	return nil
}
