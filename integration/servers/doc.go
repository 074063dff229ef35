// Package servers gives tests real Postgres and Redis servers.
//
// [Postgres] and [Redis] are for tests that need a store: they share servers
// within the process and give each test a fresh place. [StartPostgres] and
// [StartRedis] are for tests that maltreat a server: each call starts one, with a
// handle to kill, pause, disconnect and restart it. A test package that uses any
// of them ends its TestMain in [Main].
//
// # Where the servers come from
//
// With a Docker daemon: containers, by testcontainers. The images are named by
// WALSINK_POSTGRES_IMAGE (postgres:15) and WALSINK_REDIS_IMAGE (redis:7); one that
// is present is used as it is, else it is pulled. integration/images/build makes
// both where no registry can be reached. Without a daemon or an image: throw-away
// processes of the machine's own postgres and redis-server binaries, Linux only.
// With neither the test skips and says why, or fails if CI=true.
// WALSINK_SERVERS=docker or local allows only the one.
//
// # Limits
//
// Fsync is on, as in production, but the death of a container or process is not
// a power cut: what reached the page cache stays. Disconnect of a local process is
// done by a proxy in front of it that lets nothing pass. Leftovers of a killed
// test process are removed by the next one that starts on this machine.
package servers
