package committer

import (
	"context"
	"errors"
	"fmt"

	"github.com/walsink/walsink/sinks"
)

// hold returns when all candidates, and the lanes that are open, were held at one moment:
// the last one was taken over before it, and each was still as it had been taken over
// after it. A candidate that was not is taken over again, unless who took it decides
// by the rule of OpenAll. Each round comes from a change that somebody else has made to
// the store since the one before. With list, or if there is more than one lane, it returns
// the ledger of the last round.
func (c *Committer) hold(ctx context.Context, found []*candidate, list bool) ([]sinks.LaneMark, error) {
	open := c.list()
	if len(found)+len(open) == 0 || !list && len(found)+len(open) == 1 {
		return nil, nil
	}
	for {
		ledger, marks, err := c.look(ctx, found)
		if err != nil {
			return nil, err
		}
		for _, l := range open {
			if m, ok := marks[l.id.Lane]; ledger != nil && (!ok || m.Fence != l.fence) {
				return nil, lost(l.id, l.fence, m.Fence)
			}
		}
		again := false
		for i, f := range found {
			m, ok := marks[f.id.Lane]
			switch {
			case ok && m.Fence == f.stored.Fence && m.Tip() == f.stored.Tip():
				continue
			case i == 0 && (len(open) == 0 || ledger == nil) && m.Fence > f.stored.Fence:
				return nil, lost(f.id, f.stored.Fence, m.Fence)
			}
			again = true
			if err := c.take(ctx, f); err != nil {
				return nil, err
			}
		}
		if !again {
			return ledger, nil
		}
	}
}

// Held returns nil if at one moment during the call all open lanes were this Committer's.
// It is for those who write to several sinks what belongs together, and fails with Kind
// Fenced if another owner has taken a lane over. A sink that is no [sinks.Ledger] is not
// asked.
func (c *Committer) Held(ctx context.Context) error {
	if _, ok := c.sink.(sinks.Ledger); !ok {
		return nil
	}
	_, err := c.hold(ctx, nil, true)
	return err
}

// lost says that another owner took a lane over while others were being opened.
func lost(id sinks.LaneID, from, to uint64) error {
	cause := fmt.Errorf("fence %d became %d", from, to)
	if to == fenceUnknown {
		cause = fmt.Errorf("fence %d was raised", from)
	}
	return fmt.Errorf("a newer owner has taken the lane over: %w", &sinks.Error{Kind: sinks.Fenced, Op: "open", Lane: id, Err: cause})
}

// look reads the marks as the store has them now: those of the ledger, if the sink can
// list it, which is one call; else those of the candidates alone. A lane that is lost has
// the highest of fences then, since only its owner could read it.
func (c *Committer) look(ctx context.Context, found []*candidate) (ledger []sinks.LaneMark, marks map[string]sinks.Mark, err error) {
	marks = make(map[string]sinks.Mark)
	if l, ok := c.sink.(sinks.Ledger); ok {
		var first sinks.LaneID
		if len(found) > 0 {
			first = found[0].id
		}
		err = c.patiently(ctx, first, "ledger not read", func(ctx context.Context) (err error) {
			ledger, err = l.Marks(ctx, c.id)
			return err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("read the ledger: %w", err)
		}
		for _, m := range ledger {
			marks[m.Lane] = m.Mark
		}
		return ledger, marks, nil
	}
	for _, f := range found {
		var m sinks.Mark
		err := c.patiently(ctx, f.id, "mark not read", func(ctx context.Context) (err error) {
			m, err = f.handle.Mark(ctx)
			if e, ok := errors.AsType[*sinks.Error](err); ok && e.Kind == sinks.Fenced {
				m, err = sinks.Mark{Fence: fenceUnknown}, nil
			}
			return err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("open lane %s: %w", f.id, err)
		}
		marks[f.id.Lane] = m
	}
	return nil, marks, nil
}

// fenceUnknown is above every fence.
const fenceUnknown = ^uint64(0)
