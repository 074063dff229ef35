package sinktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

// A pile is a store without an atomic step, for committer.WithLedger.
type pile struct {
	declares sinks.Guarantee
	// key tells records apart that were written before; nil writes all.
	key func(st *sinks.Step, batch int, n uint64) string
	// drop loses the last record of each step.
	drop bool

	mu   sync.Mutex
	mute bool // half of a step is written, and nobody hears of it
	seen map[string]bool
	recs map[sinks.LaneID][][]byte
}

func (p *pile) Info() sinks.Info {
	return sinks.Info{Name: "pile", Target: "pile", Guarantee: p.declares, Format: "bytes", Chunked: true}
}

func (p *pile) Write(ctx context.Context, st *sinks.Step) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := st.Records
	if p.mute {
		left /= 2
	} else if p.drop {
		left--
	}
	for r, err := range st.Runs {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		for i, rec := range r.Block.All() {
			if left--; left >= 0 {
				p.put(st, r.Batch, r.First+uint64(i), rec)
			}
		}
	}
	if p.mute {
		return &sinks.Error{Kind: sinks.Ambiguous, Op: "write", Lane: st.ID, Err: errFault}
	}
	return nil
}

func (p *pile) put(st *sinks.Step, batch int, n uint64, rec []byte) {
	if p.key != nil {
		key := st.ID.String() + p.key(st, batch, n)
		if p.seen[key] {
			return
		}
		p.seen[key] = true
	}
	p.recs[st.ID] = append(p.recs[st.ID], slices.Clone(rec))
}

// byLane numbers records over the life of the lane.
func byLane(st *sinks.Step, batch int, n uint64) string {
	n += st.Prev.Records + st.Prev.Dead
	if st.Prev.Partial != nil {
		n -= st.Prev.Partial.Done
	}
	for _, b := range st.Batches[:batch] {
		n += b.Records
	}
	return fmt.Sprint(n)
}

// byBatch numbers them within their batch, which a replay may cut anew.
func byBatch(st *sinks.Step, batch int, n uint64) string {
	return fmt.Sprint(st.Batches[batch].Seq, n)
}

func (p *pile) harness(open func(sinks.Sink) sinks.Sink) Harness {
	p.seen, p.recs = map[string]bool{}, map[sinks.LaneID][][]byte{}
	ledger := committer.NewMemoryLedger()
	return Harness{
		Open: func(testing.TB) sinks.Sink { return open(committer.WithLedger(p, ledger)) },
		Visible: func(_ testing.TB, id sinks.LaneID) [][]byte {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Clone(p.recs[id])
		},
		Binary: true,
		LoseAnswers: func(testing.TB) func() {
			set := func(on bool) { p.mu.Lock(); defer p.mu.Unlock(); p.mute = on }
			set(true)
			return func() { set(false) }
		},
	}
}

// An overstated sink declares more than it keeps.
type overstated struct{ sinks.Sink }

func (s overstated) Info() sinks.Info {
	info := s.Sink.Info()
	info.Guarantee = sinks.ExactlyOnce
	return info
}

// TestWeaker holds sinks to what they declare: no more, and no less.
func TestWeaker(t *testing.T) {
	for _, tt := range []struct {
		name       string
		pile       *pile
		open       func(sinks.Sink) sinks.Sink
		rejectedBy []string // some of those that do
	}{
		{name: "a pile is at-least-once", pile: &pile{declares: sinks.AtLeastOnce}},
		{name: "with keys it is idempotent", pile: &pile{declares: sinks.Idempotent, key: byLane}},
		{name: "without keys it is not", pile: &pile{declares: sinks.Idempotent}, rejectedBy: []string{"LostAnswer", "Owners"}},
		{name: "nor with keys that depend on the batch", pile: &pile{declares: sinks.Idempotent, key: byBatch}, rejectedBy: []string{"LostAnswer"}},
		{name: "at-least-once is not at most once", pile: &pile{declares: sinks.AtLeastOnce, drop: true}, rejectedBy: []string{"Visibility", "Kill"}},
		{name: "idempotent is not exactly-once", pile: &pile{declares: sinks.Idempotent, key: byLane},
			open: func(s sinks.Sink) sinks.Sink { return overstated{s} }, rejectedBy: []string{"LostAnswer", "Kill", "FenceInFlight"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.open == nil {
				tt.open = asIs
			}
			var rejected []string
			for _, c := range cases {
				h := tt.pile.harness(tt.open)
				if c.without(declared(t, h)) != "" || c.lacks(h) != "" {
					continue
				}
				if failures := recordCase(t, h, c); len(failures) > 0 {
					rejected = append(rejected, c.name)
					if !strings.Contains(failures[0], c.rule) || len(tt.rejectedBy) == 0 {
						t.Errorf("%q", failures)
					}
				}
			}
			for _, name := range tt.rejectedBy {
				if !slices.Contains(rejected, name) {
					t.Errorf("%s does not reject it, but %v do", name, rejected)
				}
			}
		})
	}
}
