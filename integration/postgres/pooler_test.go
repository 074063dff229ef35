//go:build linux

package postgres_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks/postgres"
)

// pooler starts a pgbouncer in front of a database and returns the DSN through it.
func pooler(t *testing.T, dsn, mode string) string {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("no pgbouncer on this machine")
	}
	to, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	dir := t.TempDir()
	conf := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n%s = host=%s port=%d user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = %s\n", to.Database, to.Host, to.Port, to.User, to.Password, port, mode)
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.WriteFile(conf, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, conf)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	through := fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", to.User, port, to.Database)
	dbAt(t, through).until("answer of pgbouncer", "select true")
	return through
}

// TestProbePooler: what pools statements takes no transaction, and is refused before it
// could tear one apart.
func TestProbePooler(t *testing.T) {
	dsn := servers.Postgres(t)
	d := dbAt(t, dsn, plainTable)
	d.open(postgres.Options{Table: "t"}) // makes the ledger
	for mode, refuse := range map[string]bool{"session": false, "transaction": false, "statement": true} {
		through := pooler(t, dsn, mode)
		all, err := postgres.Probe(testContext(t), d.pool(through), postgres.Options{Table: "t"})
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		last := all[len(all)-1]
		if last.Subject != "connection" || last.Refuse != refuse || !strings.Contains(last.Found, "through a pooler") {
			t.Errorf("%s: %+v", mode, all)
		}
	}
}
