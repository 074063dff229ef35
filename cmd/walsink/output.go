package main

import (
	"context"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
)

// An output is a walsink.Output as a pipeline wants it.
type output struct {
	*walsink.Output
	info sinks.Info
}

func (o output) Lane(ctx context.Context, name string) (pipeline.Lane, error) {
	return o.Output.Lane(ctx, name)
}

func (o output) Guarantee() (sinks.Guarantee, string) {
	return o.info.Guarantee, "the sink " + o.info.Name + " declares it"
}
