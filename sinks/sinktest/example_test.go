package sinktest_test

import (
	"testing"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/sinks/sinktest"
)

// The test of a sink that is to keep its promise: open it again and again on one store, and
// say what a reader of that store sees.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		store := memory.NewStore()
		sinktest.Run(t, sinktest.Harness{
			Open:    func(testing.TB) sinks.Sink { return memory.Open(store, memory.Options{}) },
			Visible: func(_ testing.TB, id sinks.LaneID) [][]byte { return store.Records(id) },
			Binary:  true,
		})
	}
}
