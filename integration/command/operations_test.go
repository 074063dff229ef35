package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walsink/walsink/integration/servers"
)

// numbered writes records from..to-1 to the end of a file.
func numbered(t *testing.T, name string, from, to int) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"id\":%d}\n", i)
	}
	if _, err := f.WriteString(b.String()); err != nil {
		t.Fatal(err)
	}
}

// tally asks the database how many rows there are, and how many different ones.
func tally(t *testing.T, address string) (rows, ids int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		return 0, 0 // it is not up yet
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), "select count(*), count(distinct id) from t").Scan(&rows, &ids); err != nil {
		return 0, 0
	}
	return rows, ids
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(2*time.Minute)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waiting for %s", what)
		}
	}
}

// TestOperatorStoreAway: the store goes away under a job and the operator does nothing. The
// job takes its input into the log meanwhile, and brings it in when the store is back.
func TestOperatorStoreAway(t *testing.T) {
	server := servers.StartPostgres(t)
	address := server.Database()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "create table t (id int not null)"); err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in, state := filepath.Join(dir, "in.ndjson"), filepath.Join(dir, "state")
	numbered(t, in, 0, 1000)
	args := []string{"run", "--from", "ndjson:" + in, "--to", withQuery(address, "table=t"), "--state", state, "--follow",
		"--checkpoint-interval", "100ms", "--http", "0"}
	var errs strings.Builder
	cmd := exec.Command(bin, args...)
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	until(t, "the first rows", func() bool { rows, _ := tally(t, address); return rows == 1000 })

	server.Stop()
	numbered(t, in, 1000, 3000)
	status := func() string {
		out, err := exec.Command(bin, "status", "--state", state, "--json").Output()
		if err != nil {
			t.Fatalf("status: %v", err)
		}
		return string(out)
	}
	until(t, "the log to have the input", func() bool { return strings.Contains(status(), `"pending_records": 2000`) })
	server.Start()
	until(t, "all rows", func() bool { rows, _ := tally(t, address); return rows >= 3000 })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	if rows, ids := tally(t, address); rows != 3000 || ids != 3000 {
		t.Errorf("%d rows, %d different ones, want 3000", rows, ids)
	}
}

// TestOperatorLedgerDropped: somebody drops the schema of the ledger. The start is refused;
// the operator sees that the table has its rows, and takes the way that says so.
func TestOperatorLedgerDropped(t *testing.T) {
	address := servers.Postgres(t)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "create table t (id int not null)"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in := filepath.Join(dir, "in.ndjson")
	place := []string{"--from", "ndjson:" + in, "--to", withQuery(address, "table=t"), "--state", filepath.Join(dir, "state")}
	numbered(t, in, 0, 1000)
	walsink(t, append([]string{"run"}, place...)...)
	if _, err := conn.Exec(t.Context(), "drop schema walsink cascade"); err != nil {
		t.Fatal(err)
	}
	numbered(t, in, 1000, 1500)
	exits(t, 6, append([]string{"run"}, place...)...)
	want(t, exits(t, 6, append([]string{"reset", "--dry-run"}, place...)...), "--accept-loss")
	if rows, ids := tally(t, address); rows != 1000 || ids != 1000 {
		t.Fatalf("%d rows, %d different ones after the refusal, want 1000", rows, ids)
	}
	exits(t, 0, append([]string{"reset", "--accept-loss"}, place...)...)
	exits(t, 0, append([]string{"run"}, place...)...)
	if rows, ids := tally(t, address); rows != 1500 || ids != 1500 {
		t.Errorf("%d rows, %d different ones, want 1500", rows, ids)
	}
}
