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

// everything is what the catalogs hold.
func (d *db) everything() string {
	return one[string](d, `select string_agg(x, ' ' order by x) from (select 'schema ' || nspname x from pg_namespace where nspname !~ '^pg_'
	union all select relkind::text || ' ' || oid::text from pg_class union all select 'lock ' || count(*) from pg_locks where locktype = 'advisory') t`)
}

// TestProbeBeforeOpen: a database from which things are missing is looked at without
// making them, and each is said once, with what to do.
func TestProbeBeforeOpen(t *testing.T) {
	d := newDB(t, plainTable, "create table k (k text, v int, w int not null)", "create schema other",
		"create foreign data wrapper fdw", "create server far foreign data wrapper fdw", "create foreign table ft (id int) server far",
		"create table pf (id int) partition by range (id)", "create foreign table pf1 partition of pf for values from (0) to (9) server far",
		"create table pu (id int) partition by range (id)", "create unlogged table pu1 partition of pu for values from (0) to (9)",
		"create table p0 (id int) partition by range (id)", "create table g (id int generated always as (1) stored)")
	plain := postgres.Options{Table: "t"}
	create := postgres.Options{Table: "new", Create: true}
	role := d.role("few", "t")
	d.exec("drop schema walsink cascade") // which role has made
	d.exec("grant usage on schema other to public")
	before := d.everything()
	look := func(t *testing.T, dsn string, opts postgres.Options, subject, found string, refuse bool, g sinks.Guarantee) {
		t.Helper()
		all, err := postgres.Probe(testContext(t), d.pool(dsn), opts)
		if err != nil {
			t.Fatal(err)
		}
		var hits []sinks.Finding
		for _, f := range all {
			if f.Subject == subject {
				hits = append(hits, f)
			}
		}
		if len(hits) != 1 || !strings.Contains(hits[0].Found, found) || hits[0].Refuse != refuse || hits[0].Guarantee != g || refuse && hits[0].Advice == "" {
			t.Errorf("%s: got %+v, want one with %q, refuse %v, %v", subject, all, found, refuse, g)
		}
	}
	for _, c := range []struct {
		dsn            string
		opts           postgres.Options
		subject, found string
		refuse         bool
		g              sinks.Guarantee
	}{
		{d.dsn, plain, "ledger", "none yet; made at the first start", false, sinks.ExactlyOnce},
		{d.dsn, postgres.Options{Table: "t", NoCreateLedger: true}, "ledger", "none in schema walsink", true, sinks.AtLeastOnce},
		{role, plain, "ledger", "this role may not make it", true, sinks.AtLeastOnce},
		{d.dsn, create, "table", "not there yet", false, sinks.ExactlyOnce},
		{d.dsn, postgres.Options{Table: "new"}, "table", `"new" is not there`, true, sinks.AtLeastOnce},
		{d.dsn, postgres.Options{Table: "public.t"}, "table", `"public.t" is not there`, true, sinks.AtLeastOnce},
		{d.dsn, postgres.Options{Schema: "gone", Table: "new", Create: true}, "table", "nor a schema for it", true, sinks.AtLeastOnce},
		{role, postgres.Options{Schema: "other", Table: "new", Create: true}, "table", "this role may not make it", true, sinks.AtLeastOnce},
		{d.dsn, postgres.Options{Table: "t", Columns: []string{"absent"}}, "columns", `no column "absent"`, true, sinks.AtLeastOnce},
		{d.dsn, postgres.Options{Table: "g"}, "columns", "no column that records could fill", true, sinks.AtLeastOnce},
		{d.dsn, postgres.Options{Table: "ft"}, "table", "foreign", false, sinks.AtLeastOnce},
		{d.dsn, postgres.Options{Table: "pf"}, "partitions", "pf1 is foreign", false, sinks.AtLeastOnce},
		{d.dsn, postgres.Options{Table: "pu"}, "partitions", "pu1 is unlogged", true, sinks.AtLeastOnce},
		{d.dsn, postgres.Options{Table: "p0"}, "partitions", "none", false, sinks.ExactlyOnce},
		{d.dsn + "&statement_timeout=5000", plain, "statement_timeout", "5s", false, sinks.ExactlyOnce},
	} {
		look(t, c.dsn, c.opts, c.subject, c.found, c.refuse, c.g)
	}
	if after := d.everything(); before != after {
		t.Errorf("probing changed the catalogs from\n%s to\n%s", before, after)
	}
	d.open(plain)
	look(t, d.dsn, plain, "ledger", "version 1 in schema walsink", false, sinks.ExactlyOnce)
	look(t, role, plain, "ledger", "permission denied", true, sinks.AtLeastOnce)
	for _, ddl := range []struct{ sql, undo, found string }{
		{"update walsink.version set version = 2", "update walsink.version set version = 1", "version 2"},
		{"alter table walsink.lane set unlogged", "alter table walsink.lane set logged", `"lane" is unlogged`},
		{"alter table walsink.audit rename to x", "alter table walsink.x rename to audit", `"audit" is gone`},
	} {
		d.exec(ddl.sql)
		look(t, d.dsn, plain, "ledger", ddl.found, true, sinks.AtLeastOnce)
		d.exec(ddl.undo)
	}
	d.exec(`insert into walsink.lane values ('job', '000', 1, 1, '', '', 1, null, null, 5, 0, 999999999, '"public"."new"', 0, now())`)
	look(t, d.dsn, create, "table", "was dropped; the ledger says that sink job", true, sinks.AtLeastOnce)
}

