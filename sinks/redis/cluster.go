package redis

import (
	"context"

	"github.com/walsink/walsink/sinks"
)

type clusterLane struct{ *base }

func (l *clusterLane) acquire(context.Context) (sinks.Mark, error) { return sinks.Mark{}, errClient }
func (l *clusterLane) Mark(context.Context) (sinks.Mark, error)    { return sinks.Mark{}, errClient }
func (l *clusterLane) Flush(context.Context, *sinks.Step) (sinks.Result, error) {
	return sinks.Result{}, errClient
}
