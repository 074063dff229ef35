package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
)

// A diagnosis is what walsink doctor --json prints.
type diagnosis struct {
	Guarantee string `json:"guarantee"`
	Met       bool   `json:"met"`
	Checks    []struct {
		Subject, Check, Result, Found, Change string
	} `json:"checks"`
}

// run runs the command and returns its exit code and outputs.
func run(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var o, e strings.Builder
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			t.Fatal(err)
		}
		code = exit.ExitCode()
	}
	return code, o.String(), e.String()
}

// doctor runs walsink doctor on a DST; it wants an exit code and one check with a result.
func doctor(t *testing.T, to string, code int, guarantee, check, result, found string) {
	t.Helper()
	got, out, errs := run(t, "doctor", "--json", "--from", quakes, "--to", to, "--state", filepath.Join(t.TempDir(), "none"))
	var d diagnosis
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v:\n%s%s", err, out, errs)
	}
	if got != code || d.Guarantee != guarantee || d.Met != (code == 0) {
		t.Errorf("exit code %d, guarantee %s, met %v; want %d, %s:\n%s%s", got, d.Guarantee, d.Met, code, guarantee, out, errs)
	}
	n := 0
	for _, c := range d.Checks {
		if c.Check == check && c.Result == result && strings.Contains(c.Found, found) {
			n++
		}
		if c.Result != "pass" && c.Change == "" {
			t.Errorf("nothing to change: %+v", c)
		}
	}
	if n != 1 {
		t.Errorf("%d checks %q are %s with %q, want 1:\n%s", n, check, result, found, out)
	}
	if strings.Contains(out+errs, "canary") {
		t.Errorf("a password is shown:\n%s%s", out, errs)
	}
}

// TestDoctorPostgres looks at databases that lack something, and leaves them so.
func TestDoctorPostgres(t *testing.T) {
	address := servers.Postgres(t)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	do := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	name := conn.Config().Database
	role := "few_" + name
	do("create table t (id text, place text)")
	do("create unlogged table u (id text)")
	do("create role " + role + " login password 'canary'")
	t.Cleanup(func() {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, address)
		if err == nil {
			_, err = conn.Exec(ctx, "drop owned by "+role+"; drop role "+role)
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			t.Error(err)
		}
	})
	few, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	few.User = url.UserPassword(role, "canary")
	to := withQuery(address, "table=public.t")
	doctor(t, to, 0, "exactly-once", "ledger", "pass", "none yet; made at the first start")
	doctor(t, withQuery(address, "table=new&create=true"), 0, "exactly-once", "table", "pass", "not there yet")
	doctor(t, withQuery(address, "table=new"), 10, "at-most-once", "table", "refuse", "is not there")
	doctor(t, withQuery(address, "table=u"), 10, "at-most-once", "table", "refuse", "unlogged")
	doctor(t, withQuery(few.String(), "table=t"), 10, "at-most-once", "ledger", "refuse", "this role may not make it")
	do("create function nothing() returns trigger language plpgsql as $$ begin return null; end $$")
	do("create trigger swallow before insert on t for each row execute function nothing()")
	doctor(t, to, 0, "exactly-once", "triggers", "pass", "swallow")
	do("alter database " + name + " set synchronous_commit = off")
	doctor(t, to, 0, "exactly-once", "synchronous_commit", "pass", "off")
	few.User = url.UserPassword(role, "canary-wrong")
	doctor(t, withQuery(few.String(), "table=t"), 4, "unknown", "reachable", "refuse", "password authentication failed")
	if code, _, errs := run(t, "run", "--from", quakes, "--to", withQuery(few.String(), "table=t"), "--state", t.TempDir()); code != 4 ||
		!strings.Contains(errs, "password authentication failed") || strings.Contains(errs, "trying again") {
		t.Errorf("run with a wrong password: exit code %d\n%s", code, errs)
	}
	if code, _, errs := run(t, "run", "--from", quakes, "--to", withQuery(address, "table=new"), "--state", t.TempDir()); code != 4 ||
		!strings.Contains(errs, "add create=true to DST") || strings.Contains(errs, "Define") {
		t.Errorf("run without the table: exit code %d\n%s", code, errs)
	}
}

// TestDoctorRedis looks at what a server keeps, and run at the same.
func TestDoctorRedis(t *testing.T) {
	server := servers.StartRedis(t)
	to := "redis://" + server.Addr() + "?op=hset&key=quake:{id}"
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer client.Close()
	set := func(name, value string) {
		t.Helper()
		if err := client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	doctor(t, to, 10, "at-least-once", "persistence", "weaker", "none")
	args := []string{"run", "--from", quakes, "--to", to, "--state", t.TempDir(), "--require", "exactly-once"}
	if code, _, errs := run(t, args...); code != 10 || !strings.Contains(errs, "required exactly-once, found at-least-once") || !strings.Contains(errs, "set appendonly yes") {
		t.Errorf("run: exit code %d\n%s", code, errs)
	}
	set("maxmemory-policy", "allkeys-lru")
	doctor(t, to, 10, "at-most-once", "maxmemory-policy", "refuse", "allkeys-lru")
	set("maxmemory-policy", "noeviction")
	set("appendonly", "yes")
	doctor(t, to, 0, "exactly-once", "persistence", "pass", "append-only file")
	if n, err := client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("%d keys are left: %v", n, err)
	}
	if code, _, errs := run(t, args...); code != 0 {
		t.Errorf("run: exit code %d\n%s", code, errs)
	}
	server.Stop()
	doctor(t, to, 4, "unknown", "reachable", "refuse", "")
	if code, _, errs := run(t, append(args, "--wait-store", "600ms")...); code != 4 || !strings.Contains(errs, "trying again") ||
		!strings.Contains(errs, "not reached within --wait-store 600ms") {
		t.Errorf("run without a store: exit code %d\n%s", code, errs)
	}
}

// TestDoctorState looks at state directories: in memory, and in use.
func TestDoctorState(t *testing.T) {
	state, err := filepath.Abs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, out, _ := run(t, "doctor", "--from", quakes, "--to", "file:"+filepath.Join(t.TempDir(), "out"), "--state", "/dev/shm/walsink-none")
	want(t, out, "tmpfs, which a restart of the machine empties")
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command(bin, "run", "--follow", "--from", quakes, "--to", "file:"+filepath.Join(t.TempDir(), "out"), "--state", state)
	errs, err := holder.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}()
	var text strings.Builder
	for buf := make([]byte, 4096); !strings.Contains(text.String(), "guarantee="); {
		n, err := errs.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v\n%s", err, &text)
		}
	}
	code, out, _ := run(t, "doctor", "--from", quakes, "--to", "file:"+filepath.Join(t.TempDir(), "out"), "--state", state)
	want(t, out, fmt.Sprintf("process %d works on it", holder.Process.Pid))
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
