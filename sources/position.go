package sources

import (
	"encoding/binary"
	"fmt"

	"github.com/walsink/walsink/committer"
)

const positionVersion = 1

// A filesPosition is a position of Files.
type filesPosition struct {
	spec   string // what the source reads: kind and path
	follow bool
	done   uint64 // files before the first mark, in order
	names  uint64 // hash of their names
	marks  []fileMark
	last   []fileMark // at most one: the newest file that was moved away and is finished
}

// A fileMark is a mark with what finds a followed file again after a rename.
type fileMark struct {
	mark
	dev, ino uint64
}

// encode writes a position, version 1:
//
//	version u8 = 1 | len spec | follow u8 | done | names u64 | marks | last
//
// Both marks and last are a number and so many times
//
//	len path | off | line | head u64 | tail u64 | dev | ino
//
// Numbers are uvarints but for u64, which are big endian.
func (p filesPosition) encode() []byte {
	b := appendText([]byte{positionVersion}, p.spec)
	b = append(b, 0)
	if p.follow {
		b[len(b)-1] = 1
	}
	b = binary.AppendUvarint(b, p.done)
	b = binary.BigEndian.AppendUint64(b, p.names)
	return appendMarks(appendMarks(b, p.marks), p.last)
}

func appendMarks(b []byte, marks []fileMark) []byte {
	b = binary.AppendUvarint(b, uint64(len(marks)))
	for _, m := range marks {
		b = appendText(b, m.path)
		b = binary.AppendUvarint(b, uint64(m.off))
		b = binary.AppendUvarint(b, uint64(m.line))
		b = binary.BigEndian.AppendUint64(b, m.head)
		b = binary.BigEndian.AppendUint64(b, m.tail)
		b = binary.AppendUvarint(b, m.dev)
		b = binary.AppendUvarint(b, m.ino)
	}
	return b
}

// decodePosition reads what encode wrote for the source that spec names.
func decodePosition(b []byte, spec string) (filesPosition, error) {
	if len(b) == 0 || b[0] != positionVersion {
		return filesPosition{}, fmt.Errorf("%w: not a position of %s, or of a newer version", committer.ErrForeignPosition, spec)
	}
	r := textReader{b: b[1:]}
	p := filesPosition{spec: r.text(), follow: r.uvarint(1) == 1, done: r.uvarint(maxInt), names: r.u64()}
	p.marks, p.last = r.marks(), r.marks()
	if r.bad || len(r.b) > 0 || len(p.last) > 1 {
		return filesPosition{}, fmt.Errorf("%w: damaged position", committer.ErrForeignPosition)
	}
	if p.spec != spec {
		return filesPosition{}, fmt.Errorf("%w: it is of %s, this is %s", committer.ErrForeignPosition, p.spec, spec)
	}
	return p, nil
}

const (
	maxInt  = 1<<63 - 1
	maxUint = 1<<64 - 1
)

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// A textReader takes values off the front of b; bad is set at the first that is
// not there.
type textReader struct {
	b   []byte
	bad bool
}

func (r *textReader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit || n != len(binary.AppendUvarint(nil, v)) {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *textReader) u64() uint64 {
	if len(r.b) < 8 {
		r.bad, r.b = true, nil
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *textReader) marks() []fileMark {
	var marks []fileMark
	for n := r.uvarint(uint64(len(r.b))); n > 0 && !r.bad; n-- {
		m := mark{path: r.text(), off: int64(r.uvarint(maxInt)), line: int64(r.uvarint(maxInt)), head: r.u64(), tail: r.u64()}
		marks = append(marks, fileMark{mark: m, dev: r.uvarint(maxUint), ino: r.uvarint(maxUint)})
	}
	return marks
}

func (r *textReader) text() string {
	n := r.uvarint(maxUint)
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
