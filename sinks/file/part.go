package file

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/walsink/walsink/internal/crash"
)

// compressor is what gzip and zstd writers have in common.
type compressor interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// bufferSize is the buffer in front of a file that is written in small pieces.
const bufferSize = 256 << 10

// partWriter writes one staged part.
type partWriter struct {
	file *stagedFile
	part part
	sum  xxhash.Digest
	buf  *bufio.Writer
	comp compressor // nil for none
	size int64      // record bytes
}

// newPart begins a staged part with its header.
func (l *lane) newPart(p part) (*partWriter, error) {
	f, err := l.fs.create(l.staged(p.Staged), l.opts.Mode)
	if err != nil {
		return nil, err
	}
	w := &partWriter{file: f, part: p}
	w.sum.Reset()
	w.buf = l.buffer(w)
	if l.opts.Compress != "" && !p.Dead {
		if l.comp == nil {
			if l.comp, err = l.opts.newCompressor(); err != nil {
				return nil, errors.Join(err, f.Close())
			}
		}
		w.comp = l.comp
		w.comp.Reset(w.buf)
	}
	if len(l.opts.Header) > 0 && !p.Dead {
		line, _ := CSV(nil, l.opts.Header) // only an empty record is refused
		if err := w.bytes(line); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return w, nil
}

// buffer returns the lane's one buffer, now writing to w's file.
func (l *lane) buffer(w *partWriter) *bufio.Writer {
	if l.buf == nil {
		l.buf = bufio.NewWriterSize(nil, bufferSize)
	}
	l.buf.Reset((*fileEnd)(w))
	return l.buf
}

// write adds n records.
func (w *partWriter) write(p []byte, n int) error {
	w.size += int64(len(p))
	w.part.Records += int64(n)
	return w.bytes(p)
}

func (w *partWriter) bytes(p []byte) error {
	var err error
	if w.comp != nil {
		_, err = w.comp.Write(p)
	} else {
		_, err = w.buf.Write(p)
	}
	return err
}

// end ends the compressed stream. The file is left to be synced; after an error it is
// closed.
func (w *partWriter) end() (part, error) {
	var err error
	if w.comp != nil {
		err = w.comp.Close()
	}
	if err == nil {
		err = w.buf.Flush()
	}
	if err != nil {
		return w.part, errors.Join(err, w.file.Close())
	}
	w.part.Sum = fmt.Sprintf("%016x", w.sum.Sum64())
	return w.part, nil
}

// sync makes the part durable and closes it. It needs nothing of the lane, so that
// several parts may be synced at once.
func (w *partWriter) sync() error {
	if err := w.file.finish(); err != nil {
		return err
	}
	crash.Point(crash.FileSynced)
	return nil
}

// fileEnd is the end of a partWriter at which the bytes are those of the file.
type fileEnd partWriter

func (e *fileEnd) Write(p []byte) (int, error) {
	n, err := e.file.Write(p)
	_, _ = e.sum.Write(p[:n]) // documented never to fail
	e.part.Bytes += int64(n)
	return n, err
}
