package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walsink/walsink/sinks"
)

// minVersion is the oldest server that the sink is made for.
const minVersion = 120000

// Probe implements [sinks.Prober]. It reads settings and catalogs only.
func (s *Sink) Probe(ctx context.Context) ([]sinks.Finding, error) {
	var findings []sinks.Finding
	err := s.with(ctx, func(ctx context.Context, pg *pgconn.PgConn) error {
		for _, probe := range []func(context.Context, *pgconn.PgConn) ([]sinks.Finding, error){
			s.probeServer, s.probePrivileges, s.probeTable, s.probePooler,
		} {
			f, err := probe(ctx, pg)
			if err != nil {
				return err
			}
			findings = append(findings, f...)
		}
		return nil
	})
	if err != nil {
		return nil, s.fail(ctx, "probe", sinks.LaneID{}, preparing, err)
	}
	return findings, nil
}

// good is a finding with nothing to change.
func good(subject, found string) sinks.Finding {
	return sinks.Finding{Subject: subject, Found: found, Guarantee: sinks.ExactlyOnce}
}

// poor is a finding that takes the guarantee down to g.
func poor(subject, found string, g sinks.Guarantee, advice string) sinks.Finding {
	return sinks.Finding{Subject: subject, Found: found, Guarantee: g, Advice: advice}
}

// broken is a finding with which a promise would be broken silently.
func broken(subject, found, advice string) sinks.Finding {
	return sinks.Finding{Subject: subject, Found: found, Guarantee: sinks.AtLeastOnce, Refuse: true, Advice: advice}
}

func (s *Sink) probeServer(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	results, err := exchange(ctx, pg, nil, sql(`select current_setting('server_version_num'), current_setting('server_version'),
	current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
	pg_is_in_recovery(), current_setting('transaction_read_only')`))
	if err != nil {
		return nil, err
	}
	r := scanner{row: results[0].Rows[0]}
	number, version, fsync, pages, commit, standby, readOnly := r.text(), r.text(), r.text(), r.text(), r.text(), r.text(), r.text()
	findings := []sinks.Finding{good("server version", version)}
	if n, err := strconv.Atoi(number); err != nil || n < minVersion {
		findings[0] = poor("server version", version, sinks.ExactlyOnce, "not tested with servers before version 12")
	}
	findings = append(findings, setting("fsync", fsync, sinks.AtLeastOnce, "a power cut can damage the server's data; set fsync = on"))
	findings = append(findings, setting("full_page_writes", pages, sinks.AtLeastOnce, "a power cut can damage the server's data; set full_page_writes = on"))
	findings = append(findings, setting("synchronous_commit", commit, sinks.ExactlyOnce,
		"a crash of the server can take back the last flushes; they are sent again from what the log retains"))
	if standby == "t" || readOnly == "on" {
		return append(findings, broken("read-only", "standby "+standby+", read-only "+readOnly, "connect to the primary, as with target_session_attrs=read-write")), nil
	}
	return append(findings, good("read-only", "no")), nil
}

func setting(name, value string, g sinks.Guarantee, advice string) sinks.Finding {
	if value == "off" {
		return poor(name, value, g, advice)
	}
	return good(name, value)
}

