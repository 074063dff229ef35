package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

// finding returns the first finding about a subject.
func finding(t *testing.T, s *postgres.Sink, subject string) sinks.Finding {
	t.Helper()
	all, err := s.Probe(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(f sinks.Finding) bool { return f.Subject == subject })
	if i < 0 {
		t.Fatalf("no finding about %q in %+v", subject, all)
	}
	return all[i]
}

func TestProbe(t *testing.T) {
	d := newDB(t, plainTable, "create unlogged table u (id int)", "create table k (k text, v int)")
	s := d.open(postgres.Options{Table: "t"})
	for _, subject := range []string{"server version", "fsync", "full_page_writes", "synchronous_commit", "read-only", "privileges", "table", "connection"} {
		if f := finding(t, s, subject); f.Guarantee != sinks.ExactlyOnce || f.Refuse || f.Advice != "" {
			t.Errorf("healthy server: %+v", f)
		}
	}
	t.Run("unlogged table", func(t *testing.T) {
		if f := finding(t, d.open(postgres.Options{Table: "u"}), "table"); !f.Refuse || !strings.Contains(f.Advice, "logged") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("upsert without constraint", func(t *testing.T) {
		if f := finding(t, d.open(upsert("k")), "unique constraints"); !f.Refuse {
			t.Errorf("%+v", f)
		}
		d.exec("alter table k add primary key (k)")
		if f := finding(t, d.open(upsert("k")), "unique constraints"); f.Refuse || f.Found != "k_pkey" {
			t.Errorf("%+v", f)
		}
	})
	t.Run("trigger", func(t *testing.T) {
		d.exec("create function nothing() returns trigger language plpgsql as $$ begin return null; end $$")
		d.exec("create trigger swallow before insert on k for each row execute function nothing()")
		if f := finding(t, d.open(upsert("k")), "triggers"); f.Found != "swallow" || f.Advice == "" {
			t.Errorf("%+v", f)
		}
	})
	t.Run("settings", func(t *testing.T) {
		dsn := d.dsn + "&options=-csynchronous_commit%3Doff%20-cdefault_transaction_read_only%3Don"
		s := d.openAt(dsn, postgres.Options{Table: "t"})
		if f := finding(t, s, "synchronous_commit"); f.Found != "off" || f.Advice == "" {
			t.Errorf("%+v", f)
		}
		if f := finding(t, s, "read-only"); !f.Refuse {
			t.Errorf("%+v", f)
		}
	})
	t.Run("privileges", func(t *testing.T) {
		s := d.openAt(d.role("probe", "t"), postgres.Options{Table: "t"})
		if f := finding(t, s, "privileges"); f.Refuse {
			t.Errorf("%+v", f)
		}
		d.exec("revoke insert on t from " + one[string](d, "select rolname::text from pg_roles where rolname like 'probe\\_%' and rolname like '%' || current_database()"))
		if f := finding(t, s, "privilege"); !f.Refuse || !strings.Contains(f.Found, "INSERT") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("statement", func(t *testing.T) {
		s := d.open(postgres.Options{Mode: postgres.Statement, Statement: "select", Define: []postgres.Column{{Name: "a", Type: "int"}}})
		if f := finding(t, s, "statement"); f.Guarantee != sinks.ExactlyOnce {
			t.Errorf("%+v", f)
		}
	})
}
