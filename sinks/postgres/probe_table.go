package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walsink/walsink/sinks"
)

// ledgerTables looks whether the ledger is there, or could be made.
func (p *prober) ledgerTables(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	schema := p.ledger.schema
	results, err := exchange(ctx, pg, nil, sql(`select to_regclass($1) is not null, coalesce(
	(select has_schema_privilege(oid, 'CREATE') from pg_namespace where nspname = $2), has_database_privilege(current_database(), 'CREATE'))`,
		p.ledger.version, schema))
	if err != nil {
		return nil, err
	}
	r := scanner{row: results[0].Rows[0]}
	there, mayMake := r.text() == "t", r.text() == "t"
	switch {
	case there:
		return p.ledgerVersion(ctx, pg)
	case p.opts.NoCreateLedger:
		return []sinks.Finding{broken("ledger", "none in schema "+schema, "make it before the start: it is not to be made at the start")}, nil
	case !mayMake:
		return []sinks.Finding{broken("ledger", "none in schema "+schema+", and this role may not make it",
			"grant create on the schema, or on the database if there is no such schema; or have another role make it")}, nil
	}
	return []sinks.Finding{good("ledger", "none yet; made at the first start, in schema "+schema)}, nil
}

func (p *prober) ledgerVersion(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	results, err := exchange(ctx, pg, nil, sql(`select coalesce(max(version), 0) from `+p.ledger.version),
		sql(`select n, c.relpersistence from unnest($1::text[]) n left join pg_class c on c.oid = to_regclass(n)`,
			pgArray(p.ledger.lane, p.ledger.audit, p.ledger.dead)))
	if err != nil {
		return nil, err
	}
	version := string(results[0].Rows[0][0])
	if version != fmt.Sprint(ledgerVersion) {
		return []sinks.Finding{broken("ledger", "version "+version+" in schema "+p.ledger.schema,
			fmt.Sprintf("this build knows version %d: use the build that made it", ledgerVersion))}, nil
	}
	for _, row := range results[1].Rows {
		r := scanner{row: row}
		switch name, persistence := r.text(), r.text(); persistence {
		case "p":
		case "":
			return []sinks.Finding{broken("ledger", name+" is gone", "put it back from a backup that has the destination too")}, nil
		default:
			return []sinks.Finding{broken("ledger", name+" is unlogged", "it is emptied by a crash while the rows stay: alter table "+name+" set logged")}, nil
		}
	}
	p.hasLedger = true
	return []sinks.Finding{good("ledger", "version "+version+" in schema "+p.ledger.schema)}, nil
}

