package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// ErrTableMissing says that the destination table does not exist, or is not the
// one that the ledger's records went to. Details follow after the text.
var ErrTableMissing = errors.New("table missing")

// A kind says how the encoders treat a column.
type kind uint8

const (
	kindOther kind = iota // text form, checked by the server only
	kindText
	kindBool
	kindInt2
	kindInt4
	kindInt8
	kindFloat4
	kindFloat8
	kindNumeric
	kindBytea
	kindDate
	kindTime
	kindTimestamp
	kindTimestamptz
	kindUUID
	kindJSON
	kindJSONB
	kindArray
)

var kinds = map[uint32]kind{
	pgtype.TextOID: kindText, pgtype.VarcharOID: kindText, pgtype.BPCharOID: kindText, pgtype.NameOID: kindText,
	pgtype.BoolOID: kindBool, pgtype.Int2OID: kindInt2, pgtype.Int4OID: kindInt4, pgtype.Int8OID: kindInt8,
	pgtype.Float4OID: kindFloat4, pgtype.Float8OID: kindFloat8, pgtype.NumericOID: kindNumeric,
	pgtype.ByteaOID: kindBytea, pgtype.DateOID: kindDate, pgtype.TimeOID: kindTime,
	pgtype.TimestampOID: kindTimestamp, pgtype.TimestamptzOID: kindTimestamptz, pgtype.UUIDOID: kindUUID,
	pgtype.JSONOID: kindJSON, pgtype.JSONBOID: kindJSONB,
}

// A typ is what the encoders know about a type. A domain is treated as the type
// under it; its checks are the server's.
type typ struct {
	kind    kind
	enum    bool   // with kindOther
	oid     uint32 // of the type below all domains
	name    string // for messages
	maxLen  int    // of characters, for kindText; 0 if there is no limit
	element *typ   // for kindArray
	delim   byte   // between elements, for kindArray
}

// A column is a column of the table that records have.
type column struct {
	name     string
	typ      typ
	sqlType  string // with modifier, every name in it qualified
	bareType string // without modifier
	typeOID  string
	notNull  bool
}

// A table is the destination as Open found it.
type table struct {
	oid         int64
	name        string // quoted and qualified
	plain       string // for messages
	relname     string
	kind        string // relkind
	persistence string // relpersistence
	columns     []column
	index       map[string]int    // by name
	skipped     map[string]string // columns that records do not have, and why
}

// openTable finds the table, makes it if that was asked for, and reads its
// columns. The connection is left without a transaction.
func (s *Sink) openTable(ctx context.Context, pg *pgconn.PgConn) error {
	t, found, err := s.lookupTable(ctx, pg)
	if err != nil {
		return err
	}
	if !found && s.opts.Create {
		if err := s.createTable(ctx, pg); err != nil {
			return err
		}
		t, found, err = s.lookupTable(ctx, pg)
		if err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%w: %s; make it, or have it made from the first records", errTableGone(), s.opts.label())
	}
	if err := s.readColumns(ctx, pg, &t, sql("select")); err != nil {
		return err
	}
	s.table = t
	return nil
}

// errTableGone is ErrTableMissing, which no retry can help.
func errTableGone() error { return fmt.Errorf("%w: %w", errRefused, ErrTableMissing) }

func (o *Options) label() string {
	if o.Mode == Statement {
		return batchTable
	}
	if o.Schema == "" {
		return quote(o.Table)
	}
	return quote(o.Schema, o.Table)
}

func (s *Sink) lookupTable(ctx context.Context, pg *pgconn.PgConn) (table, bool, error) {
	results, err := exchange(ctx, pg, nil, sql(`select c.oid, n.nspname, c.relname, c.relkind, c.relpersistence
	from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass($1)`, s.opts.label()))
	if err != nil || len(results[0].Rows) == 0 {
		return table{}, false, err
	}
	r := scanner{row: results[0].Rows[0]}
	t := table{oid: r.int()}
	schema, name := r.text(), r.text()
	t.name, t.plain, t.relname = quote(schema, name), schema+"."+name, name
	t.kind, t.persistence = r.text(), r.text()
	return t, true, r.err
}

