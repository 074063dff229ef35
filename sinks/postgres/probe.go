package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink/sinks"
)

// minVersion is the oldest server that the sink is made for.
const minVersion = 120000

// Probe says what a Sink with these options would meet in the database: also if its
// ledger or its table is not there, and what the role may do about that. It reads
// settings and catalogs only; nothing is made, and Define may be empty. An error is a
// server that cannot be reached or does not let the role in.
func Probe(ctx context.Context, pool *pgxpool.Pool, opts Options) ([]sinks.Finding, error) {
	if opts.Create && len(opts.Define) == 0 {
		opts.Define = []Column{{Name: "not_known_yet", Type: "text"}}
	}
	s := &Sink{pool: pool}
	var err error
	if s.opts, err = opts.withDefaults(); err != nil {
		return nil, s.fail(ctx, "probe", sinks.LaneID{}, preparing, fmt.Errorf("%w: %w", errRefused, err))
	}
	s.ledger = newLedger(s.opts.Ledger)
	return s.Probe(ctx)
}

// Probe implements [sinks.Prober]. It reads settings and catalogs only.
func (s *Sink) Probe(ctx context.Context) ([]sinks.Finding, error) {
	p := &prober{Sink: &Sink{pool: s.pool, opts: s.opts, ledger: s.ledger}}
	var findings []sinks.Finding
	for i, look := range []struct {
		subject string
		look    func(context.Context, *pgconn.PgConn) ([]sinks.Finding, error)
	}{
		{"server", p.server}, {"ledger", p.ledgerTables}, {"table", p.destination}, {"privileges", p.privileges},
		{"table", p.tableDetails}, {"connection", p.pooler},
	} {
		err := s.with(ctx, func(ctx context.Context, pg *pgconn.PgConn) error {
			found, err := look.look(ctx, pg)
			findings = append(findings, found...)
			return err
		})
		switch {
		case err == nil:
		case i > 0 && (code(err) != "" || errors.Is(err, errRefused)):
			findings = append(findings, refusal(look.subject, err))
		default:
			return nil, s.fail(ctx, "probe", sinks.LaneID{}, preparing, err)
		}
	}
	return findings, nil
}

// A prober looks at a database from which a Sink may be missing something.
type prober struct {
	*Sink
	hasLedger, hasTable bool
}

// refusal is the finding of a look that the server, or the sink, refuses.
func refusal(subject string, err error) sinks.Finding {
	text := strings.TrimPrefix(scrub(err).Error(), errRefused.Error()+": ")
	return broken(subject, text, cmp.Or(strings.TrimPrefix(advice(code(err)), "; "), "change what it names"))
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

func (p *prober) server(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	results, err := exchange(ctx, pg, nil, sql(`select current_setting('server_version_num'), current_setting('server_version'),
	current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
	pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('statement_timeout')`))
	if err != nil {
		return nil, err
	}
	r := scanner{row: results[0].Rows[0]}
	number, version, fsync, pages, commit, standby, readOnly := r.text(), r.text(), r.text(), r.text(), r.text(), r.text(), r.text()
	timeout := r.text()
	findings := []sinks.Finding{good("server version", version)}
	if n, err := strconv.Atoi(number); err != nil || n < minVersion {
		findings[0] = poor("server version", version, sinks.ExactlyOnce, "not tested with servers before version 12")
	}
	findings = append(findings, setting("fsync", fsync, sinks.AtLeastOnce, "a power cut can damage the server's data; set fsync = on"))
	findings = append(findings, setting("full_page_writes", pages, sinks.AtLeastOnce, "a power cut can damage the server's data; set full_page_writes = on"))
	findings = append(findings, setting("synchronous_commit", commit, sinks.ExactlyOnce,
		"a crash of the server can take back the last flushes; they are sent again from what the log retains. Set synchronous_commit = on to be spared that"))
	if timeout != "0" {
		findings = append(findings, poor("statement_timeout", timeout, sinks.ExactlyOnce, "a flush that takes longer never gets in; set it to 0 for the role"))
	}
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
func (p *prober) privileges(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	var needs [][2]string
	if p.hasLedger {
		needs = [][2]string{
			{p.ledger.lane, "SELECT"}, {p.ledger.lane, "INSERT"}, {p.ledger.lane, "UPDATE"},
			{p.ledger.audit, "SELECT"}, {p.ledger.audit, "INSERT"}, {p.ledger.audit, "UPDATE"}, {p.ledger.audit, "DELETE"},
			{p.ledger.dead, "INSERT"}, {p.ledger.dead, "UPDATE"}, {p.ledger.dead, "SELECT"},
		}
	}
	if p.opts.Mode == Upsert && p.hasTable {
		needs = append(needs, [2]string{p.table.name, "SELECT"}, [2]string{p.table.name, "UPDATE"}, [2]string{p.table.name, "DELETE"})
	}
	stmts := []stmt{sql(`select has_database_privilege(current_database(), 'TEMP')`)}
	for _, n := range needs {
		stmts = append(stmts, sql(`select has_table_privilege($1, $2)`, n[0], n[1]))
	}
	for _, c := range p.table.columns {
		if p.opts.Mode != Statement {
			stmts = append(stmts, sql(`select has_column_privilege($1, $2, 'INSERT')`, p.table.name, c.name))
			needs = append(needs, [2]string{p.table.name + " column " + quote(c.name), "INSERT"})
		}
	}
	results, err := exchange(ctx, pg, nil, stmts...)
	if err != nil {
		return nil, err
	}
	var findings []sinks.Finding
	for i, n := range needs {
		if string(results[i+1].Rows[0][0]) != "t" {
			findings = append(findings, broken("privilege", "no "+n[1]+" on "+n[0], "grant it to the role"))
		}
	}
	if string(results[0].Rows[0][0]) != "t" {
		findings = append(findings, p.noTemp())
	}
	if len(findings) == 0 && p.hasLedger && p.hasTable {
		findings = append(findings, good("privileges", "all that flushes need"))
	}
	return findings, nil
}

func (p *prober) noTemp() sinks.Finding {
	if p.opts.Mode == Insert {
		return poor("privilege", "no TEMP on the database", sinks.ExactlyOnce, "bad records are found one at a time; grant TEMP to find all at once")
	}
	return broken("privilege", "no TEMP on the database", "mode "+p.opts.Mode.String()+" needs it: grant TEMP")
}
