package committer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// A duel is two owners that begin one new sink id at the same moment. Each call of the
// store waits for its turn.
type duel struct {
	store *memory.Store
	names []string
	lists bool // the sink can list its ledger
	apart bool // each lane is opened by a call of its own

	mu    sync.Mutex
	calls []duelCall
}

type duelCall struct {
	key string
	run chan struct{}
}

// A duelSink is the store as one of the two sees it.
type duelSink struct {
	sinks.Sink
	d     *duel
	owner string
}

func (d *duel) wait(key string) {
	c := duelCall{key, make(chan struct{})}
	d.mu.Lock()
	d.calls = append(d.calls, c)
	d.mu.Unlock()
	<-c.run
}

func (s *duelSink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	s.d.wait(s.owner + " acquires " + id.Lane)
	l, m, err := s.Sink.Acquire(ctx, id)
	return &duelLane{Lane: l, s: s, id: id}, m, err
}

type duelLane struct {
	sinks.Lane
	s       *duelSink
	id      sinks.LaneID
	flushed bool
}

func (l *duelLane) Mark(ctx context.Context) (sinks.Mark, error) {
	if !l.flushed { // else it asks what has become of that, which changes nothing
		l.s.d.wait(l.s.owner + " reads " + l.id.Lane)
	}
	return l.Lane.Mark(ctx)
}

func (l *duelLane) Flush(ctx context.Context, st *sinks.Step) (sinks.Result, error) {
	l.flushed = true
	l.s.d.wait(l.s.owner + " flushes " + l.id.Lane)
	return l.Lane.Flush(ctx, st)
}

// A listingSink is a duelSink that can list its ledger.
type listingSink struct{ *duelSink }

var _ sinks.Ledger = listingSink{}

func (s listingSink) Marks(ctx context.Context, sink string) ([]sinks.LaneMark, error) {
	s.d.wait(s.owner + " lists")
	return s.Sink.(sinks.Ledger).Marks(ctx, sink)
}

func (s listingSink) Audit(ctx context.Context, id sinks.LaneID, after uint64) iter.Seq2[sinks.Audit, error] {
	return s.Sink.(sinks.Ledger).Audit(ctx, id, after)
}

// own opens the lanes and, if all are new, writes one batch into each. It reports
// whether it got that far.
func (d *duel) own(ctx context.Context, owner string) (opened bool, err error) {
	inner := &duelSink{memory.Open(d.store, memory.Options{}), d, owner}
	sink := sinks.Sink(inner)
	if d.lists {
		sink = listingSink{inner}
	}
	log := newLog()
	c, err := committer.New(sink, sinkID, log, committer.Options{RetryMin: 1, RetryMax: 1})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	sets := [][]string{d.names}
	if d.apart {
		sets = slices.Collect(slices.Chunk(d.names, 1))
	}
	for _, set := range sets {
		found, err := c.OpenAll(ctx, set, nil)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(found, func(o committer.Opening) bool { return o.Outcome != committer.Covered }) {
			return true, nil // it would go on where the other one is
		}
	}
	for _, name := range d.names {
		log.addAt(sinkID+"/"+name, 1, owner, owner)
	}
	return true, c.Drain(ctx)
}

// fight lets both begin, in the order that choose picks of the calls that wait, and says
// what became of them.
func (d *duel) fight(t *testing.T, choose func(keys []string) int) (opened int, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		var got [2]bool
		var errs [2]error
		for i, owner := range []string{"A", "B"} {
			wg.Go(func() { got[i], errs[i] = d.own(t.Context(), owner) })
		}
		for {
			synctest.Wait()
			d.mu.Lock()
			if len(d.calls) == 0 {
				d.mu.Unlock()
				break
			}
			slices.SortFunc(d.calls, func(a, b duelCall) int { return cmp.Compare(a.key, b.key) })
			var keys []string
			for _, c := range d.calls {
				keys = append(keys, c.key)
			}
			n := choose(keys)
			run := d.calls[n].run
			d.calls = slices.Delete(d.calls, n, n+1)
			d.mu.Unlock()
			close(run)
		}
		wg.Wait()
		for i := range got {
			if got[i] {
				opened++
			}
			if e := errs[i]; e != nil && sinks.KindOf(e) != sinks.Fenced {
				err = errors.Join(err, e)
			}
		}
	})
	return opened, err
}

// check finds the records of one owner only, and a ledger that a later start takes.
func (d *duel) check(t *testing.T) error {
	owners := map[string]bool{}
	for _, name := range d.names {
		for _, r := range d.store.Records(sinks.LaneID{Sink: sinkID, Lane: name}) {
			owners[string(r)] = true
		}
	}
	if len(owners) > 1 {
		return errors.New("both have written")
	}
	_, err := committer.ReadPlan(t.Context(), memory.Open(d.store, memory.Options{}), sinkID)
	return err
}

// TestTwoBeginAtOnce runs every order of the calls of two owners. Never do both write,
// whatever they had to do with each other; and if each takes all lanes at once, one of
// them always gets them. Of a sink that cannot list its ledger that is promised only for
// lanes that are opened together.
func TestTwoBeginAtOnce(t *testing.T) {
	for _, kind := range []struct{ lists, apart bool }{{true, false}, {true, true}, {false, false}, {false, true}} {
		t.Run(fmt.Sprintf("lists %v, apart %v", kind.lists, kind.apart), func(t *testing.T) {
			runs, path, width := 0, []int{}, []int{}
			for {
				d := &duel{store: memory.NewStore(), names: []string{"a", "b"}, lists: kind.lists, apart: kind.apart}
				var order []string
				opened, err := d.fight(t, func(keys []string) int {
					at := len(order)
					if at == len(path) {
						path, width = append(path, 0), append(width, 0)
					}
					width[at] = len(keys)
					order = append(order, keys[path[at]])
					return path[at]
				})
				runs++
				if err == nil && (kind.lists || !kind.apart) {
					err = d.check(t)
				}
				if err == nil && opened == 0 && !d.apart {
					err = errors.New("nobody got the lanes")
				}
				if err != nil {
					t.Fatalf("%v\n%s", err, strings.Join(order, "\n"))
				}
				n := len(order)
				path, width = path[:n], width[:n]
				for n > 0 && path[n-1]+1 >= width[n-1] {
					n--
				}
				if n == 0 {
					break
				}
				path, width = path[:n], width[:n]
				path[n-1]++
			}
			if runs < 100 {
				t.Fatalf("%d orders only", runs)
			}
			t.Logf("%d orders", runs)
		})
	}
}
