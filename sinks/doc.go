// Package sinks is the contract between walsink and a store: what the author of
// an adapter implements, and nothing else.
//
// # The one rule
//
// A lane is one ordered stream of records into a store. The store keeps one
// [Mark] per lane, its ledger entry, which says exactly how far the lane is in.
// A flush is one atomic step:
//
//	if the stored fence is ours and the stored tip equals step.Prev.Tip():
//	        write the records of the step, store step.Next
//	else:
//	        change nothing
//
// The tip is a hash over everything the lane wrote, so that this one comparison
// makes any replay harmless: by induction the store holds exactly the records
// up to its mark, once, whoever writes, however often. Everything else is about
// making progress.
//
// # Who does what
//
// The flush engine, package committer, owns order, retry, back-off,
// verification of ambiguous outcomes, coalescing and what is to happen to bad
// records. An adapter acquires a lane, performs steps, reads marks and
// classifies errors as an [*Error]. It never sleeps, never retries, and never
// guesses: after an error it is asked for the mark.
//
// # Required and optional
//
// [Sink] and [Lane] are required. [Ledger], [DeadLetterBox], [Reconciler],
// [Validator], [Taker] and [Prober] are optional abilities, found by type assertion.
package sinks
