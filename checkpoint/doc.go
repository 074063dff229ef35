// Package checkpoint decides when a consistent cut is taken and when it counts.
//
// # Words
//
// A checkpoint is a numbered cut through everything that runs. A barrier is the
// mark that travels between the records and says where the cut is. A task is
// whatever must agree to a checkpoint. An input is one of the streams that a task
// reads. To hold an input back is to take nothing from it for a while.
//
// # Limits
//
// Nothing here does I/O, starts a goroutine or reads a clock, except [Dir], which
// writes files. [Pending], [Aligner] and [Coordinator] are state machines: the
// caller tells them what happened and at what time, and does what they return.
// They are not safe for concurrent use.
//
// # The life of a checkpoint
//
//	            Trigger             all acked          Stored
//	(demand) ─────────────▶ pending ─────────▶ storing ─────────▶ completed
//	                          │                   │
//	       timeout, decline,  │                   │ not stored
//	       subsumed           ▼                   ▼
//	                        aborted ◀─────────────┘
//
// A demand comes from the interval, from a number of records, from somebody who
// asks, or from the end of the input. Ids rise by one and are never used again.
//
// An aborted checkpoint is as if it had never been triggered: its records belong
// to the next one, nothing is discarded. Completing a checkpoint covers all lower
// ids; those still pending are aborted as subsumed. Too many
// aborts in a row end the run.
//
// # What goes wrong, and what follows
//
//	a task does not ack in time   aborted after Timeout, the next one is tried
//	a task declines               aborted at once, the next one is tried
//	a late or repeated ack        an error if the id was never given, else nothing
//	storage fails                 aborted; the snapshot before is still the newest
//	newest snapshot damaged       the one before is loaded, the damage is reported
//	newest snapshot not readable  an error: it may be readable the next time
package checkpoint
