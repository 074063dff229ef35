package postgres

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walsink/walsink/sinks"
)

// copyContext is the rest of a COPY context after the relation's name: a line
// and perhaps a column. The words are translated by the server.
var copyContext = regexp.MustCompile(`^\D*(\d+)(?:\P{L}+\pL+ )?`)

// where reads line and column out of the context of an error in COPY into
// relation; line 0 if it is not there.
func where(context, relation string, columns []string) (line uint64, column string) {
	for text := range strings.SplitSeq(context, "\n") {
		rest, ok := strings.CutPrefix(text, "COPY "+relation)
		if !ok {
			continue
		}
		m := copyContext.FindStringSubmatchIndex(rest)
		if m == nil {
			continue
		}
		line, _ = strconv.ParseUint(rest[m[2]:m[3]], 10, 64)
		rest = rest[m[1]:]
		for _, name := range columns {
			if after, ok := strings.CutPrefix(rest, name); ok && len(name) > len(column) && (after == "" || after[0] == ':') {
				column = name
			}
		}
		return line, column
	}
	return 0, ""
}

// find names the records at fault after a step failed with e. It looks at all of
// them, in two round trips however many are bad; where that is not possible it
// names the one that COPY has named.
func (f *flight) find(ctx context.Context, e *pgconn.PgError) ([]sinks.Reject, error) {
	if bad, err := f.malformed(); len(bad) > 0 || err != nil {
		return bad, err
	}
	first := f.first(e)
	if f.sink.opts.Mode == Statement {
		return first, nil
	}
	bad, err := f.findAll(ctx)
	if kind := classify(ctx, writing, err); err != nil && len(first) > 0 && (kind == sinks.Permanent || kind == sinks.Poison) {
		return first, nil // no plpgsql, no temporary tables, a character that the server's encoding lacks
	}
	if err != nil {
		return nil, err
	}
	if len(bad) > 0 && len(first) > 0 && bad[0].Number == first[0].Number && bad[0].Field == "" {
		bad[0].Field = first[0].Field
	}
	if len(bad) == 0 {
		bad = first
	}
	return bad, nil
}

// first is the record that the COPY context names.
func (f *flight) first(e *pgconn.PgError) []sinks.Reject {
	line, column := f.sink.where(e)
	batch, number, ok := f.stream.locate(line)
	if !ok {
		return nil
	}
	if column == "" {
		column = e.ColumnName
	}
	return []sinks.Reject{{Batch: batch, Number: number, Field: column, Code: e.Code, Reason: reason(e.Code, e.ConstraintName)}}
}

// where is the place of an error in the COPY of a step.
func (s *Sink) where(e *pgconn.PgError) (line uint64, column string) {
	relation := s.table.relname
	if s.opts.Mode == Upsert {
		relation = stageTable
	}
	return where(e.Where, relation, s.table.names())
}

// malformed finds records that no encoder of this sink has made.
func (f *flight) malformed() ([]sinks.Reject, error) {
	columns := len(f.sink.table.columns)
	if f.sink.opts.Mode == Upsert {
		columns++
	}
	l := f.liner()
	var bad []sinks.Reject
	for run, err := range f.step.Runs {
		if err != nil {
			return nil, err
		}
		for i, rec := range run.Block.All() {
			rec, why := l.line(run.Batch, rec)
			switch {
			case why != "":
			case bytes.Count(rec, []byte{'\t'}) != columns-1:
				why = "not made by an encoder of this sink: wrong number of columns"
			case !utf8.Valid(rec):
				why = "invalid UTF-8"
			case bytes.IndexByte(rec, 0) >= 0:
				why = "NUL character"
			default:
				continue
			}
			bad = append(bad, reject(run, i, why))
		}
	}
	return bad, nil
}

// findAll copies the records as text into a temporary table and lets the server
// insert them in ever smaller pieces, each in a subtransaction, until those that
// it refuses stand alone. Pieces that are good stay in, so that a record is bad
// exactly if it is after all good ones before it. Everything is rolled back.
func (f *flight) findAll(ctx context.Context) ([]sinks.Reject, error) {
	names := make([]string, 0, len(f.sink.table.columns)+1)
	if f.sink.opts.Mode == Upsert {
		names = append(names, "op")
	}
	for i := range f.sink.table.columns {
		names = append(names, "c"+strconv.Itoa(i))
	}
	constraints := sql("select")
	if f.at == committing { // a deferred one has failed
		constraints = sql("set constraints all immediate")
	}
	_, err := exchange(ctx, f.pg, nil, sql("rollback"), sql("begin"), constraints,
		sql("create temporary table "+findTable+" ("+ordinal+" bigint generated always as identity primary key, "+
			strings.Join(names, " text, ")+" text) on commit drop"),
		sql("create temporary table "+badTable+" ("+ordinal+" bigint, code text, field text, rule text) on commit drop"))
	if err != nil {
		return nil, err
	}
	if err := f.copy(ctx, copyInto("pg_temp."+findTable, names, false), false); err != nil {
		return nil, err
	}
	results, err := exchange(ctx, f.pg, nil, sql(f.sink.findSQL()),
		sql("select "+ordinal+", code, coalesce(field, ''), coalesce(rule, '') from pg_temp."+badTable+" order by "+ordinal),
		sql("rollback"))
	if err != nil {
		return nil, err
	}
	bad := make([]sinks.Reject, 0, len(results[1].Rows))
	for _, row := range results[1].Rows {
		r := scanner{row: row}
		line, code, field, rule := r.uint(), r.text(), r.text(), r.text()
		if batch, number, ok := f.stream.locate(line); ok {
			bad = append(bad, sinks.Reject{Batch: batch, Number: number, Field: field, Code: code, Reason: reason(code, rule)})
		}
	}
	return bad, nil
}

