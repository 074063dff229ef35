package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A stmt is one statement with its arguments: string, int64, []byte for bytea,
// or nil. Statements go over the extended protocol with the unnamed prepared
// statement, which works behind every kind of pooler.
type stmt struct {
	sql      string
	args     []any
	describe bool // do not run it
}

func sql(text string, args ...any) stmt { return stmt{sql: text, args: args} }

// describe asks for the columns that a query has, which come as the field
// descriptions of its result.
func describe(text string) stmt { return stmt{sql: text, describe: true} }

// bind returns the arguments in protocol form.
func (s stmt) bind() (values [][]byte, formats []int16) {
	values, formats = make([][]byte, len(s.args)), make([]int16, len(s.args))
	for i, a := range s.args {
		switch a := a.(type) {
		case nil:
		case []byte:
			if a != nil {
				values[i], formats[i] = a, pgx.BinaryFormatCode
			}
		case string:
			values[i] = []byte(a)
		case int64:
			values[i] = strconv.AppendInt(nil, a, 10)
		default:
			panic(fmt.Sprintf("postgres: argument %d has type %T", i+1, a)) // a mistake in this package
		}
	}
	return values, formats
}

// exchange sends the statements in one go and reads their results. It stops at
// the first error; the server skips what follows it. sent is called between the
// two, if it is not nil.
func exchange(ctx context.Context, pg *pgconn.PgConn, sent func(), stmts ...stmt) ([]*pgconn.Result, error) {
	p := pg.StartPipeline(ctx)
	for _, s := range stmts {
		if s.describe {
			p.SendPrepare("", s.sql, nil)
			continue
		}
		values, formats := s.bind()
		p.SendQueryParams(s.sql, values, nil, formats, nil)
	}
	err := p.Sync()
	if err == nil && sent != nil {
		sent()
	}
	var results []*pgconn.Result
	if err == nil {
		results, err = collect(p, len(stmts))
	}
	if closed := p.Close(); err == nil {
		err = closed
	}
	return results, err
}

func collect(p *pgconn.Pipeline, n int) ([]*pgconn.Result, error) {
	results := make([]*pgconn.Result, 0, n)
	for range n {
		got, err := p.GetResults()
		if err != nil {
			return results, err
		}
		switch got := got.(type) {
		case *pgconn.StatementDescription:
			results = append(results, &pgconn.Result{FieldDescriptions: got.Fields})
		case *pgconn.ResultReader:
			result := got.Read()
			if result.Err != nil {
				return results, result.Err
			}
			results = append(results, result)
		default:
			return results, fmt.Errorf("unexpected answer %T", got)
		}
	}
	return results, nil
}

// quote writes names as one SQL identifier, qualified if there are several.
func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

// quoteList writes names as a list of SQL identifiers.
func quoteList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, ", ")
}

// literal writes s as an SQL string constant, whatever
// standard_conforming_strings is.
func literal(s string) string {
	s = strings.ReplaceAll(s, "'", "''")
	if strings.Contains(s, `\`) {
		return " E'" + strings.ReplaceAll(s, `\`, `\\`) + "'"
	}
	return "'" + s + "'"
}
