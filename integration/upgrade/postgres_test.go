package upgrade_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

var postgresKind = storeKind{
	name: "postgres", ext: ".sql", newest: 1, empty: newPostgres, begin: ordersTable,
	refusal: "has version 2, this build knows version 1: use the build that made it",
	holdings: map[string][]string{"postgres-1": {
		"000: batch 1, checkpoint 1, 5 records of postgres copy text 1 insert d40ca5849a59dbec: flushed",
		"000: batch 2, checkpoint 2, 5 records of postgres copy text 1 insert d40ca5849a59dbec: pending",
		"000: batch 3, checkpoint 3, 5 records of postgres copy binary 1 insert d40ca5849a59dbec lzntb: pending",
		"000: 1 sealed, not complete, up to position 20",
	}},
}

// ordersTable is the destination. It has no key: only the ledger keeps a row from being
// in twice.
const ordersTable = "create table orders (n bigint not null, at timestamptz, amount numeric(10,2), note text, paid boolean);\n"

// postgresTables are what a dump has, and the order of their rows: that of orders is
// the one they came in.
var postgresTables = []struct{ name, order string }{
	{"walsink.lane", "sink, lane"}, {"walsink.audit", "seq"}, {"walsink.dead_letter", "seq, number"}, {"public.orders", "ctid"},
}

type postgresStore struct{ pool *pgxpool.Pool }

func newPostgres(t *testing.T) store {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), servers.Postgres(t)+"&timezone=UTC")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &postgresStore{pool}
}

func (st *postgresStore) open() (sinks.Sink, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := postgres.Open(ctx, st.pool, postgres.Options{Table: "orders"})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// order is a row: the note has what COPY escapes, or is null.
func order(n int) []any {
	at := time.Date(2024, 1, 2, 3, 4, n, 500_000_000, time.UTC)
	if n%4 == 3 {
		return []any{n, at, fmt.Sprint(n, ".5"), nil, n%2 == 0}
	}
	return []any{n, at, fmt.Sprint(n, ".5"), fmt.Sprintf("note\t%d\\", n), n%2 == 0}
}

func (st *postgresStore) record(t *testing.T, s sinks.Sink, n int) []byte {
	t.Helper()
	rec, err := s.(*postgres.Sink).AppendRow(nil, order(n))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// old is a line of COPY's text format.
func (st *postgresStore) old(_ *testing.T, _ sinks.Sink, n int) []byte {
	o := order(n)
	note := "\\N"
	if text, ok := o[3].(string); ok {
		note = strings.NewReplacer("\t", "\\t", "\\", "\\\\").Replace(text)
	}
	return fmt.Appendf(nil, "%d\t%s\t%s\t%s\t%t\n", n, o[1].(time.Time).Format("2006-01-02 15:04:05.999999Z"), o[2], note, o[4])
}

// oldFormat is the format without the types of the columns.
func (st *postgresStore) oldFormat(s sinks.Sink) string {
	format := strings.Replace(s.Info().Format, "binary", "text", 1)
	return format[:strings.LastIndexByte(format, ' ')]
}

func (st *postgresStore) rows(t *testing.T) []string {
	t.Helper()
	return st.query(t, "select concat_ws(',', n, at, amount, coalesce(note, 'null'), paid) from orders order by ctid")
}

func (st *postgresStore) want(records int) (all []string) {
	for n := range records {
		o := order(n)
		if o[3] == nil {
			o[3] = "null"
		}
		all = append(all, fmt.Sprintf("%d,%s,%s0,%s,%.1s", n, o[1].(time.Time).Format("2006-01-02 15:04:05.9-07"), o[2], o[3], fmt.Sprint(o[4])))
	}
	return all
}

// query returns the first column of a query in its text form.
func (st *postgresStore) query(t *testing.T, sql string) (all []string) {
	t.Helper()
	_, rows := st.text(t, sql)
	for _, r := range rows {
		all = append(all, string(r[0]))
	}
	return all
}

// text runs a query and returns the names of its columns, and its rows in text form.
func (st *postgresStore) text(t *testing.T, sql string) (columns []string, rows [][][]byte) {
	t.Helper()
	conn, err := st.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	results, err := conn.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
	if err != nil || len(results) != 1 {
		t.Fatalf("%s: %d results, %v", sql, len(results), err)
	}
	for _, f := range results[0].FieldDescriptions {
		columns = append(columns, f.Name)
	}
	return columns, results[0].Rows
}

func (st *postgresStore) dump(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(postgres.Script("", "") + ordersTable)
	for _, table := range postgresTables {
		columns, rows := st.text(t, "select * from "+table.name+" order by "+table.order)
		for _, row := range rows {
			values := make([]string, len(row))
			for i, v := range row {
				if values[i] = "null"; v != nil {
					values[i] = "'" + strings.ReplaceAll(string(v), "'", "''") + "'"
				}
			}
			fmt.Fprintf(&b, "insert into %s (%s)\n\tvalues (%s);\n", table.name, strings.Join(columns, ", "), strings.Join(values, ", "))
		}
	}
	return b.Bytes()
}

func (st *postgresStore) load(t *testing.T, dump []byte) {
	t.Helper()
	if _, err := st.pool.Exec(t.Context(), string(dump)); err != nil {
		t.Fatal(err)
	}
}

func (st *postgresStore) newer(t *testing.T) {
	st.load(t, []byte("update walsink.version set version = 2"))
}
