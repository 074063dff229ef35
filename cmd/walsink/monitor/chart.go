package monitor

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// The drawing area of a chart, in SVG units.
const (
	chartWidth, chartHeight = 380.0, 160.0
	plotLeft, plotRight     = 58.0, 370.0
	plotTop, plotBottom     = 10.0, 136.0
	timelineWidth           = 1200.0
)

// A chart is lines over time.
type chart struct {
	Title, Note string
	Width       float64
	Height      float64
	Left, Right float64
	Top, Bottom float64
	Y           []tick
	X           []tick
	Lines       []line
	Empty       bool
}

// A tick is a label on an axis.
type tick struct {
	At    float64
	Label string
}

// A line is one series: the path of the line and of the area under it.
type line struct {
	Class, Name string
	Path, Area  string
	Now         string // its last value
	Points      string // for the script: "x,value" of each point
}

// A series is what becomes a line.
type series struct {
	class, name string
	values      []point
}

type point struct {
	at time.Time
	v  float64
}

// An axis is how values are written, and the base of round ones.
type axis struct {
	format func(float64) string
	base   float64
}

// newChart draws the series from begin to end.
func newChart(title, note string, begin, end time.Time, a axis, all ...series) chart {
	format := a.format
	c := chart{
		Title: title, Note: note, Width: chartWidth, Height: chartHeight,
		Left: plotLeft, Right: plotRight, Top: plotTop, Bottom: plotBottom,
	}
	top, n := 0.0, 0
	for _, s := range all {
		for _, p := range s.values {
			top = max(top, p.v)
		}
		n = max(n, len(s.values))
	}
	c.Empty = n < 2
	step := a.step(top)
	top = max(step*math.Ceil(top/step), step)
	for v := 0.0; v <= top*1.001; v += step {
		c.Y = append(c.Y, tick{At: plotBottom - v/top*(plotBottom-plotTop), Label: format(v)})
	}
	span := end.Sub(begin)
	x := func(at time.Time) float64 {
		return plotLeft + min(1, max(0, float64(at.Sub(begin))/float64(span)))*(plotRight-plotLeft)
	}
	for i := range 4 {
		at := begin.Add(span * time.Duration(i) / 3)
		c.X = append(c.X, tick{At: x(at), Label: ago(end.Sub(at))})
	}
	for _, s := range all {
		c.Lines = append(c.Lines, newLine(s, x, top, format))
	}
	return c
}

func newLine(s series, x func(time.Time) float64, top float64, format func(float64) string) line {
	l := line{Class: s.class, Name: s.name, Now: "–"}
	var path, points strings.Builder
	for i, p := range s.values {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		y := plotBottom - min(1, p.v/top)*(plotBottom-plotTop)
		fmt.Fprintf(&path, "%s%.1f %.1f", verb, x(p.at), y)
		fmt.Fprintf(&points, "%.1f,%.1f,%s;", x(p.at), y, format(p.v))
	}
	l.Path, l.Points = path.String(), points.String()
	if n := len(s.values); n > 0 {
		l.Now = format(s.values[n-1].v)
		l.Area = fmt.Sprintf("%sL%.1f %.1fL%.1f %.1fZ", l.Path, x(s.values[n-1].at), plotBottom, x(s.values[0].at), plotBottom)
	}
	return l
}

// step is 1, 2 or 5 times a power of ten, in units that are powers of the base, so that
// at most five steps reach top.
func (a axis) step(top float64) float64 {
	if top <= 0 {
		return 1
	}
	unit := 1.0
	for top/unit >= a.base {
		unit *= a.base
	}
	ten := math.Pow(10, math.Floor(math.Log10(top/unit/4)))
	for _, f := range []float64{1, 2, 5} {
		if top/unit/(f*ten) <= 4.01 {
			return f * ten * unit
		}
	}
	return 10 * ten * unit
}

// rates are the changes per second from sample to sample.
func rates(samples []sample, of func(sample) uint64) (out []point) {
	for i := 1; i < len(samples); i++ {
		a, b := samples[i-1], samples[i]
		if dt := b.at.Sub(a.at).Seconds(); dt > 0 && of(b) >= of(a) {
			out = append(out, point{b.at, float64(of(b)-of(a)) / dt})
		}
	}
	return out
}

func values(samples []sample, of func(sample) float64) (out []point) {
	for _, s := range samples {
		out = append(out, point{s.at, of(s)})
	}
	return out
}

// A bar is a checkpoint in the timeline: from its seal until it was in the store.
type bar struct {
	X, Y, Width, Height float64
	Class, Text         string
	Label               string // of its row, or empty
	LabelY              float64
}

// A timeline shows the last checkpoints of an output.
type timeline struct {
	Width, Height, Left, Right, Bottom float64
	Bars                               []bar
	X                                  []tick
	Landed, Pending                    int
}

const (
	timelineRows = 24
	rowHeight    = 8.0
	labelEvery   = 4
)

// A cut is a checkpoint: all its batches.
type cut struct {
	id             uint64
	sealed, landed time.Time // landed is zero while a batch is not in
	records, bytes uint64
	lanes          int
}

// cuts joins the batches of each checkpoint, the oldest first.
func cuts(batches []batch) (all []cut) {
	for _, b := range batches {
		if n := len(all); n == 0 || all[n-1].id != b.checkpoint {
			all = append(all, cut{id: b.checkpoint, sealed: b.sealed, landed: b.landed})
		}
		c := &all[len(all)-1]
		if b.landed.IsZero() {
			c.landed = time.Time{}
		} else if !c.landed.IsZero() && b.landed.After(c.landed) {
			c.landed = b.landed
		}
		c.records += b.records
		c.bytes += b.bytes
		c.lanes++
	}
	return all
}

func newTimeline(batches []batch, now time.Time) timeline {
	all := cuts(batches)
	t := timeline{Width: timelineWidth, Left: plotLeft, Right: timelineWidth - 10}
	for _, c := range all {
		if c.landed.IsZero() {
			t.Pending++
		} else {
			t.Landed++
		}
	}
	all = all[max(0, len(all)-timelineRows):]
	if len(all) == 0 {
		return t
	}
	t.Bottom = 4 + rowHeight*float64(len(all))
	t.Height = t.Bottom + 22
	begin := all[0].sealed
	span := max(now.Sub(begin), time.Second)
	x := func(at time.Time) float64 { return t.Left + float64(at.Sub(begin))/float64(span)*(t.Right-t.Left) }
	for i := range 5 {
		at := begin.Add(span * time.Duration(i) / 4)
		t.X = append(t.X, tick{x(at), ago(now.Sub(at))})
	}
	for i, c := range all {
		end, class, state := c.landed, "landed", "in the store after "
		if end.IsZero() {
			end, class, state = now, "waiting", "not in the store since "
		}
		b := bar{
			X: x(c.sealed), Y: 4 + rowHeight*float64(i), Width: max(3, x(end)-x(c.sealed)), Height: rowHeight - 2, Class: class,
			Text: fmt.Sprintf("checkpoint %d: %s records, %s in %d batches; %s%s", c.id, group(c.records), size(int64(c.bytes)), c.lanes,
				state, short(end.Sub(c.sealed))),
		}
		if i%labelEvery == 0 || i == len(all)-1 && i%labelEvery > 1 {
			b.Label, b.LabelY = fmt.Sprint(c.id), b.Y+rowHeight-1
		}
		t.Bars = append(t.Bars, b)
	}
	return t
}
