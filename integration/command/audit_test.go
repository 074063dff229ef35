package command

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/walsink/walsink/integration/servers"
)

// TestAuditPostgres finds a row that somebody removed, and an audit row that somebody
// edited, and names it.
func TestAuditPostgres(t *testing.T) {
	address := servers.Postgres(t)
	place := []string{"--to", withQuery(address, "table=quakes&create=true"), "--state", t.TempDir()}
	walsink(t, append([]string{"run", "--from", quakes, "--lanes", "2", "--checkpoint-records", "300"}, place...)...)
	audit := append([]string{"audit"}, place...)
	want(t, exits(t, 0, audit...), "no difference")

	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "delete from quakes where id = 'ci37868143'"); err != nil {
		t.Fatal(err)
	}
	want(t, exits(t, 11, audit...), "ledger: 1707; destination: 1706")
	if _, err := conn.Exec(t.Context(), "update walsink.audit set records = records + 1 where lane = '001' and seq = 2"); err != nil {
		t.Fatal(err)
	}
	out := exits(t, 11, append(audit, "--no-destination")...)
	want(t, out, "first difference: lane quakes/001 batch 3 ")
	want(t, out, "lane quakes/001 batch 2 ")
}

// TestAuditRedis says what it cannot check.
func TestAuditRedis(t *testing.T) {
	place := []string{"--to", withQuery("redis://"+servers.Redis(t), "op=hset&key=quake:{id}"), "--state", t.TempDir()}
	walsink(t, append([]string{"run", "--from", quakes, "--checkpoint-records", "300"}, place...)...)
	out := exits(t, 0, append([]string{"audit"}, place...)...)
	want(t, out, "no difference")
	want(t, out, "not checked: keys of Redis: a key does not tell which records wrote it")
}
