package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink/faults"
	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

// through puts a cutter in front of the database.
func (d *db) through() (*faults.Cutter, string) {
	d.t.Helper()
	addr := d.dsn[strings.Index(d.dsn, "@")+1 : strings.LastIndex(d.dsn, "/")]
	c, err := faults.NewCutter(addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c, strings.Replace(d.dsn, addr, c.Addr(), 1)
}

// settle does what the flush engine does: it asks for the mark, and flushes
// again if the step is not in. It returns how often it had to.
func settle(t testing.TB, l sinks.Lane, step *sinks.Step, err error) (again int) {
	t.Helper()
	ctx := testContext(t)
	for err != nil {
		if k := sinks.KindOf(err); k == sinks.Permanent || k == sinks.Poison || k == sinks.Fenced {
			t.Fatalf("flush: %v", err)
		}
		m, markErr := l.Mark(ctx)
		for markErr != nil {
			if sinks.KindOf(markErr) != sinks.Transient && sinks.KindOf(markErr) != sinks.Ambiguous {
				t.Fatalf("mark: %v", markErr)
			}
			m, markErr = l.Mark(ctx)
		}
		switch m.Tip() {
		case step.Next.Tip():
			return again
		case step.Prev.Tip():
			again++
			_, err = l.Flush(ctx, step)
		default:
			t.Fatalf("mark is neither before nor after the step: %+v", m)
		}
	}
	return again
}

// TestC112P25P27CutAtEveryByte cuts the connection of one flush of about 4 KB
// after each byte, in both directions, and settles it as the engine would.
func TestC112P25P27CutAtEveryByte(t *testing.T) {
	d := newDB(t, plainTable)
	cutter, dsn := d.through()
	s := d.openAt(dsn, postgres.Options{Table: "t"})
	probe := newTape("probe", "0")
	recs := rowsOf(t, s, 0, 220)
	probe.seal(recs...)
	l, m := acquire(t, s, probe.id)
	for range 2 { // the second flush has warm caches
		cutter.Arm(faults.Cut{After: 1 << 40})
		if _, err := l.Flush(testContext(t), probe.step(m, probe.head.Seq)); err != nil {
			t.Fatal(err)
		}
		m = mark(t, l)
		probe.seal(recs...)
	}
	d.exec("truncate t")
	outcomes, cuts := make(map[sinks.Kind]int), 0
	for _, dir := range []faults.Direction{faults.ToServer, faults.ToClient} {
		total := cutter.Passed(dir)
		stride := int64(29)
		if campaign.Long() {
			stride = 1
		}
		for after := int64(1); after < total; after += stride {
			tripped := cutter.Arm(faults.Cut{Dir: dir, After: after})
			step := probe.step(m, probe.head.Seq)
			_, err := l.Flush(testContext(t), step)
			outcomes[sinks.KindOf(err)]++
			if err == nil {
				select {
				case <-tripped:
				default:
					total = after // the flush is shorter than it was
					if err := cutter.Heal(); err != nil {
						t.Fatal(err)
					}
				}
			}
			settle(t, l, step, err)
			m = markAfterCut(t, l)
			if n := one[int](d, "select count(*) from t"); n != len(recs) {
				campaign.Figures{Lost: max(0, len(recs)-n), Duplicated: max(0, n-len(recs))}.Report(t)
				t.Fatalf("cut %v after %d: %d rows, want %d (%v)", dir, after, n, len(recs), err)
			}
			cuts++
			d.exec("truncate t")
			probe.seal(recs...)
		}
	}
	t.Logf("outcomes %v", outcomes)
	if outcomes[sinks.Transient] == 0 || outcomes[sinks.Ambiguous] == 0 {
		t.Errorf("outcomes %v: want transient and ambiguous ones", outcomes)
	}
	for k := range outcomes {
		if k != 0 && k != sinks.Transient && k != sinks.Ambiguous {
			t.Errorf("outcome %v of a cut", k)
		}
	}
	campaign.Figures{Cycles: cuts, Rows: cuts * len(recs), Faults: map[string]int{"connection cut": cuts}}.Report(t)
}

// markAfterCut reads the mark. A cut of the last bytes can trip after the flush has
// its answer, and takes the connection that the pool has kept.
func markAfterCut(t *testing.T, l sinks.Lane) sinks.Mark {
	t.Helper()
	m, err := l.Mark(testContext(t))
	if sinks.KindOf(err) == sinks.Transient {
		m, err = l.Mark(testContext(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestP27AnswerOfCommitIsLost(t *testing.T) {
	d := newDB(t, plainTable)
	cutter, dsn := d.through()
	s := d.openAt(dsn, postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	l, m := acquire(t, s, lane.id)
	cutter.Arm(faults.Cut{Dir: faults.ToServer, Match: "commit\x00", Do: faults.LoseAnswer})
	refuse(t, l, lane.step(m, 1), sinks.Ambiguous)
	if got := mark(t, l); got.Tip() != lane.step(m, 1).Next.Tip() {
		t.Errorf("mark %+v: the commit was done", got)
	}
	wantIDs(d, 0, 10)
}

func TestP25CommitNeverArrives(t *testing.T) {
	d := newDB(t, plainTable)
	cutter, dsn := d.through()
	s := d.openAt(dsn, postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	l, m := acquire(t, s, lane.id)
	cutter.Arm(faults.Cut{Dir: faults.ToServer, Match: "commit\x00", Do: faults.Reset})
	refuse(t, l, lane.step(m, 1), sinks.Ambiguous)
	if got := mark(t, l); got.Tip() != m.Tip() {
		t.Errorf("mark %+v: the commit was not done", got)
	}
	wantIDs(d, 0, 0)
	flush(t, l, lane.step(m, 1))
	wantIDs(d, 0, 10)
}

// A transaction whose end hangs in the network holds the mark: Mark must not say
// "not in" while it can still commit.
func TestMarkSettlesACommitInFlight(t *testing.T) {
	d := newDB(t, plainTable)
	cutter, dsn := d.through()
	s := d.openAt(dsn, postgres.Options{Table: "t", Takeover: 500 * time.Millisecond})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	l, m := acquire(t, s, lane.id)
	direct := d.open(postgres.Options{Table: "t", Takeover: 500 * time.Millisecond})

	tripped := cutter.Arm(faults.Cut{Dir: faults.ToServer, Match: "copy", Do: faults.Stall})
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error)
	go func() {
		_, err := l.Flush(ctx, lane.step(m, 1))
		done <- err
	}()
	<-tripped
	if n := one[int](d, "select count(*) from pg_locks where locktype = 'transactionid' and mode = 'ExclusiveLock'"); n == 0 {
		t.Fatal("no transaction is open: the test is void")
	}
	fresh, got := acquire(t, direct, lane.id) // evicts the stalled transaction
	if got.Tip() != m.Tip() || got.Fence != m.Fence+1 {
		t.Errorf("mark %+v", got)
	}
	cancel()
	if err := <-done; sinks.KindOf(err) != sinks.Cancelled {
		t.Errorf("cancelled flush: %v", err)
	}
	flush(t, fresh, lane.step(got, 1))
	if err := cutter.Heal(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Mark(testContext(t)); sinks.KindOf(err) != sinks.Fenced {
		t.Errorf("mark of the old owner: %v", err)
	}
	wantIDs(d, 0, 10)
}

func TestP19ShortWrites(t *testing.T) {
	d := newDB(t, plainTable)
	cutter, dsn := d.through()
	s := d.openAt(dsn, postgres.Options{Table: "t"})
	rows := 2000
	if campaign.Long() {
		rows = 100_000
	}
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, rows)...)
	lane.seal(rowsOf(t, s, rows, 2*rows)...)
	l, m := acquire(t, s, lane.id)
	cutter.Limit(1, 0)
	m = flush(t, l, lane.step(m, 1))
	cutter.Limit(0, 1<<20)
	flush(t, l, lane.step(m, 2))
	cutter.Limit(0, 0)
	wantIDs(d, 0, 2*rows)
}

func TestE05TwoFaultsInARow(t *testing.T) {
	d := newDB(t, plainTable)
	cutter, dsn := d.through()
	s := d.openAt(dsn, postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(rowsOf(t, s, 0, 10)...)
	l, m := acquire(t, s, lane.id)
	step := lane.step(m, 1)
	cutter.Arm(faults.Cut{Dir: faults.ToServer, Match: "commit\x00", Do: faults.Reset})
	_, err := l.Flush(testContext(t), step)
	cutter.Refuse()
	for range 3 {
		if _, err := l.Mark(testContext(t)); sinks.KindOf(err) != sinks.Transient {
			t.Errorf("mark while refused: %v", err)
		}
		if _, err := l.Flush(testContext(t), step); sinks.KindOf(err) != sinks.Transient {
			t.Errorf("flush while refused: %v", err)
		}
	}
	if err := cutter.Heal(); err != nil {
		t.Fatal(err)
	}
	settle(t, l, step, err)
	wantIDs(d, 0, 10)
	d.wantQuiet()
}

// wantQuiet checks that nobody but us has a transaction or a lock.
func (d *db) wantQuiet() {
	d.t.Helper()
	if n := one[int](d, `select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`); n != 0 {
		d.t.Errorf("%d sessions idle in transaction", n)
	}
	if n := one[int](d, "select count(*) from pg_prepared_xacts"); n != 0 {
		d.t.Errorf("%d prepared transactions", n)
	}
	if n := one[int](d, "select count(*) from pg_locks where relation = 'walsink.lane'::regclass and pid <> pg_backend_pid()"); n != 0 {
		d.t.Errorf("%d locks on the ledger", n)
	}
}

// TestP21CancelAtAnyInstant cancels a flush after a growing time.
func TestC114P21CancelAtAnyInstant(t *testing.T) {
	d := newDB(t, plainTable)
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	recs := rowsOf(t, s, 0, 5000)
	lane.seal(recs...)
	l, m := acquire(t, s, lane.id)
	outcomes := make(map[sinks.Kind]int)
	step := 400 * time.Microsecond
	for after := time.Duration(0); after < 60*step; after += step {
		st := lane.step(m, lane.head.Seq)
		ctx, cancel := context.WithTimeout(t.Context(), after)
		began := time.Now()
		_, err := l.Flush(ctx, st)
		took := time.Since(began)
		cancel()
		outcomes[sinks.KindOf(err)]++
		if err != nil && sinks.KindOf(err) != sinks.Cancelled {
			t.Fatalf("cancelled after %v: %v", after, err)
		}
		if took > after+2*time.Second {
			t.Errorf("cancelled after %v, returned after %v", after, took)
		}
		settle(t, l, st, err)
		m = mark(t, l)
		if n := one[int](d, "select count(*) from t"); n != len(recs) {
			t.Fatalf("cancelled after %v: %d rows", after, n)
		}
		d.exec("truncate t")
		lane.seal(recs...)
	}
	t.Logf("outcomes %v", outcomes)
	if outcomes[sinks.Cancelled] == 0 || outcomes[0] == 0 {
		t.Errorf("outcomes %v: want some cancelled and some done", outcomes)
	}
}

// TestP22CancelsDoNotPoisonThePool runs cancelled flushes beside good ones over
// one small pool.
func TestP22CancelsDoNotPoisonThePool(t *testing.T) {
	d := newDB(t, plainTable)
	pool := d.pool(d.dsn, func(c *pgxpool.Config) { c.MaxConns = 3 })
	s, err := postgres.Open(testContext(t), pool, postgres.Options{Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 60
	good, bad := newTape("good", "0"), newTape("bad", "0")
	bad.seal(rowsOf(t, s, 0, 20_000)...)
	lb, mb := acquire(t, s, bad.id)
	lg, mg := acquire(t, s, good.id)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			_, _ = lb.Flush(ctx, bad.step(mb, 1))
			cancel()
		}
	}()
	n := 0
	for alive := true; alive || n < rounds; n++ {
		good.seal(rowsOf(t, s, 1_000_000+n, 1_000_001+n)...)
		step := good.step(mg, good.head.Seq)
		if _, err := lg.Flush(testContext(t), step); err != nil {
			t.Fatalf("good flush: %v", err)
		}
		mg = step.Next
		select {
		case <-done:
			alive = false
		default:
		}
	}
	<-done
	if got := one[int](d, "select count(*) from t where id >= 1000000"); got != n {
		t.Errorf("%d good rows, want %d", got, n)
	}
}

func TestP16SessionStateIsGone(t *testing.T) {
	d := newDB(t, plainTable)
	pool := d.pool(d.dsn, func(c *pgxpool.Config) {
		c.AfterRelease = func(conn *pgx.Conn) bool {
			_, err := conn.PgConn().Exec(context.Background(), "discard all").ReadAll()
			return err == nil
		}
	})
	s, err := postgres.Open(testContext(t), pool, postgres.Options{Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	lane := newTape("orders", "0")
	l, m := acquire(t, s, lane.id)
	for i := range 5 {
		lane.seal(rowsOf(t, s, i, i+1)...)
		m = flush(t, l, lane.step(m, uint64(i+1)))
	}
	wantIDs(d, 0, 5)
}

func TestSecretsStayOut(t *testing.T) {
	d := newDB(t, plainTable)
	cutter, dsn := d.through()
	s := d.openAt(dsn, postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	lane.seal(raw("a")...)
	l, m := acquire(t, s, lane.id)
	var errs []error
	keep := func(_ any, err error) { errs = append(errs, err) }
	keep(l.Flush(testContext(t), lane.step(m, 1)))
	cutter.Refuse()
	cutter.ResetAll()
	keep(l.Flush(testContext(t), lane.step(m, 1)))
	keep(l.Mark(testContext(t)))
	keep(s.Marks(testContext(t), "orders"))
	keep(s.Probe(testContext(t)))
	_, _, err := s.Acquire(testContext(t), lane.id)
	keep(nil, err)
	if err := cutter.Heal(); err != nil {
		t.Fatal(err)
	}
	const canary = "canary-wrong-password"
	wrong := strings.Replace(dsn, "canary-5f3a", canary, 1)
	keep(postgres.Open(testContext(t), d.pool(wrong), postgres.Options{Table: "t"}))
	keep(postgres.Open(testContext(t), d.pool(strings.Replace(dsn, "test_", "nowhere_", 1)), postgres.Options{Table: "t"}))
	keep(postgres.Open(testContext(t), d.pool(dsn), postgres.Options{Table: "nowhere"}))
	for i, err := range errs {
		if err == nil {
			t.Errorf("error %d is nil", i)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), "canary") {
				t.Errorf("secret in %v", e)
			}
		}
	}
	if target := s.Info().Target; strings.Contains(target, "canary") || !strings.Contains(target, "public.t") {
		t.Errorf("target %q", target)
	}
	if _, ok := errors.AsType[*pgconn.PgError](errs[0]); ok {
		t.Error("a record's error leads to the server's, which quotes it")
	}
}
