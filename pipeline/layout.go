package pipeline

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/walsink/walsink/committer"
)

// A layout says which record goes to which lane.
type layout struct {
	lanes  int    // per source, or in all if shared
	shared bool   // the lanes are fed by all sources
	route  string // name of the Route
}

// width is the number of lanes of all sources together.
func (l layout) width(sources int) int {
	if l.shared {
		return l.lanes
	}
	return l.lanes * sources
}

// lane returns the lane of a record, given its source, its number in that source
// and its key.
func (l layout) lane(source int, number uint64, route Route, rec []byte) int {
	base := 0
	if !l.shared {
		base = source * l.lanes
	}
	if l.lanes == 1 {
		return base
	}
	return base + route.lane(rec, number, l.lanes)
}

// laneName is such that the order of names is the order of lanes.
func laneName(i int) string { return fmt.Sprintf("%03d", i) }

// A place is a position of the whole pipeline: of each source, and the layout
// under which the records before it were spread.
type place struct {
	layout layout
	// widest is the largest width ever used. Lanes above the present width are kept
	// open, so that their marks do not fall behind.
	widest  int
	sources []sourcePlace
}

type sourcePlace struct {
	name     string
	since    uint64 // number of the first record under this layout
	count    uint64 // records read so far, from the beginning
	position []byte // nil at the beginning
}

// clone returns a copy whose sources can be changed.
func (p place) clone() place {
	p.sources = slices.Clone(p.sources)
	return p
}

// records is the number of records before the place.
func (p place) records() uint64 {
	var n uint64
	for _, s := range p.sources {
		n += s.count
	}
	return n
}

// relaid returns the same place as the beginning of another layout.
func (p place) relaid(l layout) place {
	p = p.clone()
	p.layout = l
	p.widest = max(p.widest, l.width(len(p.sources)))
	for i := range p.sources {
		p.sources[i].since = p.sources[i].count
	}
	return p
}

// passed returns p after the sources have come to now, under the layout of now: of each
// source, what is further.
func (p place) passed(now place) place {
	p = p.clone()
	p.layout = now.layout
	for i, s := range now.sources {
		if s.count >= p.sources[i].count {
			since := p.sources[i].since
			p.sources[i] = s
			p.sources[i].since = since
		}
	}
	return p
}

const (
	placeVersion = 1
	maxLanes     = 1000 // three digits in a lane name
)

// encode writes a place, version 1:
//
//	version u8 = 1 | lanes | shared u8 | len route | widest | sources |
//	    { len name | since | count | len position }...
//
// Numbers are uvarints. The same place always gives the same bytes, since they
// are part of the chain of each lane.
func (p place) encode() []byte {
	b := []byte{placeVersion}
	b = binary.AppendUvarint(b, uint64(p.layout.lanes))
	b = append(b, boolByte(p.layout.shared))
	b = appendString(b, p.layout.route)
	b = binary.AppendUvarint(b, uint64(p.widest))
	b = binary.AppendUvarint(b, uint64(len(p.sources)))
	for _, s := range p.sources {
		b = appendString(b, s.name)
		b = binary.AppendUvarint(b, s.since)
		b = binary.AppendUvarint(b, s.count)
		b = appendString(b, string(s.position))
	}
	return b
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decodePlace reads what encode wrote. Anything else is a position that this
// program did not make, ErrForeignPosition.
func decodePlace(b []byte) (place, error) {
	if len(b) == 0 || b[0] != placeVersion {
		return place{}, fmt.Errorf("%w: not a position of a pipeline, or of a newer version", committer.ErrForeignPosition)
	}
	r := placeReader{b: b[1:]}
	p := place{layout: layout{lanes: r.number(maxLanes), shared: r.number(1) == 1, route: r.str()}}
	p.widest = r.number(maxLanes)
	for n := r.number(len(r.b)); n > 0 && !r.bad; n-- {
		s := sourcePlace{name: r.str(), since: r.uvarint(), count: r.uvarint()}
		if pos := r.str(); pos != "" {
			s.position = []byte(pos)
		}
		r.bad = r.bad || s.since > s.count
		p.sources = append(p.sources, s)
	}
	ok := !r.bad && len(r.b) == 0 && p.layout.lanes > 0 && p.layout.width(len(p.sources)) <= p.widest
	if !ok {
		return place{}, fmt.Errorf("%w: damaged position", committer.ErrForeignPosition)
	}
	return p, nil
}

// A placeReader takes values off the front of b; bad is set at the first that is
// not there.
type placeReader struct {
	b   []byte
	bad bool
}

func (r *placeReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n != len(binary.AppendUvarint(nil, v)) {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *placeReader) number(limit int) int {
	v := r.uvarint()
	if v > uint64(limit) {
		r.bad = true
		return 0
	}
	return int(v)
}

func (r *placeReader) str() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
