// Package sim runs the whole core, from the sources of a pipeline to the marks in a
// store, in a world that is simulated: one seed is one run, and the same seed is the
// same run again.
//
// # How it works
//
// Everything lives in one bubble of testing/synctest. Whatever leaves the core, a
// read of a source, a write to the log, a stored checkpoint, a call of the sink, is a
// call that waits for its turn. When nothing else can go on, the controller picks by
// the seed what happens next: one of the calls goes on, well or with a fault; time
// passes; a process is killed, or its power is cut, or it is told to stop; a second one
// starts; the store loses what it had; a disk is lost, or an older copy put back. So the
// order of goroutines does not matter, and no run hangs on chance.
//
// The disk of a process is a journal for each log and a list of checkpoints. A cut of
// the power forgets what no sync has covered, or any part of it. A killed process
// never gets an answer again; what it had sent to the store may still arrive, until
// somebody asks for the mark or takes the lane over.
//
// # What is checked
//
// After each change the store holds, of each lane, the rows that the sources and
// transforms make, in order and without a gap or a second one, and nothing of a
// checkpoint that is not complete. After the faults have ended, a run has to end well,
// with all rows in and the state as it should be, and no goroutine left. A refusal
// counts as a failure, unless something was lost that only a person can bring
// back. Where a person could do nothing but start over, the world ends, and is counted
// as given up.
//
//	go test -run TestSimulation ./internal/sim -sim.seeds=100000
//	go test -run TestSimulation ./internal/sim -sim.seed=123 -v
package sim
