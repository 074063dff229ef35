package pipeline

import (
	"context"
	"errors"
	"testing"
)

// A stuckOutput opens no lane until its context ends, as a store that is down.
type stuckOutput struct {
	Output
	stop context.CancelFunc
}

func (o stuckOutput) Lane(ctx context.Context, _ string) (Lane, error) {
	o.stop()
	<-ctx.Done()
	return nil, ctx.Err()
}

// A run that is stopped while it opens its lanes does not wait for the store.
func TestStopWhileLanesOpen(t *testing.T) {
	p := statelessPipeline(newFakeStore(), nil, numbers("a", 5, 1), 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	open := p.Outputs[0].Open
	p.Outputs[0].Open = func(ctx context.Context, r Restored) (Output, error) {
		out, err := open(ctx, r)
		return stuckOutput{out, stop}, err
	}
	if _, err := p.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