// pgArray writes names as the text of an array.
func pgArray(names ...string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(n) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// destination looks whether the table is there with the columns that records have, or
// could be made.
func (p *prober) destination(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	if p.opts.Mode == Statement {
		p.hasTable = true
		return nil, p.openBatch(ctx, pg)
	}
	t, found, err := p.lookupTable(ctx, pg)
	if err != nil {
		return nil, err
	}
	if !found {
		return p.noTable(ctx, pg)
	}
	if err := p.readColumns(ctx, pg, &t, sql("select")); err != nil {
		if errors.Is(err, errRefused) {
			return []sinks.Finding{refusal("columns", err)}, nil
		}
		return nil, err
	}
	p.table, p.hasTable = t, true
	for _, k := range p.opts.Key {
		if _, ok := t.index[k]; !ok {
			return []sinks.Finding{broken("columns", "key column "+quote(k)+" is not among them", "name a column of the table")}, nil
		}
	}
	return []sinks.Finding{good("columns", shortList(t.names()))}, nil
}

// shortList joins names, the first few.
func shortList(names []string) string {
	const most = 8
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (p *prober) noTable(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	label := p.opts.label()
	if p.hasLedger {
		lost, err := p.droppedFrom(ctx, pg)
		if err != nil {
			return nil, err
		}
		if lost != "" {
			return []sinks.Finding{broken("table", label+" was dropped; the ledger says that sink "+lost+" has records in it",
				"put the table back, or "+resetAdvice(p.ledger.lane, "the sink"))}, nil
		}
	}
	if !p.opts.Create {
		return []sinks.Finding{broken("table", label+" is not there", "make it, or have it made from the first records")}, nil
	}
	results, err := exchange(ctx, pg, nil, sql(`select nspname, has_schema_privilege(oid, 'CREATE') from pg_namespace
	where nspname = case $1 when '' then current_schema()::text else $1 end`, p.opts.Schema))
	if err != nil {
		return nil, err
	}
	if len(results[0].Rows) == 0 {
		return []sinks.Finding{broken("table", label+" is not there, nor a schema for it", "create schema "+quote(p.opts.Schema))}, nil
	}
	r := scanner{row: results[0].Rows[0]}
	if schema, may := r.text(), r.text(); may != "t" {
		return []sinks.Finding{broken("table", label+" is not there, and this role may not make it", "grant create on schema "+quote(schema)+", or make the table")}, nil
	}
	return []sinks.Finding{good("table", "not there yet; made from the first records")}, nil
}

// tableDetails looks at what may change or lose rows behind our back.
func (p *prober) tableDetails(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	switch {
	case p.opts.Mode == Statement:
		return []sinks.Finding{poor("statement", "yours", sinks.ExactlyOnce, "exactly once as far as all it does is in this database")}, nil
	case !p.hasTable:
		return nil, nil
	}
	findings := []sinks.Finding{p.relation()}
	oid := p.table.oid
	results, err := exchange(ctx, pg, nil,
		sql(`select string_agg(quote_ident(tgname), ', ') from pg_trigger where tgrelid::bigint = $1 and not tgisinternal and tgenabled <> 'D'`, oid),
		sql(`select relrowsecurity and not pg_has_role(relowner, 'usage') from pg_class where oid::bigint = $1`, oid),
		sql(`select quote_ident(c.relname), i.indpred is null and i.indexprs is null and i.indimmediate and i.indisvalid and
	(select array_agg(a.attname::text order by a.attname::text) from pg_attribute a where a.attrelid = i.indrelid
		and a.attnum = any ((i.indkey::int2[])[0:i.indnkeyatts - 1])) = (select array_agg(k order by k) from unnest($2::text[]) k)
	from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid::bigint = $1 and i.indisunique order by 1`, oid, pgArray(p.opts.Key...)))
	if err != nil {
		return findings, err
	}
	if names := results[0].Rows[0][0]; names != nil {
		findings = append(findings, poor("triggers", string(names), sinks.ExactlyOnce,
			"a trigger can change, drop or refuse rows, and what it does outside of this database is done again by a replay"))
	}
	if len(results[1].Rows) > 0 && string(results[1].Rows[0][0]) == "t" {
		findings = append(findings, broken("row security", "on", "COPY is refused; let the role bypass it"))
	}
	findings = append(findings, p.constraints(results[2].Rows)...)
	if p.table.kind == "p" {
		more, err := p.partitions(ctx, pg)
		return append(findings, more...), err
	}
	return findings, nil
}

// relation is about what the table is.
func (p *prober) relation() sinks.Finding {
	name := p.table.plain
	switch {
	case p.table.persistence != "p":
		return broken("table", name+" is unlogged or temporary", "its rows vanish at a crash while the ledger stays: alter table "+p.table.name+" set logged")
	case p.table.kind == "f":
		return poor("table", name+" is foreign", sinks.AtLeastOnce, "its server does not commit in the same step: write to a table of this database")
	case p.table.kind != "r" && p.table.kind != "p":
		return poor("table", name+" is not a table (relkind "+p.table.kind+")", sinks.ExactlyOnce, "exactly once as far as its triggers write in this database")
	}
	return good("table", name)
}

// constraints is about unique indexes: rows of a name, and whether it serves an upsert.
func (p *prober) constraints(rows [][][]byte) []sinks.Finding {
	var names []string
	serves := ""
	for _, row := range rows {
		r := scanner{row: row}
		name := r.text()
		if names = append(names, name); r.text() == "t" {
			serves = name
		}
	}
	switch {
	case p.opts.Mode == Upsert && serves != "":
		return []sinks.Finding{good("unique constraints", serves)}
	case p.opts.Mode == Upsert:
		found := "none"
		if len(names) > 0 {
			found = strings.Join(names, ", ") + ", none on the key alone"
		}
		return []sinks.Finding{broken("unique constraints", found, "mode upsert needs one on "+quoteList(p.opts.Key)+", not partial and not deferrable")}
	case len(names) > 0:
		return []sinks.Finding{good("unique constraints", strings.Join(names, ", "))}
	}
	return nil
}

func (p *prober) partitions(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	results, err := exchange(ctx, pg, nil, sql(`select count(*), count(*) filter (where c.relkind = 'f'), count(*) filter (where c.relpersistence <> 'p'),
	(array_agg(t.relid::regclass::text) filter (where c.relkind = 'f' or c.relpersistence <> 'p'))[1]
	from pg_partition_tree($1::bigint::oid::regclass) t join pg_class c on c.oid = t.relid where t.isleaf`, p.table.oid))
	if err != nil {
		return nil, err
	}
	r := scanner{row: results[0].Rows[0]}
	all, foreign, unlogged, example := r.int(), r.int(), r.int(), r.text()
	switch {
	case unlogged > 0:
		return []sinks.Finding{broken("partitions", example+" is unlogged", "its rows vanish at a crash while the ledger stays: alter table "+example+" set logged")}, nil
	case foreign > 0:
		return []sinks.Finding{poor("partitions", example+" is foreign", sinks.AtLeastOnce, "its server does not commit in the same step: keep partitions in this database")}, nil
	case all == 0:
		return []sinks.Finding{poor("partitions", "none", sinks.ExactlyOnce, "no record fits: make partitions before the start")}, nil
	}
	return []sinks.Finding{good("partitions", fmt.Sprint(all))}, nil
}

// pooler tells a pooler from the server by the process that answers. Only one that
// pools statements is in the way, since it takes no transaction.
func (p *prober) pooler(ctx context.Context, pg *pgconn.PgConn) ([]sinks.Finding, error) {
	results, err := exchange(ctx, pg, nil, sql("select pg_backend_pid()"))
	if err != nil {
		return nil, err
	}
	if string(results[0].Rows[0][0]) == fmt.Sprint(pg.PID()) {
		return []sinks.Finding{good("connection", "direct")}, nil
	}
	_, err = exchange(ctx, pg, nil, sql("begin"))
	if code(err) != "" {
		return []sinks.Finding{broken("connection", "through a pooler that takes no transaction", "let it pool transactions or sessions, not statements")}, nil
	}
	if err == nil {
		_, err = exchange(ctx, pg, nil, sql("rollback"))
	}
	if err != nil {
		return nil, err
	}
	return []sinks.Finding{good("connection", "through a pooler; no session state is used")}, nil
}
