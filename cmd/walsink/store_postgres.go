package main

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

// inferFrom is how many records are looked at to propose the columns of a table.
const inferFrom = 1000

// openPostgres opens postgres://USER@HOST/DATABASE?table=T. Options that are not
// ours are pgx's.
func openPostgres(ctx context.Context, e endpoint, sample sampler) (opened, error) {
	opts, rest, err := postgresOptions(e)
	if err != nil {
		return opened{}, err
	}
	if sample == nil {
		opts.Create, opts.NoCreateLedger = false, true
	}
	unseen := false // the table is to be made, and there is no record to make it from
	if opts.Create {
		columns, err := inferColumns(ctx, sample)
		if err != nil {
			return opened{}, err
		}
		unseen = len(columns) == 0
		opts.Create = !unseen
		if opts.Create {
			opts.Define = withRest(columns, opts.Rest)
		}
	}
	pool, err := postgresPool(ctx, e, rest)
	if err != nil {
		return opened{}, err
	}
	sink, err := postgres.Open(ctx, pool, opts)
	if err != nil {
		pool.Close()
		if unseen && errors.Is(err, postgres.ErrTableMissing) {
			return opened{}, usagef("postgres: option create: there is no record to take the columns from: make the table first")
		}
		return opened{}, adviseTable(err, opts)
	}
	return opened{pooled{sink, pool}, sink.AppendJSON}, nil
}

// adviseTable says with which options a table or a ledger that is missing is made.
func adviseTable(err error, opts postgres.Options) error {
	switch {
	case errors.Is(err, postgres.ErrTableMissing) && !opts.Create && opts.Schema == "":
		return &advised{err, "make the table, or add create=true to DST, which makes it from the first records; " +
			"schema=S or table=S.T if it is in a schema that is not on the search_path"}
	case errors.Is(err, postgres.ErrTableMissing) && !opts.Create:
		return &advised{err, "make the table, or add create=true to DST, which makes it from the first records"}
	}
	return err
}

func probePostgres(ctx context.Context, e endpoint) ([]sinks.Finding, error) {
	opts, rest, err := postgresOptions(e)
	if err != nil {
		return nil, err
	}
	pool, err := postgresPool(ctx, e, rest)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return postgres.Probe(ctx, pool, opts)
}

// pooled is a sink that owns its pool.
type pooled struct {
	*postgres.Sink
	pool *pgxpool.Pool
}

func (p pooled) Close() error {
	err := p.Sink.Close()
	p.pool.Close()
	return err
}

// postgresOptions takes our options out of the query and returns the rest.
func postgresOptions(e endpoint) (postgres.Options, url.Values, error) {
	q := e.options()
	opts := postgres.Options{
		Columns: q.list("columns"), Key: q.list("key"),
		Create: q.flag("create", false), Rest: q.text("rest", ""), Tombstone: q.text("tombstone", ""),
		Ledger: q.text("ledger", ""), NoCreateLedger: !q.flag("create-ledger", true),
		StepBytes: q.size("step-bytes", 0), Chunked: q.flag("chunked", false),
	}
	q.text("schema", "")
	q.text("table", "")
	opts.Schema, opts.Table = postgresTable(e)
	if q.choice("mode", "insert", "upsert") == "upsert" {
		opts.Mode = postgres.Upsert
	}
	switch {
	case q.err != nil:
	case opts.Table == "":
		q.fail("table", "is missing: the table to write to")
	case opts.Mode == postgres.Upsert && len(opts.Key) == 0:
		q.fail("key", "is missing: mode=upsert needs the columns of a unique constraint")
	}
	return opts, q.left, q.err
}

// checkPostgres is what can be said of a DST without opening it.
func checkPostgres(e endpoint) error {
	_, rest, err := postgresOptions(e)
	if err != nil {
		return err
	}
	_, err = postgresConfig(e, rest)
	return err
}

// postgresTable is the schema and the table that DST names: table=S.T is T in schema S,
// unless schema says otherwise.
func postgresTable(e endpoint) (schema, table string) {
	schema, table = e.query.Get("schema"), e.query.Get("table")
	if before, after, ok := strings.Cut(table, "."); ok && schema == "" && before != "" && after != "" {
		return before, after
	}
	return schema, table
}

// postgresPool makes the pool. Its errors hold no part of the address.
func postgresPool(ctx context.Context, e endpoint, rest url.Values) (*pgxpool.Pool, error) {
	conf, err := postgresConfig(e, rest)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return nil, errors.New("the pool of connections cannot be made")
	}
	return pool, nil
}

func postgresConfig(e endpoint, rest url.Values) (*pgxpool.Config, error) {
	u, err := url.Parse(e.scheme + ":" + e.path)
	if err != nil {
		return nil, usagef("%s: the address is not a URL; special characters of a password are written %%XX", e.scheme)
	}
	u.RawQuery = strings.ReplaceAll(rest.Encode(), "+", "%20") // to pgx '+' is no space
	conf, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, addressError(e, rest, "pgx")
	}
	return conf, nil
}

// addressError says that client does not take the address, or an option handed to it.
func addressError(e endpoint, rest url.Values, client string) error {
	if len(rest) == 0 {
		return usagef("%s: the address is not what %s takes", e.scheme, client)
	}
	return usagef("%s: the address or one of the options %s is not what %s takes", e.scheme, strings.Join(optionNames(rest), ", "), client)
}

func optionNames(q url.Values) []string {
	names := []string{}
	for name := range q {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// withRest adds the column for fields without a column, if the records have none of
// that name.
func withRest(columns []postgres.Column, rest string) []postgres.Column {
	if rest == "" || slices.ContainsFunc(columns, func(c postgres.Column) bool { return c.Name == rest }) {
		return columns
	}
	return append(columns, postgres.Column{Name: rest, Type: "jsonb"})
}

// inferColumns takes the columns from the first records; none if there are no records.
func inferColumns(ctx context.Context, sample sampler) ([]postgres.Column, error) {
	recs, err := sample(ctx, inferFrom)
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	columns, err := postgres.Infer(slices.Values(recs))
	if err != nil {
		return nil, &inputError{err}
	}
	return columns, nil
}

// postgresName: the ledger is per database, so the table tells jobs apart.
func postgresName(e endpoint) string {
	schema, name := postgresTable(e)
	if schema != "" {
		name = schema + "." + name
	}
	return safeName(name)
}

// postgresWhere is host, database and table: what is left when the user changes.
func postgresWhere(e endpoint) (string, error) {
	u, err := url.Parse(e.scheme + ":" + e.path)
	if err != nil {
		return "", usagef("%s: the address is not a URL; special characters of a password are written %%XX", e.scheme)
	}
	schema, table := postgresTable(e)
	return "//" + u.Host + u.Path + "/" + schema + "." + table, nil
}
