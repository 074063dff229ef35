package command

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// build makes the command, once. buildCrashing makes one that kills itself where
// WALSINK_CRASH says.
var (
	build         = sync.OnceValues(func() (string, error) { return buildWith("walsink") })
	buildCrashing = sync.OnceValues(func() (string, error) { return buildWith("walsink-crashing", "-tags", "crashpoints") })
)

func buildWith(name string, flags ...string) (string, error) {
	dir, err := servers.Dir()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, name)
	args := append([]string{"build", "-o", bin}, flags...)
	out, err := exec.Command("go", append(args, "github.com/walsink/walsink/cmd/walsink")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
}

const quakes = "ndjson:../../examples/data/earthquakes.ndjson"

// walsink runs the command and returns its output.
func walsink(t *testing.T, args ...string) string {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bin, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("walsink %s: %v\n%s", args[0], err, out)
	}
	return string(out)
}

func want(t *testing.T, out, text string) {
	t.Helper()
	if !strings.Contains(out, text) {
		t.Errorf("no %q in:\n%s", text, out)
	}
}

// withQuery adds options to an address.
func withQuery(address, query string) string {
	if strings.Contains(address, "?") {
		return address + "&" + query
	}
	return address + "?" + query
}

func TestRunToPostgres(t *testing.T) {
	address := servers.Postgres(t)
	to := withQuery(address, "table=quakes&create=true")
	state := t.TempDir()
	run := []string{"run", "--from", quakes, "--to", to, "--state", state, "--lanes", "3", "--checkpoint-records", "300"}
	want(t, walsink(t, run...), "1,707 records")
	// create=true is of no use to a command without records, and no obstacle.
	want(t, walsink(t, "drain", "--to", to, "--state", state), "nothing to drain")
	want(t, walsink(t, run...), "nothing new: 1,707 records are already committed")
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var rows, ids int
	if err := conn.QueryRow(t.Context(), "select count(*), count(distinct id) from quakes").Scan(&rows, &ids); err != nil {
		t.Fatal(err)
	}
	if rows != 1707 || ids != 1707 {
		t.Errorf("%d rows with %d ids, want 1707", rows, ids)
	}
	want(t, walsink(t, "ledger", "--to", to), "quakes/002")
}

func TestRunToRedis(t *testing.T) {
	address := "redis://" + servers.Redis(t)
	to := withQuery(address, "op=hset&key=quake:{id}")
	state := t.TempDir()
	run := []string{"run", "--from", quakes, "--to", to, "--state", state, "--checkpoint-records", "300"}
	want(t, walsink(t, run...), "1,707 records")
	want(t, walsink(t, run...), "nothing new: 1,707 records are already committed")
	opts, err := goredis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(opts)
	defer client.Close()
	keys, err := client.Keys(t.Context(), "quake:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 1707 {
		t.Errorf("%d keys, want 1707", len(keys))
	}
	place, err := client.HGet(t.Context(), "quake:ci37868143", "place").Result()
	if err != nil || place != "4km W of Castaic, CA" {
		t.Errorf("place %q, %v", place, err)
	}
	want(t, walsink(t, "ledger", "--to", to), "/000")
}
