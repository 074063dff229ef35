package postgres_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/walsink/walsink/faults"
	"github.com/walsink/walsink/sinks"
)

// hold runs sql in a transaction that stays open until the function it returns is
// called, or the test ends.
func (d *db) hold(sql string) (release func()) {
	d.t.Helper()
	tx, err := d.own.Begin(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	release = func() { _ = tx.Rollback(context.Background()) } // also when it was called before
	d.t.Cleanup(release)
	if _, err := tx.Exec(context.Background(), sql); err != nil {
		d.t.Fatal(err)
	}
	return release
}

const lockTable = "lock table t in exclusive mode"

// TestC111SlowStoreDoesNotHoldCheckpoints takes checkpoints while the store does
// not take anything.
func TestC111SlowStoreDoesNotHoldCheckpoints(t *testing.T) {
	d := newDB(t, plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "slow", Lanes: 1, Batch: 10}
	ctx := testContext(t)
	out, s, done, err := j.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	release := d.hold(lockTable)
	for n := range 100 {
		rec, err := j.number(s, nil, n)
		if err != nil {
			t.Fatal(err)
		}
		lane, err := out.Lane(ctx, "0")
		if err != nil {
			t.Fatal(err)
		}
		if err := lane.Append(ctx, rec); err != nil {
			t.Fatal(err)
		}
		if n%10 == 9 {
			began := time.Now()
			if _, err := out.Checkpoint(ctx, strconv.AppendInt(nil, int64(n+1), 10)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("checkpoint took %v", took)
			}
		}
	}
	wantIDs(d, 0, 0)
	release()
	if err := out.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	wantIDs(d, 0, 100)
}

// TestC110BackPressure fills the log's budget while the store takes nothing.
func TestC110BackPressure(t *testing.T) {
	d := newDB(t, plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "full", Lanes: 1, To: 300_000, Batch: 1000, Log: 4 << 20, Pad: 200}
	ctx := testContext(t)
	out, s, done, err := j.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	lane, err := out.Lane(ctx, "0")
	if err != nil {
		t.Fatal(err)
	}
	release := d.hold(lockTable)
	blocked := false
	n := 0
	for ; n < j.To && !blocked; n++ {
		rec, err := j.number(s, nil, n)
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		err = lane.Append(short, rec)
		cancel()
		if blocked = errors.Is(err, context.DeadlineExceeded); !blocked && err != nil {
			t.Fatal(err)
		}
		if !blocked && n%j.Batch == j.Batch-1 {
			if _, err := out.Checkpoint(ctx, strconv.AppendInt(nil, int64(n+1), 10)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !blocked {
		t.Fatal("the source was never held back")
	}
	release()
	if err := out.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	wantIDs(d, 0, (n-1)/j.Batch*j.Batch)
}

// TestC109E21DeadLettersThroughTheEngine has a record that the table never takes.
func TestC109E21DeadLettersThroughTheEngine(t *testing.T) {
	d := newDB(t, "create table t (id bigint check (id <> 57), name text)")
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "dead", Lanes: 1, To: 100, Batch: 100}
	p := j.start(t, "")
	if code := p.wait(); code != jobFailed || !strings.Contains(p.err.String(), "record 57") || !strings.Contains(p.err.String(), "23514") {
		t.Fatalf("exit code %d: %s", code, &p.err)
	}
	wantIDs(d, 0, 0)
	j.Dead = true
	j.finish(t)
	check := func() {
		t.Helper()
		if n := one[int](d, "select count(distinct id) from t"); n != 99 || n != one[int](d, "select count(*) from t") {
			t.Errorf("%d rows", n)
		}
		if n := one[int](d, "select count(*) from walsink.dead_letter where number = 57 and code = '23514'"); n != 1 {
			t.Errorf("%d dead letters", n)
		}
	}
	check()
	j.Dir = t.TempDir() // a replay without the local log
	j.finish(t)
	check()
}

// TestE02Rescale stops four lanes before anything was flushed, and goes on with
// two, then with eight.
func TestE02Rescale(t *testing.T) {
	d := newDB(t, plainTable)
	cutter, dsn := d.through()
	j := job{DSN: dsn, Dir: t.TempDir(), ID: "rescale", Lanes: 4, To: 400, Batch: 100, Retry: 1}
	cutter.Arm(faults.Cut{Dir: faults.ToServer, Match: "copy ", Do: faults.Reset})
	j.start(t, "").wait()
	if n := one[int](d, "select count(*) from t"); n >= 400 {
		t.Fatalf("%d rows: nothing was pending", n)
	}
	j.Retry = 0
	for _, lanes := range []int{2, 8} {
		j.Lanes, j.To = lanes, j.To+400
		j.finish(t)
		wantIDs(d, 0, j.To)
	}
}

// TestE19DoubleRestore puts the state directory back to an earlier copy, twice.
func TestE19DoubleRestore(t *testing.T) {
	d := newDB(t, plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "twice", Lanes: 2, To: 400, Batch: 50}
	j.finish(t)
	saved := t.TempDir()
	if err := os.CopyFS(saved, os.DirFS(j.Dir)); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		j.To += 200
		j.finish(t)
		j.Dir = t.TempDir()
		if err := os.CopyFS(j.Dir, os.DirFS(saved)); err != nil {
			t.Fatal(err)
		}
		j.finish(t)
		wantIDs(d, 0, j.To)
		_ = i
	}
}

// TestLedgerDroppedIsRefused removes the ledger behind a job's back.
func TestLedgerDroppedIsRefused(t *testing.T) {
	d := newDB(t, plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "dropped", Lanes: 1, To: 100, Batch: 10}
	j.finish(t)
	d.exec("drop schema walsink cascade")
	p := j.start(t, "")
	if code := p.wait(); code != jobFailed || !strings.Contains(p.err.String(), "lost its ledger") {
		t.Errorf("exit code %d: %s", code, &p.err)
	}
	wantIDs(d, 0, 100)
}

// TestP36CloseDuringABlockedFlush closes the output while the server holds its
// flush.
func TestP36CloseDuringABlockedFlush(t *testing.T) {
	d := newDB(t, plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "blocked", Lanes: 1, To: 10, Batch: 10}
	ctx := testContext(t)
	release := d.hold(lockTable)
	ended := make(chan error)
	running, cancel := context.WithCancel(ctx)
	go func() { ended <- j.run(running) }()
	d.until("flush that waits", `select exists (select from pg_locks where not granted and relation = 't'::regclass)`)
	began := time.Now()
	cancel()
	err := <-ended
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("close took %v", took)
	}
	if err == nil {
		t.Error("drain of a blocked flush says that all is in")
	}
	release()
	j.finish(t)
	wantIDs(d, 0, 10)
	if k := sinks.KindOf(err); k == sinks.Permanent {
		t.Errorf("error %v", err)
	}
}
