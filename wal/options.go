package wal

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"
)

// Options of a log. The zero value is ready to use.
type Options struct {
	// GenerationBytes is about how much goes into one generation; 0 means 64 MiB,
	// the most is 512 MiB. It is lowered to a quarter of MaxBytes. It may change
	// from one opening to the next.
	GenerationBytes int64
	// MaxBytes is the byte budget: Append blocks while it is used up; 0 means
	// 10 GiB. About 12 MiB per generation come on top.
	MaxBytes int64
	// Retain is how long a committed batch is kept, so that a store that was rolled
	// back can be healed from the log; 0 means 10 minutes, less than 0 not at all.
	Retain time.Duration
	// RetainBytes bounds what is kept because of Retain; 0 means a quarter of
	// MaxBytes, at most 1 GiB. Committed batches also go early when room is short.
	RetainBytes int64
	// Logger gets what a person should know; nil means slog.Default.
	Logger *slog.Logger

	now     func() time.Time // the clock, for retention and for SealedAt
	backend backend          // nil means Badger
}

const (
	minGeneration = 1 << 20
	maxGeneration = 512 << 20
)

// withDefaults returns the options with defaults filled in, or what is wrong.
func (o Options) withDefaults() (Options, error) {
	for _, f := range [...]struct {
		name  string
		value int64
	}{{"GenerationBytes", o.GenerationBytes}, {"MaxBytes", o.MaxBytes}, {"RetainBytes", o.RetainBytes}} {
		if f.value < 0 {
			return o, fmt.Errorf("wal options: %s is %d, want 0 or more", f.name, f.value)
		}
	}
	if o.GenerationBytes > maxGeneration {
		return o, fmt.Errorf("wal options: GenerationBytes is %d, the most is %d", o.GenerationBytes, maxGeneration)
	}
	o.MaxBytes = cmp.Or(o.MaxBytes, 10<<30)
	if o.MaxBytes < 4*minGeneration {
		return o, fmt.Errorf("wal options: MaxBytes is %d, the least is %d", o.MaxBytes, 4*minGeneration)
	}
	o.GenerationBytes = cmp.Or(o.GenerationBytes, 64<<20)
	o.GenerationBytes = max(min(o.GenerationBytes, o.MaxBytes/4), minGeneration)
	o.Retain = max(cmp.Or(o.Retain, 10*time.Minute), 0)
	o.RetainBytes = cmp.Or(o.RetainBytes, min(o.MaxBytes/4, 1<<30))
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.now == nil {
		o.now = time.Now
	}
	return o, nil
}

// A shape is the sizes of one generation, in bytes.
type shape struct {
	index    int64 // memory table of Badger; never allowed to fill up
	intake   int64 // index bytes at which records go to the next generation
	control  int64 // index bytes up to which control entries are taken
	headroom int64 // value bytes kept free for control entries
}

func shapeOf(generation int64, small bool) shape {
	index := max(min(generation/8, 8<<20), 1<<20)
	headroom := index / 2
	if small {
		index, headroom = 1<<20, 256<<10
	}
	return shape{
		index:    index,
		intake:   index / 2,
		control:  index * 7 / 8,
		headroom: headroom,
	}
}