// probePrivileges looks for what flushes need.
func (s *Sink) probePrivileges(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	needs := [][2]string{
		{s.ledger.lane, "SELECT"}, {s.ledger.lane, "INSERT"}, {s.ledger.lane, "UPDATE"},
		{s.ledger.audit, "SELECT"}, {s.ledger.audit, "INSERT"}, {s.ledger.audit, "UPDATE"}, {s.ledger.audit, "DELETE"},
		{s.ledger.dead, "INSERT"}, {s.ledger.dead, "UPDATE"}, {s.ledger.dead, "SELECT"},
	}
	if s.opts.Mode == Upsert {
		needs = append(needs, [2]string{s.table.name, "SELECT"}, [2]string{s.table.name, "UPDATE"}, [2]string{s.table.name, "DELETE"})
	}
	stmts := []stmt{sql(`select has_database_privilege(current_database(), 'TEMP')`)}
	for _, n := range needs {
		stmts = append(stmts, sql(`select has_table_privilege($1, $2)`, n[0], n[1]))
	}
	for _, c := range s.table.columns {
		if s.opts.Mode != Statement {
			stmts = append(stmts, sql(`select has_column_privilege($1, $2, 'INSERT')`, s.table.name, c.name))
			needs = append(needs, [2]string{s.table.name + " column " + quote(c.name), "INSERT"})
		}
	}
	results, err := exchange(ctx, pg, nil, stmts...)
	if err != nil {
		return nil, err
	}
	var findings []sinks.Finding
	for i, n := range needs {
		if string(results[i+1].Rows[0][0]) != "t" {
			findings = append(findings, broken("privilege", "no "+n[1]+" on "+n[0], "grant it"))
		}
	}
	if string(results[0].Rows[0][0]) != "t" {
		findings = append(findings, s.noTemp())
	}
	if len(findings) == 0 {
		findings = append(findings, good("privileges", "all that flushes need"))
	}
	return findings, nil
}

func (s *Sink) noTemp() sinks.Finding {
	if s.opts.Mode == Insert {
		return poor("privilege", "no TEMP on the database", sinks.ExactlyOnce, "bad records are found one at a time; grant TEMP to find all at once")
	}
	return broken("privilege", "no TEMP on the database", "mode "+s.opts.Mode.String()+" needs it: grant TEMP")
}

// probeTable looks at what may change or lose rows behind our back.
func (s *Sink) probeTable(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	if s.opts.Mode == Statement {
		return []sinks.Finding{poor("statement", "yours", sinks.ExactlyOnce, "exactly once as far as all it does is in this database")}, nil
	}
	var findings []sinks.Finding
	if s.table.persistence != "p" {
		findings = append(findings, broken("table", "unlogged or temporary", "its rows vanish at a crash while the ledger stays; alter table set logged"))
	}
	switch s.table.kind {
	case "r", "p":
	case "f":
		findings = append(findings, poor("table", "foreign", sinks.AtLeastOnce, "its server does not commit in the same step"))
	default:
		findings = append(findings, poor("table", "not a table (relkind "+s.table.kind+")", sinks.ExactlyOnce, "exactly once as far as its triggers write in this database"))
	}
	results, err := exchange(ctx, pg, nil,
		sql(`select string_agg(quote_ident(tgname), ', ') from pg_trigger where tgrelid::bigint = $1 and not tgisinternal and tgenabled <> 'D'`, s.table.oid),
		sql(`select string_agg(quote_ident(c.relname), ', ') from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid::bigint = $1 and i.indisunique`, s.table.oid),
		sql(`select relrowsecurity and not pg_has_role(relowner, 'usage') from pg_class where oid::bigint = $1`, s.table.oid))
	if err != nil {
		return nil, err
	}
	if names := results[0].Rows[0][0]; names != nil {
		findings = append(findings, poor("triggers", string(names), sinks.ExactlyOnce, "a trigger can change, drop or refuse rows"))
	}
	if names := results[1].Rows[0][0]; names != nil {
		findings = append(findings, good("unique constraints", string(names)))
	} else if s.opts.Mode == Upsert {
		findings = append(findings, broken("unique constraints", "none", "mode upsert needs one on "+quoteList(s.opts.Key)))
	}
	if len(results[2].Rows) > 0 && string(results[2].Rows[0][0]) == "t" {
		findings = append(findings, broken("row security", "on", "COPY is refused; let the role bypass it"))
	}
	if len(findings) == 0 {
		findings = append(findings, good("table", s.table.plain))
	}
	return findings, nil
}

// probePooler tells a pooler from the server by the process that answers.
func (s *Sink) probePooler(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	results, err := exchange(ctx, pg, nil, sql("select pg_backend_pid()"))
	if err != nil {
		return nil, err
	}
	if pid := string(results[0].Rows[0][0]); pid != fmt.Sprint(pg.PID()) {
		return []sinks.Finding{good("connection", "through a pooler; no session state is used")}, nil
	}
	return []sinks.Finding{good("connection", "direct")}, nil
}
