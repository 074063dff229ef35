package main

// A row is a benchmark with its goal.
type row struct {
	work, baseline string  // for people
	pkg, name      string  // name as -bench takes it, its parts joined with a slash
	unit           string  // of the metric
	goal           float64 // most that is allowed; a rate of 0.5 is a time of 2
	times          int     // iterations
	env            string  // for the benchmark, if not empty
}

const paired = "x-baseline"

// rows are the goals. Those of speed are times: wall time as a multiple of the
// baseline's in the same run.
var rows = []row{
	{"log append, 1 lane, fsync each 500,000", "plain buffered file, same fsyncs", "./wal", "AppendRatio", paired, 2, 7, ""},
	{"log append, 16 lanes, seal each 10,000 per lane", "same records, 1 lane, as many seals of all", "./wal", "Lanes", paired, 1.25, 7, ""},
	{"files, NDJSON, 16 MiB at a time", "buffered write, fsync, rename of the same bytes", "./sinks/file", "FlushRatio", paired, 1.8, 15, ""},
	{"Postgres, one checkpoint per second, log budget 640 MiB, bigint, bigint, text", "one long COPY by pgx", "./integration/postgres", "Load/bigint", "x-direct", 1.10, 3, ""},
	{"Postgres, one checkpoint per second, log budget 640 MiB, bigint, timestamptz, text", "one long COPY by pgx", "./integration/postgres", "Load/timestamptz", "x-direct", 1.10, 3, ""},
	{"Postgres, a checkpoint each 1,000 rows", "a COPY in a transaction of its own each 1,000 rows", "./integration/postgres", "Small", "x-direct", 1, 3, ""},
	{"Postgres, 1,000 rows from sealed to visible, idle, p50", "one COPY and COMMIT of 1,000 rows", "./integration/postgres", "Latency", "x-p50", 1.5, 300, ""},
	{"the same, p99", "p99 of the same", "./integration/postgres", "Latency", "x-p99", 3, 300, ""},
	{"`walsink run`, 1,000,000 NDJSON records to Postgres", "psql \\copy of the same rows prepared as CSV", "./integration/postgres", "Run", "x-psql", 1 / 0.7, 3, ""},
	{"Postgres down for 60 s at 500,000 rows/s, then up, until all is in", "one COPY of as many rows", "./integration/postgres", "Backlog", "x-direct", 1.3, 1, "WALSINK_CAMPAIGN=1"},
	{"Redis SET, steady state", "go-redis pipeline, no guarantee", "./integration/redis", "Steady/set", paired, 1.25, 15, ""},
	{"Redis HSET, steady state", "go-redis pipeline, no guarantee", "./integration/redis", "Steady/hset", paired, 1.25, 15, ""},
	{"Redis INCRBY, steady state", "go-redis pipeline, no guarantee", "./integration/redis", "Steady/incrby", paired, 1.25, 15, ""},
	{"`walsink run`, 1,000,000 NDJSON records to files", "a Go line copier with one fsync", "./integration/file", "Run", paired, 2.5, 7, ""},
	{"`walsink run`, 1,000,000 NDJSON records to Redis HSET", "redis-cli --pipe of prepared commands", "./integration/command", "Redis", paired, 1 / 0.6, 3, ""},
	{"open with 10 million records pending, to the first row, in seconds", "-", "./integration/file", "Backlog", "first-row-s", 1, 2, ""},
	{"the same, resident memory in MiB", "-", "./integration/file", "Backlog", "rss-MiB", 200, 2, ""},
	{"idle with 8 lanes, percent of a core", "-", "./integration/file", "Idle", "cpu-percent", 1, 1, ""},
	{"the same, system calls that write or sync", "-", "./integration/file", "Idle", "calls", 0, 1, ""},
	{"two sources, four lanes, aligned", "the same, not aligned", "./pipeline", "Aligned", paired, 1 / 0.9, 7, ""},
}
