package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

// TestC101E03CrashPoints kills a job at each point of a flush, and the job that
// recovers once more at the same point, and lets a third one finish.
func TestC101E03CrashPoints(t *testing.T) {
	d := newDB(t)
	bin := build(t, "crashpoints")
	for _, point := range []crash.Name{
		crash.FlushMarkRead, crash.FlushBegun, crash.FlushChunkFirst, crash.FlushMarkWritten, crash.FlushSent,
		crash.FlushAnswered, crash.FlushNoted, crash.PruneBefore, crash.PruneAfter, crash.FenceRaised, crash.OpenFlushed,
	} {
		t.Run(string(point), func(t *testing.T) {
			d := dbAt(t, d.dsn, fresh, plainTable)
			j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "crash", Lanes: 2, To: 1000, Batch: 100}
			switch point {
			case crash.FlushChunkFirst:
				j.Chunk = 400
			case crash.PruneBefore, crash.PruneAfter:
				j.Batch, j.To, j.Audit = 1, 400, 10
			case crash.OpenFlushed: // something has to be pending
				j.start(t, bin, "WALSINK_CRASH="+string(crash.FlushBegun)).wait()
			}
			killed := 0
			for hit := range 2 {
				p := j.start(t, bin, fmt.Sprintf("WALSINK_CRASH=%s:%d", point, hit+1))
				if code := p.wait(); code == -1 {
					killed++
				} else if code != jobDone {
					t.Fatalf("exit code %d: %s", code, &p.err)
				}
			}
			if killed == 0 {
				t.Error("the point is not on the way of this job")
			}
			j.finish(t)
			wantIDs(d, 0, j.To)
			d.wantQuiet()
		})
	}
}

// TestC101C102E23Kill9 kills the process at random instants, while a reader looks
// for parts of checkpoints.
func TestC101C102E23Kill9(t *testing.T) {
	d := newDB(t, plainTable)
	cycles, rows := 12, 20_000
	if campaign.Long() {
		cycles, rows = 200, 3_000
	}
	rnd := rand.New(rand.NewPCG(campaign.Seed(t), 0))
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "kill", Lanes: 4, Batch: 50}
	stop, seen := make(chan struct{}), make(chan error, 1)
	go func(j job) { seen <- d.watch(j, stop) }(j)
	killed := 0
	for range cycles {
		// The work that is left stays bounded, however slow the machine is. The input ends
		// with a whole batch in each lane, which the reader looks for.
		whole := j.Batch * j.Lanes
		j.To = max(j.To, (one[int](d, "select count(*) from t")+rows)/whole*whole)
		p := j.start(t, "")
		select {
		case <-p.ended:
		case <-time.After(time.Duration(20+rnd.IntN(480)) * time.Millisecond):
		}
		p.kill()
		if p.cmd.ProcessState.ExitCode() == -1 {
			killed++
		} else if code := p.cmd.ProcessState.ExitCode(); code != jobDone {
			t.Fatalf("exit code %d: %s", code, &p.err)
		}
	}
	j.finish(t)
	close(stop)
	if err := <-seen; err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d killed, %d rows", killed, cycles, j.To)
	wantIDs(d, 0, j.To)
	d.wantQuiet()
	campaign.Figures{Cycles: killed, Rows: j.To, Faults: map[string]int{"kill -9": killed}}.Report(t)
}

// TestE07FrozenOwner stops the owner with SIGSTOP inside a transaction, lets
// another take over, and thaws it.
func TestE07FrozenOwner(t *testing.T) {
	for name, prepare := range map[string]func(d *db){
		// The owner is held inside COPY by a lock, stopped, and the lock released: its
		// backend goes on to wait for a client that does not move.
		"in COPY": func(*db) {},
		// The same with a unique index, on which the new owner would wait.
		"with unique index": func(d *db) { d.exec("create unique index on t (id)") },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, plainTable)
			prepare(d)
			old := job{DSN: d.dsn, Dir: t.TempDir(), ID: "frozen", Lanes: 1, To: 100_000, Batch: 50_000}
			release := d.hold(lockTable)
			p := old.start(t, "")
			d.until("flush that waits", `select exists (select from pg_locks where not granted and relation = 't'::regclass)`)
			p.signal(syscall.SIGSTOP)
			release()
			fresh := old
			fresh.Dir = t.TempDir() // no local log: it resumes from the ledger
			fresh.finish(t)
			wantIDs(d, 0, old.To)
			p.signal(syscall.SIGCONT)
			if code := p.wait(); code != jobFenced {
				t.Errorf("the old owner ended with %d, want %d: %s", code, jobFenced, &p.err)
			}
			wantIDs(d, 0, old.To)
			d.wantQuiet()
		})
	}
}

// TestE08CopiedState starts a second process on a copy of the state directory.
func TestE08CopiedState(t *testing.T) {
	d := newDB(t, plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "copied", Lanes: 2, To: 1000, Batch: 50}
	j.finish(t)
	other := j
	other.Dir = t.TempDir()
	if err := os.CopyFS(other.Dir, os.DirFS(j.Dir)); err != nil {
		t.Fatal(err)
	}
	j.To, other.To = 60_000, 60_000
	a, b := j.start(t, ""), other.start(t, "")
	codes := []int{a.wait(), b.wait()}
	for i, code := range codes {
		if code != jobDone && code != jobFenced && code != jobFailed {
			t.Errorf("process %d ended with %d", i, code)
		}
	}
	t.Logf("exit codes %v", codes)
	j.finish(t)
	wantIDs(d, 0, j.To)
}

// TestC103C105StateIsGone takes the state directory away between two runs.
func TestC103C105StateIsGone(t *testing.T) {
	d := newDB(t, plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "wiped", Lanes: 3, To: 900, Batch: 50}
	j.finish(t)
	for i := range 3 {
		j.Dir = t.TempDir() // a new machine
		j.To += 900 * (i + 1)
		j.finish(t)
		wantIDs(d, 0, j.To)
	}
}

// TestE01LedgerOutlivesTheProcess repeats what is complete already.
func TestE01LedgerOutlivesTheProcess(t *testing.T) {
	d := newDB(t, plainTable)
	j := job{DSN: d.dsn, Dir: t.TempDir(), ID: "again", Lanes: 1, To: 300, Batch: 100}
	for range 3 {
		j.finish(t)
		wantIDs(d, 0, j.To)
	}
	if n := one[int](d, "select count(*) from walsink.audit where records > 0"); n != 3 {
		t.Errorf("%d audit rows, want 3", n)
	}
	s := d.open(postgres.Options{Table: "t"})
	marks, err := s.Marks(testContext(t), "again")
	if err != nil || len(marks) != 1 || marks[0].Records != 300 {
		t.Errorf("marks %+v, %v", marks, err)
	}
	var _ sinks.LaneMark = marks[0]
}
