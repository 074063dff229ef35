package postgres

import (
	"fmt"
	"slices"
	"strings"
)

// copySQL returns the COPY of a step, of tuples or of lines. The columns are
// listed, so that a column that is added later does no harm.
func (s *Sink) copySQL(tuple bool) string {
	names := s.table.names()
	if s.opts.Mode == Upsert {
		names = slices.Insert(names, 0, operation)
	}
	return copyInto(s.stage(), names, tuple)
}

// copyInto returns a COPY. For lines it names the encoding, so that the role's
// settings do not matter; the server does not heed that for tuples, see flight.begin.
func copyInto(relation string, columns []string, tuple bool) string {
	options := "format text, encoding 'UTF8'"
	if tuple {
		options = "format binary"
	}
	return fmt.Sprintf("copy %s (%s) from stdin with (%s)", relation, quoteList(columns), options)
}

// stage returns the relation that records are copied into.
func (s *Sink) stage() string {
	switch s.opts.Mode {
	case Upsert:
		return "pg_temp." + stageTable
	case Statement:
		return "pg_temp." + batchTable
	}
	return s.table.name
}

// stageDDL returns the SQL that makes the relation for the transaction, or "".
func (s *Sink) stageDDL() string {
	switch s.opts.Mode {
	case Upsert:
		defs := make([]string, len(s.table.columns))
		for i, c := range s.table.columns {
			defs[i] = quote(c.name) + " " + c.sqlType
		}
		return "create temporary table " + stageTable + " (" + ordinal + ` bigint generated always as identity, ` +
			operation + ` "char", ` + strings.Join(defs, ", ") + ") on commit drop"
	case Statement:
		return s.batchDDL
	}
	return ""
}

// applySQL returns the statements that carry what was staged over. from is a
// relation, or a subselect with a name, of the same columns; where restricts it.
func (s *Sink) applySQL(from, where string) []string {
	switch s.opts.Mode {
	case Upsert:
		return []string{s.upsertSQL(from, where)}
	case Statement:
		return []string{s.opts.Statement}
	}
	return nil
}

// upsertSQL applies the last write of each key. Keys are taken in order, so that
// two lanes that write the same keys seldom wait for each other crosswise.
func (s *Sink) upsertSQL(from, where string) string {
	keys := quoteList(s.opts.Key)
	match := make([]string, len(s.opts.Key))
	for i, k := range s.opts.Key {
		match[i] = "t." + quote(k) + " = l." + quote(k)
	}
	var set []string
	for _, c := range s.table.columns {
		if !slices.Contains(s.opts.Key, c.name) {
			set = append(set, quote(c.name)+" = excluded."+quote(c.name))
		}
	}
	conflict := "nothing"
	if len(set) > 0 {
		conflict = "update set " + strings.Join(set, ", ")
	}
	columns := quoteList(s.table.names())
	return fmt.Sprintf(`with l as (select distinct on (%[1]s) * from %[2]s%[3]s order by %[1]s, %[4]s desc),
	d as (delete from %[5]s t using l where l.%[6]s = 'D' and %[7]s)
insert into %[5]s (%[8]s) select %[8]s from l where l.%[6]s = 'U' order by %[1]s
	on conflict (%[1]s) do %[9]s`,
		keys, from, where, ordinal, s.table.name, operation, strings.Join(match, " and "), columns, conflict)
}
