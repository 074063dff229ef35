package pipeline

import (
	"context"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks"
)

// Walsink returns a Sink that lands records in a store exactly once, by way of a
// walsink.Output. Run opens the output, which owns sink from there on. Options
// are as for walsink.Open; Run sets what [Restored] says.
func Walsink(name string, sink sinks.Sink, opts walsink.Options, encode func(dst, rec []byte) ([]byte, error)) Sink {
	return Sink{Name: name, Encode: encode, Open: func(ctx context.Context, r Restored) (Output, error) {
		opts := opts
		if r.Checkpoint > 0 {
			opts.Restored = &walsink.Barrier{Checkpoint: r.Checkpoint, Position: r.Position}
		}
		opts.Flush.Stateful = opts.Flush.Stateful || r.Stateful
		opts.Completed, opts.RefuseNew, opts.Begin, opts.NewLanes = r.Completed, r.RefuseNew, r.Begin, r.Lanes
		out, err := walsink.Open(ctx, sink, opts)
		if err != nil {
			return nil, err
		}
		return &landing{Output: out, info: sink.Info()}, nil
	}}
}

// landing makes an Output of a walsink.Output.
type landing struct {
	*walsink.Output
	info sinks.Info
}

var (
	_ Resumer   = (*landing)(nil)
	_ Cutter    = (*landing)(nil)
	_ Aborter   = (*landing)(nil)
	_ Watcher   = (*landing)(nil)
	_ Guarantor = (*landing)(nil)
	_ Holder    = (*landing)(nil)
)

func (l *landing) Lane(ctx context.Context, name string) (Lane, error) {
	lane, err := l.Output.Lane(ctx, name)
	if err != nil {
		return nil, err
	}
	return lane, nil
}

func (l *landing) Guarantee() (sinks.Guarantee, string) {
	return l.info.Guarantee, l.info.Name + " declares " + l.info.Guarantee.String()
}
