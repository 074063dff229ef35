package walsink

import (
	"context"

	"github.com/walsink/walsink/record"
)

// An Observer is a set of functions, any of which may be nil, that are called by
// the lanes: for one lane one after the other, for several at the same time. They
// must not block.
type Observer struct {
	// Appended is called after each record that was put into the open batch of a
	// lane, with the context of its Append.
	Appended func(ctx context.Context, lane string)
	// Sealed is called after each batch that was sealed.
	Sealed func(lane string, b record.Batch)
}

// Observers returns an Observer that calls those of list in order. What is nil in
// all of them is nil in it.
func Observers(list ...Observer) Observer {
	var o Observer
	for _, n := range list {
		switch a, b := o.Appended, n.Appended; {
		case a == nil:
			o.Appended = b
		case b != nil:
			o.Appended = func(ctx context.Context, lane string) { a(ctx, lane); b(ctx, lane) }
		}
		switch a, b := o.Sealed, n.Sealed; {
		case a == nil:
			o.Sealed = b
		case b != nil:
			o.Sealed = func(lane string, sealed record.Batch) { a(lane, sealed); b(lane, sealed) }
		}
	}
	return o
}