// maxFound is how many bad records one search finds at most.
const maxFound = 10_000

// findSQL is the block that does the search.
func (s *Sink) findSQL() string {
	insert, casts := s.trySQL(), s.castSQL()
	body := `
#variable_conflict use_column
declare
	walsink_lo bigint := 1;
	walsink_last bigint;
	walsink_found bigint := 0;
	walsink_size bigint;
	walsink_state text; walsink_column text; walsink_rule text;
begin
	select count(*) into walsink_last from pg_temp.` + findTable + `;
	walsink_size := greatest(walsink_last / 2, 1);
	while walsink_lo <= walsink_last and walsink_found < ` + strconv.Itoa(maxFound) + ` loop
		begin
			` + insert + `;
			walsink_lo := walsink_lo + walsink_size;
			walsink_size := walsink_size * 2;
		exception when others then
			get stacked diagnostics walsink_state = returned_sqlstate, walsink_column = column_name, walsink_rule = constraint_name;
			if left(walsink_state, 2) not in ('22', '23', '44', 'P0') and walsink_state <> '54000' then
				raise;
			end if;
			if walsink_size > 1 then
				walsink_size := walsink_size / 2;
			else
				if left(walsink_state, 2) = '22' and walsink_column = '' then
					` + casts + `
				end if;
				insert into pg_temp.` + badTable + ` values (walsink_lo, walsink_state, walsink_column, walsink_rule);
				walsink_lo := walsink_lo + 1;
				walsink_found := walsink_found + 1;
			end if;
		end;
	end loop;
end `
	tag := "$walsink$"
	for i := 0; strings.Contains(body, tag); i++ {
		tag = fmt.Sprintf("$walsink%d$", i)
	}
	return "do " + tag + body + tag
}

// trySQL inserts the records of the current piece as the step would.
func (s *Sink) trySQL() string {
	within := ordinal + " >= walsink_lo and " + ordinal + " < walsink_lo + walsink_size"
	typed := make([]string, len(s.table.columns))
	for i, c := range s.table.columns {
		typed[i] = fmt.Sprintf("c%d::%s as %s", i, c.bareType, quote(c.name))
	}
	list := strings.Join(typed, ", ")
	if s.opts.Mode == Upsert {
		from := fmt.Sprintf("(select %s, op as %s, %s from pg_temp.%s where %s) s", ordinal, operation, list, findTable, within)
		return s.upsertSQL(from, "")
	}
	return fmt.Sprintf("insert into %s (%s) select %s from pg_temp.%s where %s order by %s",
		s.table.name, quoteList(s.table.names()), list, findTable, within, ordinal)
}

// castSQL finds the column of a record that is not a value of its type.
func (s *Sink) castSQL() string {
	var b strings.Builder
	for i, c := range s.table.columns {
		fmt.Fprintf(&b, `
					begin
						perform c%d::%s from pg_temp.%s where %s = walsink_lo;
					exception when others then
						walsink_column := %s;
					end;`, i, c.bareType, findTable, ordinal, literal(c.name))
	}
	return b.String()
}

// columnChanged tells a table that was changed since Open from records that are
// bad: it returns an error that names the column, or nil.
func (s *Sink) columnChanged(ctx context.Context, pg *pgconn.PgConn, e *pgconn.PgError) error {
	if s.opts.Mode == Statement {
		return nil
	}
	if _, ours := s.table.index[e.ColumnName]; e.Code == "23502" && !ours && e.ColumnName != "" {
		return fmt.Errorf("%w: column %q of %s takes no null, and records have no value for it; give it a default, or name it in Columns",
			errRefused, e.ColumnName, s.table.plain)
	}
	results, err := exchange(ctx, pg, nil, sql("rollback"),
		sql("select attname, atttypid from pg_attribute where attrelid::bigint = $1 and attnum > 0 and not attisdropped", s.table.oid))
	if err != nil {
		return err
	}
	now := make(map[string]string, len(results[1].Rows))
	for _, row := range results[1].Rows {
		now[string(row[0])] = string(row[1])
	}
	_, failed := s.where(e)
	for _, c := range s.table.columns {
		if oid := now[c.name]; oid != c.typeOID && (failed == "" || failed == c.name) {
			return fmt.Errorf("%w: column %q of %s was %s when the sink was opened and has another type now; change it back, or open the sink anew",
				errRefused, c.name, s.table.plain, c.sqlType)
		}
	}
	return nil
}