// createTable makes the table, unless the ledger knows that records went to one
// of this name before: then it was dropped, and a new one would silently lack
// them.
func (s *Sink) createTable(ctx context.Context, pg *pgconn.PgConn) error {
	lost, err := s.droppedFrom(ctx, pg)
	if err != nil {
		return err
	}
	if lost != "" {
		return fmt.Errorf("%w: %s was dropped, but the ledger says that sink %s has records in it; put the table back, or %s",
			errTableGone(), s.opts.label(), lost, resetAdvice(s.ledger.lane, "the sink"))
	}
	defs := make([]string, 0, len(s.opts.Define)+1)
	for _, c := range s.opts.Define {
		defs = append(defs, quote(c.Name)+" "+c.Type)
	}
	if len(s.opts.Key) > 0 {
		defs = append(defs, "primary key ("+quoteList(s.opts.Key)+")")
	}
	if err := s.create(ctx, pg, "create table if not exists "+s.opts.label()+" (\n\t"+strings.Join(defs, ",\n\t")+")"); err != nil {
		return fmt.Errorf("create table %s: %w", s.opts.label(), err)
	}
	return nil
}

// droppedFrom names the sinks that have records in a table of this name that is gone.
func (s *Sink) droppedFrom(ctx context.Context, pg *pgconn.PgConn) (string, error) {
	results, err := exchange(ctx, pg, nil, sql(`select string_agg(distinct l.sink, ', ') from `+s.ledger.lane+` l
	where l.target <> 0 and (l.label = $1 or $2 = '' and right(l.label, length($1) + 1) = '.' || $1)
	and not exists (select from pg_class c where c.oid::bigint = l.target)`, s.opts.label(), s.opts.Schema))
	if err != nil {
		return "", err
	}
	return string(results[0].Rows[0][0]), nil
}

// resetAdvice says how to have everything sent once more.
func resetAdvice(lanes, what string) string {
	return fmt.Sprintf("reset %s to send everything again: replay or drop its dead letters, stop it, delete its rows from %s, remove its state directory, start it", what, lanes)
}

// openBatch reads the columns of mode Statement's relation by making it once.
func (s *Sink) openBatch(ctx context.Context, pg *pgconn.PgConn) error {
	defs := make([]string, len(s.opts.Define))
	for i, c := range s.opts.Define {
		defs[i] = quote(c.Name) + " " + c.Type
	}
	s.batchDDL = "create temporary table " + batchTable + " (" + ordinal + " bigint generated always as identity, " +
		strings.Join(defs, ", ") + ") on commit drop"
	t := table{name: "pg_temp." + batchTable, plain: batchTable, relname: batchTable, kind: "r", persistence: "t"}
	if err := s.readColumns(ctx, pg, &t, sql(s.batchDDL)); err != nil {
		return err
	}
	s.table = t
	return nil
}

// readColumns reads the catalogs in a transaction of its own, with an empty
// search_path so that every type name comes out qualified. before is run first.
func (s *Sink) readColumns(ctx context.Context, pg *pgconn.PgConn, t *table, before stmt) error {
	class := sql(`$1::bigint`, t.oid)
	if t.oid == 0 {
		class = sql(`to_regclass($1)::oid::bigint`, t.name)
	}
	results, err := exchange(ctx, pg, nil, sql("begin"), before, sql("set local search_path = ''"),
		sql(`select attname, atttypid, atttypmod, attnotnull, atthasdef, attidentity, attgenerated,
	format_type(atttypid, atttypmod), format_type(atttypid, -1)
	from pg_attribute where attrelid::bigint = `+class.sql+` and attnum > 0 and not attisdropped order by attnum`, class.args...),
		sql(`with recursive t as (
		select oid, typtype, typcategory, typbasetype, typtypmod, typelem from pg_type
		where oid in (select atttypid from pg_attribute where attrelid::bigint = `+class.sql+` and attnum > 0)
		union
		select y.oid, y.typtype, y.typcategory, y.typbasetype, y.typtypmod, y.typelem
		from pg_type y join t on y.oid = t.typbasetype or y.oid = t.typelem and t.typcategory = 'A')
	select t.oid, t.typtype, t.typcategory, t.typbasetype, t.typtypmod, t.typelem, y.typdelim, format_type(t.oid, -1)
	from t join pg_type y on y.oid = t.oid`, class.args...),
		sql("rollback"))
	if err != nil {
		return err
	}
	types := make(map[uint32]pgType)
	for _, row := range results[4].Rows {
		r := scanner{row: row}
		oid := uint32(r.int())
		types[oid] = pgType{
			typtype: r.text(), category: r.text(), base: uint32(r.int()), mod: int32(r.int()),
			elem: uint32(r.int()), delim: r.text(), name: r.text(),
		}
	}
	return t.choose(&s.opts, results[3].Rows, types)
}

