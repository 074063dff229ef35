package pipeline

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/internal/paired"
)

// A countingOutput takes records and forgets them.
type countingOutput struct{ lanes []*countingLane }

type countingLane struct{ n int }

func (o *countingOutput) Lane(context.Context, string) (Lane, error) {
	l := &countingLane{}
	o.lanes = append(o.lanes, l)
	return l, nil
}
func (o *countingOutput) Seal(context.Context, uint64, []byte) error { return nil }
func (o *countingOutput) Complete(context.Context, uint64) error     { return nil }
func (o *countingOutput) Drain(context.Context) error                { return nil }
func (l *countingLane) Append(context.Context, []byte) error {
	l.n++
	return nil
}

// BenchmarkAligned is two sources into four lanes with a checkpoint each 10 ms,
// without and with alignment.
func BenchmarkAligned(b *testing.B) {
	ins := []Input{input("a", numbers("a", 300000, 1000)), input("b", numbers("b", 300000, 1000))}
	run := func(mode checkpoint.Mode) func() time.Duration {
		return func() time.Duration {
			p := &Pipeline{
				Sources: ins, Lanes: 4, Route: ByField("key"), Mode: mode,
				Stages: []Stage{Keyed("count", MemoryState{}, count)},
				Outputs: []Sink{{Name: "out", Open: func(context.Context, Restored) (Output, error) {
					return &countingOutput{}, nil
				}}},
				Storage: &checkpoint.Memory{}, Checkpoints: checkpoint.Options{Interval: 10 * time.Millisecond}, Logger: quiet(),
			}
			return paired.Time(func() {
				if sum, err := p.Run(b.Context()); err != nil || sum.Emitted != 600000 || sum.Checkpoints < 2 {
					b.Fatal(sum, err)
				}
			})
		}
	}
	paired.Run(b, run(checkpoint.AtLeastOnce), run(checkpoint.ExactlyOnce))
}

// BenchmarkRunner is what the runner costs per record without transforms.
func BenchmarkRunner(b *testing.B) {
	in := input("a", numbers("a", 500000, 1000))
	for _, lanes := range []int{1, 4} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p := &Pipeline{
					Sources: []Input{in}, Lanes: lanes, Route: ByField("key"),
					Outputs: []Sink{{Name: "out", Open: func(context.Context, Restored) (Output, error) { return &countingOutput{}, nil }}},
					Logger:  quiet(),
				}
				if sum, err := p.Run(b.Context()); err != nil || sum.Emitted != 500000 {
					b.Fatal(sum, err)
				}
			}
			b.ReportMetric(500000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
