package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/loopdev"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

// terminate ends every session of the sink's pools.
const terminate = `select pg_terminate_backend(pid) from pg_stat_activity
	where datname = current_database() and pid <> pg_backend_pid() and application_name = 'sink'`

func asSink(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "sink" }

// TestP18E04TerminatedAtAnyInstant ends the backend at random while it copies.
func TestP18E04TerminatedAtAnyInstant(t *testing.T) {
	d := newDB(t, plainTable)
	s, err := postgres.Open(testContext(t), d.pool(d.dsn, asSink), postgres.Options{Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	rounds, rows := 25, 20_000
	if campaign.Long() {
		rounds, rows = 300, 50_000
	}
	lane := newTape("orders", "0")
	recs := rowsOf(t, s, 0, rows)
	lane.seal(recs...)
	l, m := acquire(t, s, lane.id)
	began := time.Now()
	m = flush(t, l, lane.step(m, 1))
	took := time.Since(began)
	outcomes := make(map[sinks.Kind]int)
	rnd := rand.New(rand.NewPCG(campaign.Seed(t), 4))
	for range rounds {
		d.exec("truncate t")
		lane.seal(recs...)
		step := lane.step(m, lane.head.Seq)
		kill := time.AfterFunc(time.Duration(rnd.Int64N(int64(took))), func() { d.own.Exec(context.Background(), terminate) })
		_, err := l.Flush(testContext(t), step)
		kill.Stop()
		outcomes[sinks.KindOf(err)]++
		settle(t, l, step, err)
		m = step.Next
		if n := one[int](d, "select count(*) from t"); n != rows {
			t.Fatalf("%d rows after %v", n, err)
		}
	}
	t.Logf("outcomes %v", outcomes)
	if outcomes[sinks.Transient]+outcomes[sinks.Ambiguous] == 0 {
		t.Error("no flush was hit")
	}
	for k := range outcomes {
		if k != 0 && k != sinks.Transient && k != sinks.Ambiguous {
			t.Errorf("outcome %v", k)
		}
	}
	hit := outcomes[sinks.Transient] + outcomes[sinks.Ambiguous]
	campaign.Figures{Cycles: hit, Rows: rounds * rows, Faults: map[string]int{"Postgres backend terminated": hit}}.Report(t)
}

// TestE04TerminatedAtCommit holds COMMIT up in a deferred trigger and ends the
// backend there.
func TestE04TerminatedAtCommit(t *testing.T) {
	d := newDB(t, gated...)
	s, err := postgres.Open(testContext(t), d.pool(d.dsn, asSink), postgres.Options{Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 5)...)
	l, m := acquire(t, s, lane.id)
	release := d.hold("lock table gate")
	done := make(chan error)
	go func() {
		_, err := l.Flush(testContext(t), lane.step(m, 1))
		done <- err
	}()
	d.until("commit that waits", commitWaits)
	d.exec(terminate)
	if err := <-done; sinks.KindOf(err) != sinks.Ambiguous {
		t.Errorf("terminated at COMMIT: %v", err)
	}
	release()
	settle(t, l, lane.step(m, 1), errors.New("unknown"))
	wantIDs(d, 0, 5)
}

// TestC110E14ServerIsDown runs a job against a server that is down for a while,
// with a log that is too small for it.
func TestC110E14P28ServerIsDown(t *testing.T) {
	server := servers.StartPostgres(t)
	d := dbAt(t, server.Database(), plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "down", Lanes: 2, To: 60_000, Batch: 500, Log: 4 << 20, Pad: 200}
	p := j.start(t, "")
	d.until("first rows", "select exists (select from t)")
	downs := 2
	if campaign.Long() {
		downs = 20
	}
	for i := range downs {
		if i%2 == 0 {
			server.Kill()
		} else {
			server.Stop()
		}
		server.Start()
		d.own.Reset() // its connections were to the server before
		d.until("more rows", "select count(*) > $1 or count(*) = $2 from t", one[int](d, "select count(*) from t"), j.To)
	}
	if code := p.wait(); code != jobDone {
		t.Fatalf("exit code %d: %s", code, &p.err)
	}
	wantIDs(d, 0, j.To)
	campaign.Figures{Cycles: downs, Rows: j.To, Faults: map[string]int{"Postgres killed or stopped": downs}}.Report(t)

	server.Stop()
	limited := j
	limited.To += 1000
	limited.Retry = 2
	if code := limited.start(t, "").wait(); code != jobFailed {
		t.Errorf("two attempts without a server: exit code %d", code)
	}
	server.Start()
	d.own.Reset()
	limited.finish(t)
	wantIDs(d, 0, limited.To)
}

// TestServerPausedAndDisconnected freezes the server, and cuts it off, while a job
// runs.
func TestServerPausedAndDisconnected(t *testing.T) {
	server := servers.StartPostgres(t)
	d := dbAt(t, server.Database(), plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "cut", Lanes: 2, To: 100_000, Batch: 200}
	p := j.start(t, "")
	d.until("first rows", "select exists (select from t)")
	server.Pause()
	wait(t, 300*time.Millisecond)
	server.Unpause()
	d.until("more rows", "select count(*) > 1000 from t")
	server.Disconnect()
	wait(t, 300*time.Millisecond)
	server.Connect()
	if code := p.wait(); code != jobDone {
		t.Fatalf("exit code %d: %s", code, &p.err)
	}
	wantIDs(d, 0, j.To)
}

// wait lets time pass for other processes, of which nothing can be asked.
func wait(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// TestRestoredBackupHealsFromRetainedBatches puts database and ledger back to an
// earlier copy.
func TestRestoredBackupHealsFromRetainedBatches(t *testing.T) {
	server := servers.StartPostgres(t)
	d := dbAt(t, server.Database(), plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "restored", Lanes: 2, To: 1000, Batch: 50}
	j.finish(t)
	name := one[string](d, "select current_database()")
	admin := dbAt(t, server.DSN())
	d.own.Close()
	copyOf := func(from, to string) {
		admin.exec(fmt.Sprintf("drop database if exists %s with (force)", to))
		admin.exec(fmt.Sprintf("create database %s template %s", to, from))
	}
	copyOf(name, "backup")
	j.To = 3000
	j.finish(t)
	copyOf("backup", name)
	d = dbAt(t, d.dsn)
	wantIDs(d, 0, 1000)
	j.To = 3500
	j.finish(t)
	wantIDs(d, 0, j.To)
}

// TestServerDiskFull puts the table on a file system that is full. In a container
// that is its small /dev/shm, else one on a loop device.
func TestServerDiskFull(t *testing.T) {
	server := servers.StartPostgres(t)
	d := dbAt(t, server.Database(), "create table out (line text)")
	shell := func(command string) string {
		d.exec("truncate out")
		d.exec("copy out from program '" + command + "'")
		return strings.Join(column[string](d, "select line from out"), "\n")
	}
	dir := "/dev/shm"
	free, err := strconv.Atoi(strings.TrimSpace(shell("df --output=avail -m /dev/shm | tail -n 1")))
	if err != nil {
		t.Fatal(err)
	}
	if free > 512 {
		dir = shared(t, loopdev.New(t, "ext4", 64).Dir())
		if free, err = strconv.Atoi(strings.TrimSpace(shell("df --output=avail -m " + dir + " | tail -n 1"))); err != nil {
			t.Fatal(err)
		}
	}
	shell("mkdir -m 700 " + dir + "/space")
	d.exec("create tablespace small location '" + dir + "/space'")
	t.Cleanup(func() { d.exec("drop table if exists t"); d.exec("drop tablespace small") })
	d.exec("create table t (id bigint, name text) tablespace small")
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	recs := make([][]byte, 60_000)
	for i := range recs {
		recs[i] = fmt.Appendf(nil, "%d\t%s\n", i, strings.Repeat("x", 100))
	}
	lane.seal(recs...)
	l, m := acquire(t, s, lane.id)
	shell(fmt.Sprintf("head -c %dM /dev/zero > %s/filler", free-4, dir))
	if e := refuse(t, l, lane.step(m, 1), sinks.Transient); !strings.Contains(e.Error(), "53100") {
		t.Errorf("error %v", e)
	}
	if got := mark(t, l); got.Tip() != m.Tip() {
		t.Errorf("mark %+v", got)
	}
	shell("rm " + dir + "/filler")
	flush(t, l, lane.step(m, 1))
	wantIDs(d, 0, len(recs))
}

// shared lets every user of the machine write to a directory of this test.
func shared(t testing.TB, dir string) string {
	t.Helper()
	for up := dir; strings.HasPrefix(up, os.TempDir()+"/"); up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestP15Pgbouncer runs eight writers over a pooler in transaction mode.
func TestP15Pgbouncer(t *testing.T) {
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bin = "/usr/sbin/pgbouncer"; !exists(bin) {
			t.Skip("no pgbouncer on this machine")
		}
	}
	d := newDB(t, plainTable, keyedTable)
	dsn := d.pooler(bin)
	flushes := 40
	if campaign.Long() {
		flushes = 1250
	}
	for name, mode := range map[string]pgx.QueryExecMode{
		"cache statement": pgx.QueryExecModeCacheStatement, "cache describe": pgx.QueryExecModeCacheDescribe,
		"describe exec": pgx.QueryExecModeDescribeExec, "exec": pgx.QueryExecModeExec, "simple": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			d := &db{t: t, dsn: d.dsn, own: d.own}
			d.exec("truncate t, kv")
			pool := d.pool(dsn, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			errs := make(chan error)
			const writers = 8
			for w := range writers {
				go func() { errs <- pooledWriter(testContext(t), pool, name, w, flushes) }()
			}
			for range writers {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			if n := one[int](d, "select count(distinct id) from t"); n != writers/2*flushes || n != one[int](d, "select count(*) from t") {
				t.Errorf("%d rows", n)
			}
			if n := one[int](d, "select count(*) from kv where v = $1", flushes-1); n != writers/2 {
				t.Errorf("%d keys", n)
			}
		})
	}
}

// pooledWriter flushes one row at a time; every other writer upserts.
func pooledWriter(ctx context.Context, pool *pgxpool.Pool, name string, w, flushes int) error {
	opts := postgres.Options{Table: "t"}
	if w%2 == 1 {
		opts = upsert("kv")
	}
	s, err := postgres.Open(ctx, pool, opts)
	if err != nil {
		return err
	}
	lane := newTape(strings.ReplaceAll(name, " ", "-"), fmt.Sprint(w))
	l, m, err := s.Acquire(ctx, lane.id)
	if err != nil {
		return err
	}
	for i := range flushes {
		row := []any{w*1_000_000 + i, "x"}
		if w%2 == 1 {
			row = []any{fmt.Sprint(w), i}
		}
		rec, err := s.AppendRow(nil, row)
		if err != nil {
			return err
		}
		lane.seal(rec)
		step := lane.step(m, uint64(i+1))
		if _, err := l.Flush(ctx, step); err != nil {
			return err
		}
		m = step.Next
	}
	_, err = l.Mark(ctx)
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// pooler starts pgbouncer in front of the database and returns its DSN.
func (d *db) pooler(bin string) string {
	d.t.Helper()
	cfg, err := pgx.ParseConfig(d.dsn)
	if err != nil {
		d.t.Fatal(err)
	}
	dir := d.t.TempDir()
	port := freePort(d.t)
	ini := fmt.Sprintf(`[databases]
%s = host=%s port=%d password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = plain
auth_file = %s/users
pool_mode = transaction
default_pool_size = 2
max_client_conn = 100
`, cfg.Database, cfg.Host, cfg.Port, cfg.Password, port, dir)
	users := fmt.Sprintf("\"%s\" \"%s\"\n", cfg.User, cfg.Password)
	if err := errors.Join(os.WriteFile(dir+"/ini", []byte(ini), 0o644), os.WriteFile(dir+"/users", []byte(users), 0o644)); err != nil {
		d.t.Fatal(err)
	}
	shared(d.t, dir)
	args := []string{"-q", dir + "/ini"}
	if os.Getuid() == 0 {
		args = append([]string{"-u", "nobody"}, args...)
	}
	cmd := exec.Command(bin, args...)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if d.t.Failed() {
			d.t.Log(log.String())
		}
	})
	dsn := fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", cfg.User, cfg.Password, port, cfg.Database)
	ctx := testContext(d.t)
	for ctx.Err() == nil {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			_ = conn.Close(ctx)
			return dsn
		}
		wait(d.t, 20*time.Millisecond)
	}
	d.t.Fatalf("pgbouncer does not answer: %s", &log)
	return ""
}

func freePort(t testing.TB) int {
	t.Helper()
	out, err := exec.Command("sh", "-c", "shuf -i 20000-32000 -n 1").Output()
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// gated is a table whose transactions wait in COMMIT for the table gate.
var gated = []string{plainTable, "create table gate (x int)",
	`create function wait() returns trigger language plpgsql as $$ begin lock table gate in exclusive mode; return null; end $$`,
	`create constraint trigger held after insert on t deferrable initially deferred for each row execute function wait()`}

const commitWaits = "select exists (select from pg_locks where not granted and relation = 'gate'::regclass)"

// TestMarkSettlesACommitInDoubt cancels a flush whose COMMIT hangs in the server,
// where no cancel reaches it, and asks for the mark.
func TestMarkSettlesACommitInDoubt(t *testing.T) {
	for name, takeover := range map[string]time.Duration{"waits for its end": time.Minute, "ends it": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, gated...)
			var refuse atomic.Bool
			refused := make(chan struct{}, 16)
			pool := d.pool(d.dsn, func(c *pgxpool.Config) {
				dial := c.ConnConfig.DialFunc
				c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if refuse.Load() {
						refused <- struct{}{}
						return nil, errors.New("refused")
					}
					return dial(ctx, network, addr)
				}
			})
			s, err := postgres.Open(testContext(t), pool, postgres.Options{Table: "t", Takeover: takeover})
			if err != nil {
				t.Fatal(err)
			}
			lane := newTape("orders", "0")
			lane.seal(rowsOf(t, s, 0, 5)...)
			l, m := acquire(t, s, lane.id)
			step := lane.step(m, 1)
			release := d.hold("lock table gate")
			ctx, cancel := context.WithCancel(testContext(t))
			done := make(chan error)
			go func() {
				_, err := l.Flush(ctx, step)
				done <- err
			}()
			d.until("commit that waits", commitWaits)
			refuse.Store(true)
			cancel()
			if err := <-done; sinks.KindOf(err) != sinks.Cancelled {
				t.Fatalf("flush: %v", err)
			}
			<-refused // the request to cancel, which a lost network would not carry either
			refuse.Store(false)
			want := step.Prev.Tip()
			if takeover == time.Minute {
				want = step.Next.Tip()
			}
			marks := make(chan error)
			go func() {
				got, err := l.Mark(testContext(t))
				if err == nil && got.Tip() != want {
					err = fmt.Errorf("mark %+v", got)
				}
				marks <- err
			}()
			if takeover == time.Minute {
				d.until("mark that waits", "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%for update%')")
				release()
			}
			if err := <-marks; err != nil {
				t.Error(err)
			}
			release()
			d.until("quiet", "select not "+strings.TrimPrefix(commitWaits, "select "))
			settle(t, l, step, errors.New("unknown"))
			wantIDs(d, 0, 5)
		})
	}
}