// TestProbeUpsertConstraint: only an index that ON CONFLICT takes will do.
func TestProbeUpsertConstraint(t *testing.T) {
	d := newDB(t, `create table k (k text, "K,2" int, v int)`)
	opts := postgres.Options{Table: "k", Mode: postgres.Upsert, Key: []string{"k", "K,2"}}
	for _, c := range []struct {
		ddl string
		ok  bool
	}{
		{"create unique index i on k (k)", false}, {`create unique index i on k (k, "K,2") where v > 0`, false},
		{`create unique index i on k (k, lower("K,2"::text))`, false}, {`alter table k add constraint i unique (k, "K,2") deferrable`, false},
		{`create index i on k (k, "K,2")`, false}, {`create unique index i on k ("K,2", k)`, true}, {`create unique index i on k (k, "K,2") include (v)`, true},
		{`alter table k add constraint i primary key (k, "K,2")`, true},
	} {
		d.exec(c.ddl)
		f := finding(t, d.open(opts), "unique constraints")
		if f.Refuse == c.ok || c.ok && f.Found != "i" {
			t.Errorf("%s: %+v", c.ddl, f)
		}
		d.exec("alter table k drop constraint if exists i")
		d.exec("drop index if exists i")
	}
}

// TestProbeUnreachable: a server that is not there, or lets nobody in, is an error.
func TestProbeUnreachable(t *testing.T) {
	d := newDB(t)
	for dsn, kind := range map[string]sinks.Kind{
		"postgres://u:c4n4ry@127.0.0.1:1/d?sslmode=disable":     sinks.Transient,
		strings.Replace(d.dsn, "://postgres:", "://nobody:", 1): sinks.Permanent,
		strings.Replace(d.dsn, "?", "_gone?", 1):                sinks.Permanent,
	} {
		found, err := postgres.Probe(testContext(t), d.pool(dsn), postgres.Options{Table: "t"})
		if sinks.KindOf(err) != kind || found != nil || strings.Contains(err.Error(), "c4n4ry") {
			t.Errorf("got %v, want %v", err, kind)
		}
	}
	if _, err := postgres.Probe(testContext(t), d.pool(d.dsn), postgres.Options{}); sinks.KindOf(err) != sinks.Permanent {
		t.Errorf("no table: %v", err)
	}
}