// A pgType is a row of pg_type.
type pgType struct {
	typtype, category, delim, name string
	base, elem                     uint32
	mod                            int32
}

// resolve turns a type of the catalogs into what the encoders need.
func resolve(oid uint32, mod int32, types map[uint32]pgType) typ {
	p := types[oid]
	if p.typtype == "d" {
		if p.mod != -1 {
			mod = p.mod
		}
		t := resolve(p.base, mod, types)
		t.name = p.name
		return t
	}
	t := typ{kind: kinds[oid], enum: p.typtype == "e", oid: oid, name: p.name}
	switch {
	case p.category == "A" && p.elem != 0:
		element := resolve(p.elem, mod, types)
		t.kind, t.element, t.delim = kindArray, &element, p.delim[0]
	case (oid == pgtype.VarcharOID || oid == pgtype.BPCharOID) && mod > 4:
		t.maxLen = int(mod) - 4
	case oid == pgtype.NameOID:
		t.maxLen = maxName
	}
	return t
}

// choose picks the columns that records have out of all of the table's.
func (t *table) choose(o *Options, rows [][][]byte, types map[uint32]pgType) error {
	all := make(map[string]column, len(rows))
	var order []string
	t.index, t.skipped = make(map[string]int), make(map[string]string)
	for _, row := range rows {
		r := scanner{row: row}
		c := column{name: r.text(), typeOID: string(r.row[0])}
		oid, mod := uint32(r.int()), int32(r.int())
		c.typ, c.notNull = resolve(oid, mod, types), r.text() == "t"
		hasDefault, identity, generated := r.text() == "t", r.text(), r.text()
		c.sqlType, c.bareType = r.text(), r.text()
		switch {
		case c.name == ordinal || c.name == operation:
			continue
		case generated != "":
			t.skipped[c.name] = "is generated by the server"
			continue
		case identity != "":
			t.skipped[c.name] = "is an identity column"
		case hasDefault:
			t.skipped[c.name] = "has a default"
		default:
			order = append(order, c.name)
		}
		all[c.name] = c
	}
	if len(o.Columns) > 0 {
		order = o.Columns
	}
	if o.Mode == Upsert {
		for _, k := range o.Key {
			if !slices.Contains(order, k) {
				order = append(slices.Clone(order), k)
			}
		}
	}
	return t.take(o, order, all)
}

func (t *table) take(o *Options, order []string, all map[string]column) error {
	for _, name := range order {
		c, ok := all[name]
		if !ok {
			if why := t.skipped[name]; why != "" {
				return fmt.Errorf("%w: column %q of %s %s", errRefused, name, t.plain, why)
			}
			return fmt.Errorf("%w: %s has no column %q", errRefused, t.plain, name)
		}
		delete(t.skipped, name)
		t.index[name] = len(t.columns)
		t.columns = append(t.columns, c)
	}
	if len(t.columns) == 0 {
		return fmt.Errorf("%w: %s has no column that records could fill; name the columns to fill", errRefused, t.plain)
	}
	if o.Rest != "" {
		i, ok := t.index[o.Rest]
		if !ok || t.columns[i].typ.kind != kindJSON && t.columns[i].typ.kind != kindJSONB {
			return fmt.Errorf("%w: the column for the rest, %q, is not a json or jsonb column that records have", errRefused, o.Rest)
		}
	}
	return nil
}

// names returns the column names in order.
func (t *table) names() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

// typesSQL is a query whose description tells the types of the columns. It is
// never run, so that it needs no privilege, but the server locks the table for it
// until the transaction ends: what the description says stays true.
func (t *table) typesSQL() string { return "select " + quoteList(t.names()) + " from " + t.name }

// hasTypes reports whether the columns have the types that they had at Open,
// domains aside, which are written like the type below them.
func (t *table) hasTypes(now []pgconn.FieldDescription) bool {
	return slices.EqualFunc(t.columns, now, func(c column, f pgconn.FieldDescription) bool { return c.typ.oid == f.DataTypeOID })
}
