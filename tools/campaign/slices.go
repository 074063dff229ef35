package main

import "regexp"

// A slice is a piece of the campaign: a command that takes a minute or some, is run
// again and again with other seeds, and prints figures.
type slice struct {
	name string
	goal int            // cycles, over all runs
	unit string         // of cycles
	args []string       // the command; {seed} stands for the seed
	also *regexp.Regexp // what counts as cycles beside the tests' own figures
	fail int            // failed runs since the start after which it is left out; 0 is 1
}

// apart makes a slice go on with other seeds when one has failed: each run is of a range of
// its own, and says nothing of the others. It ends if nothing works.
func apart(s slice) slice {
	s.fail = 5
	return s
}

var (
	cases  = regexp.MustCompile(`(?m)^\s+--- PASS: \w+/`)
	checks = regexp.MustCompile(`\[rapid\] OK, passed (\d+) tests`)
	execs  = regexp.MustCompile(`execs: (\d+)[^\n]*\nPASS`)
)

// tests is a slice that runs tests.
func tests(name string, goal int, unit string, args ...string) slice {
	return slice{name: name, goal: goal, unit: unit, args: append([]string{"go", "test", "-count=1", "-v", "-timeout=40m"}, args...)}
}

// counting makes a slice count what matches.
func counting(re *regexp.Regexp, s slice) slice {
	s.also = re
	return s
}

// plan is the campaign.
var plan = []slice{
	tests("kill -9: command to files, 4 lanes", 1000, "kills", "-run=^TestKill9$", "./integration/file"),
	tests("kill -9: the same, state directory deleted each time", 300, "kills", "-run=^TestKill9StateLost$", "./integration/file"),
	tests("kill -9: job to Postgres, 4 lanes, a reader polling", 1000, "kills", "-run=Kill9$", "./integration/postgres"),
	tests("kill -9: job to Redis, state deleted and server killed now and then", 700, "kills", "-run=^TestC101JobKilled$", "./integration/redis"),
	tests("kill -9: command to Redis, counters", 400, "kills", "-run=^TestKill9Counters$", "./integration/command"),
	tests("kill -9: command to Redis and files at once, state deleted now and then", 400, "kills", "-run=^TestKill9Outputs$", "./integration/command"),
	tests("kill -9: job to a Redis cluster", 100, "kills", "-run=^TestClusterJobKilled$", "./integration/redis"),
	tests("kill -9: running counts with state", 200, "kills", "-run=^TestKill$", "./pipeline/state", "-kills=200"),
	tests("kill -9: log", 200, "kills", "-run=^TestKill$", "./wal"),
	tests("power cut: before and after each operation on files", 700, "cuts", "-run=PowerCut$", "./sinks/file"),
	tests("power cut: command, state and output on two devices", 240, "cuts", "-run=PowerCut$", "./integration/file"),
	tests("power cut: log", 100, "cuts", "-run=PowerCut$", "./wal"),
	tests("failing system calls: command to files", 240, "faults", "-run=^TestRandomCallsFail$", "./integration/file"),
	tests("Postgres: connection cut after each byte of a flush, both directions", 1, "cuts", "-run=CutAtEveryByte$", "./integration/postgres"),
	tests("Redis: connection cut after each byte of a flush, both directions", 1, "cuts", "-run=CutAtEveryByte$", "./integration/redis"),
	tests("Postgres: backend terminated while it copies; server killed and stopped", 200, "faults", "-run=(TerminatedAtAnyInstant|ServerIsDown)$", "./integration/postgres"),
	tests("Redis: server killed during flushes", 10, "kills", "-run=^TestServerKilled$", "./integration/redis"),
	tests("damaged files of the log, every kind", 200, "files", "-run=Damage$", "./wal"),
	counting(cases, tests("crash points: log, engine, files", 1, "cases", "-tags=crashpoints", "-run=CrashPoints$", "./wal", "./committer", "./sinks/file")),
	counting(cases, tests("crash points: command to files, then again in recovery", 1, "cases", "-run=^TestCrash(Points|Twice)$", "./integration/file")),
	counting(cases, tests("crash points: Postgres and Redis", 1, "cases", "-run=CrashPoints$", "./integration/postgres", "./integration/redis")),
	counting(checks, tests("model: engine", 60_000, "schedules", "-run=^TestModel$", "./committer", "-rapid.checks=10000", "-rapid.seed={seed}")),
	counting(checks, tests("model: log", 1000, "schedules", "-run=^TestModel$", "./wal", "-rapid.checks=500", "-rapid.seed={seed}")),
	apart(tests("simulation: the whole core, a world for each seed", 100_000, "seeds", "-run=^TestSimulation$", "./internal/sim", "-sim.seeds=5000", "-sim.range={seed}")),
	tests("planted bugs: log, engine, files", 10, "found", "-tags=plant", "-run=^TestPlantedBugs", "./wal", "./committer", "./sinks/file"),
	tests("planted bugs: command, Postgres, Redis", 12, "found", "-run=^Test(Controls|PlantedBugsAreFound)$", "./integration/file", "./integration/postgres", "./integration/redis"),
	{name: "fuzzing: every target", goal: 1, unit: "inputs", args: []string{"make", "-s", "fuzz", "FUZZTIME=5s"}, also: execs},
}

// controls is how many planted bugs there are.
const controls = 14
