// Package sinktest is the conformance suite for authors of sinks: [Run] holds a
// sink to the contract of package sinks, [Bench] measures it.
//
//	func TestConformance(t *testing.T) {
//		store := newStore(t)
//		sinktest.Run(t, sinktest.Harness{
//			Open:    func(t testing.TB) sinks.Sink { return open(t, store) },
//			Visible: func(t testing.TB, id sinks.LaneID) [][]byte { return store.read(t, id) },
//		})
//	}
//
// # Limits
//
//   - The suite plays the flush engine and has no log of its own; what the engine
//     does with a sink is tested by package committer.
//   - It kills by abandoning a handle between two calls, or by ending the context of
//     a call at every run of its step. It cannot kill the process in the middle of a
//     call: a sink whose step takes several calls of its store needs a test that
//     does.
//   - What cannot be seen through Visible and the mark, as whether a store survives a
//     power cut, is not tested.
//
// # What a sink is held to
//
// Each case has a sink id that no other run had, and a rule, which it prints when
// the sink breaks it. After everything that a case does, what is visible is
// compared with what the mark says:
//
//	ExactlyOnce   the records up to the mark, once, in order, and nothing else
//	Idempotent    those, and perhaps some of what was being written when it was
//	              interrupted, each once
//	AtLeastOnce   the same, with repetitions
//
// A step that was under way and did not succeed may leave its first batch pinned in
// the mark, see sinks.Partial; that one, as it was sealed, and none of it done. Once
// another step of the lane has succeeded, no batch may be pinned.
//
// A sink is held to the guarantee that its Info declares and to no more. Parts of
// a batch are given only to a sink that declares Chunked; those cases, the cases
// about the ledger if the sink is no sinks.Ledger, that about reading dead letters if it is no
// sinks.DeadLetterBox, and that about arbitrary bytes if
// the harness does not say Binary, are left out for the others. A case that needs an ability of the harness that is missing is skipped
// and says which one. A line at the end counts all of them.
package sinktest
