package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// ledgerVersion is the version of the ledger's tables that this build writes.
const ledgerVersion = 1

// Script returns the SQL that makes the ledger in the given schema, for those
// who run it by hand; an empty schema means DefaultLedger. With a role it also
// grants that role what the sink needs of the ledger. It changes nothing that
// exists.
func Script(schema, role string) string {
	l := newLedger(orDefault(schema, DefaultLedger))
	var b strings.Builder
	for _, s := range l.ddl() {
		b.WriteString(s)
		b.WriteString(";\n")
	}
	if role != "" {
		fmt.Fprintf(&b, "grant usage on schema %s to %s;\n", quote(l.schema), quote(role))
		fmt.Fprintf(&b, "grant select on %s to %s;\n", l.version, quote(role))
		fmt.Fprintf(&b, "grant select, insert, update on %s to %s;\n", l.lane, quote(role))
		fmt.Fprintf(&b, "grant select, insert, update, delete on %s, %s to %s;\n", l.audit, l.dead, quote(role))
	}
	return b.String()
}

// A ledger holds the quoted names of the ledger's tables.
type ledger struct {
	schema                     string
	version, lane, audit, dead string
}

func newLedger(schema string) ledger {
	return ledger{
		schema:  schema,
		version: quote(schema, "version"), lane: quote(schema, "lane"),
		audit: quote(schema, "audit"), dead: quote(schema, "dead_letter"),
	}
}

func (l ledger) ddl() []string {
	return []string{
		"create schema if not exists " + quote(l.schema),
		"create table if not exists " + l.version + " (version integer primary key)",
		fmt.Sprintf("insert into %s values (%d) on conflict do nothing", l.version, ledgerVersion),
		"create table if not exists " + l.lane + ` (
	sink text not null, lane text not null, fence bigint not null, seq bigint not null,
	chain bytea not null, tip bytea not null, checkpoint bigint not null, position bytea,
	partial json, records bigint not null, dead bigint not null,
	target bigint not null, label text not null, ledger bigint not null, updated_at timestamptz not null,
	primary key (sink, lane)) with (fillfactor = 50)`,
		"create table if not exists " + l.audit + ` (
	sink text not null, lane text not null, seq bigint not null, checkpoint bigint not null,
	prev bytea not null, chain bytea not null, records bigint not null, bytes bigint not null,
	digest bytea not null, position bytea, format text not null, sealed_at bigint not null,
	dead bigint not null, flushed_at timestamptz not null,
	primary key (sink, lane, seq))`,
		"create table if not exists " + l.dead + ` (
	sink text not null, lane text not null, seq bigint not null, number bigint not null,
	checkpoint bigint not null, record bytea not null, field text not null, code text not null,
	reason text not null, at timestamptz not null,
	primary key (sink, lane, seq, number))`,
	}
}

// laneColumns is the select list that scanMark reads. Everything is in a text
// form that no setting of the role changes.
const laneColumns = `fence, seq, encode(chain, 'hex'), encode(tip, 'hex'), checkpoint,
	encode(position, 'hex'), partial::text, records, dead,
	(extract(epoch from updated_at) * 1000000)::bigint, target, ledger = tableoid::bigint, lane`

// acquire raises the fence, or makes the entry.
func (l ledger) acquire(id sinks.LaneID) stmt {
	genesis := id.Genesis()
	return sql(`insert into `+l.lane+` as l (sink, lane, fence, seq, chain, tip, checkpoint, records, dead, target, label, ledger, updated_at)
	values ($1, $2, 1, 0, $3, $3, 0, 0, 0, 0, '', 0, now())
	on conflict (sink, lane) do update set fence = l.fence + 1
	returning `+laneColumns, id.Sink, id.Lane, genesis[:])
}

// lock reads the entry once no transaction holds it any more.
func (l ledger) lock(id sinks.LaneID) stmt {
	return sql(`select `+laneColumns+` from `+l.lane+` where sink = $1 and lane = $2 for update`, id.Sink, id.Lane)
}

// read reads the entry as it is.
func (l ledger) read(id sinks.LaneID) stmt {
	return sql(`select `+laneColumns+` from `+l.lane+` where sink = $1 and lane = $2`, id.Sink, id.Lane)
}

// move is the compare-and-set of a lane's entry. It takes the lock on the row
// for the rest of the transaction.
func (l ledger) move(id sinks.LaneID, fence uint64, from record.Chain, to sinks.Mark, t *table, compare string) (stmt, error) {
	n, err := bigints("mark", fence, to.Seq, to.Checkpoint, to.Records, to.Dead)
	if err != nil {
		return stmt{}, err
	}
	var partial any
	if to.Partial != nil {
		text, err := json.Marshal(to.Partial)
		if err != nil {
			return stmt{}, err
		}
		partial = string(text)
	}
	tip := to.Tip()
	return sql(`update `+l.lane+` set seq = $5, chain = $6, tip = $7, checkpoint = $8, position = $9,
	partial = $10, records = $11, dead = $12, target = $13, label = $14, ledger = tableoid::bigint, updated_at = now()
	where sink = $1 and lane = $2 `+compare,
		id.Sink, id.Lane, n[0], from[:], n[1], to.Chain[:], tip[:], n[2], to.Position, partial, n[3], n[4], t.oid, t.name), nil
}

// evict terminates the backend that holds the lock on the lane's entry.
func (l ledger) evict(id sinks.LaneID) stmt {
	return sql(`select pg_terminate_backend(k.pid), k.pid from `+l.lane+` t join pg_locks k
	on k.locktype = 'transactionid' and k.transactionid = t.xmax and k.granted and k.mode = 'ExclusiveLock'
	where t.sink = $1 and t.lane = $2 and k.pid <> pg_backend_pid()`, id.Sink, id.Lane)
}

// auditRow is an audit row as it travels to the server.
type auditRow struct {
	Seq        int64   `json:"seq"`
	Checkpoint int64   `json:"checkpoint"`
	Prev       string  `json:"prev"`
	Chain      string  `json:"chain"`
	Records    int64   `json:"records"`
	Bytes      int64   `json:"bytes"`
	Digest     string  `json:"digest"`
	Position   *string `json:"position"`
	Format     string  `json:"format"`
	SealedAt   int64   `json:"sealed_at"`
	Dead       int64   `json:"dead"`
}

// insertAudit writes the audit rows of a step in one statement. A row that is
// there already is of a time before the entry was set back, and is replaced.
func (l ledger) insertAudit(id sinks.LaneID, batches []sinks.Audit) (stmt, error) {
	rows := make([]auditRow, 0, len(batches))
	for _, a := range batches {
		n, err := bigints("batch", a.Seq, a.Checkpoint, a.Records, a.Bytes, a.Dead)
		if err != nil {
			return stmt{}, err
		}
		row := auditRow{
			Seq: n[0], Checkpoint: n[1], Prev: a.Prev.String(), Chain: a.Chain().String(), Records: n[2], Bytes: n[3],
			Digest: a.Digest.String(), Format: clean(a.Format), SealedAt: a.SealedAt, Dead: n[4],
		}
		if a.Position != nil {
			row.Position = new(hex.EncodeToString(a.Position))
		}
		rows = append(rows, row)
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return stmt{}, err
	}
	return sql(`insert into `+l.audit+` (sink, lane, seq, checkpoint, prev, chain, records, bytes, digest, position, format, sealed_at, dead, flushed_at)
	select $1, $2, seq, checkpoint, decode(prev, 'hex'), decode(chain, 'hex'), records, bytes, decode(digest, 'hex'), decode(position, 'hex'), format, sealed_at, dead, now()
	from json_to_recordset($3::json) as r(seq bigint, checkpoint bigint, prev text, chain text, records bigint, bytes bigint, digest text, position text, format text, sealed_at bigint, dead bigint)
	on conflict (sink, lane, seq) do update set checkpoint = excluded.checkpoint, prev = excluded.prev, chain = excluded.chain,
	records = excluded.records, bytes = excluded.bytes, digest = excluded.digest, position = excluded.position, format = excluded.format,
	sealed_at = excluded.sealed_at, dead = excluded.dead, flushed_at = excluded.flushed_at`, id.Sink, id.Lane, string(text)), nil
}

// prune removes the lane's audit rows up to seq.
func (l ledger) prune(id sinks.LaneID, seq uint64) stmt {
	return sql(`delete from `+l.audit+` where sink = $1 and lane = $2 and seq <= $3`, id.Sink, id.Lane, int64(seq))
}

// deadRow is a dead letter as it travels to the server.
type deadRow struct {
	Seq        int64  `json:"seq"`
	Number     int64  `json:"number"`
	Checkpoint int64  `json:"checkpoint"`
	Record     string `json:"record"`
	Field      string `json:"field"`
	Code       string `json:"code"`
	Reason     string `json:"reason"`
}

// deadBytes is the most record bytes of dead letters in one statement.
const deadBytes = 16 << 20

// insertDead writes as many of the step's dead letters as fit one statement and
// returns the rest.
func (l ledger) insertDead(step *sinks.Step, letters []sinks.DeadLetter) (stmt, []sinks.DeadLetter, error) {
	var rows []deadRow
	size := 0
	for len(letters) > 0 && (size == 0 || size+len(letters[0].Record) <= deadBytes) {
		d := letters[0]
		if d.Batch < 0 || d.Batch >= len(step.Batches) {
			return stmt{}, nil, fmt.Errorf("%w: dead letter of batch %d of %d", errRefused, d.Batch, len(step.Batches))
		}
		n, err := bigints("dead letter", step.Batches[d.Batch].Seq, d.Number, d.Checkpoint)
		if err != nil {
			return stmt{}, nil, err
		}
		rows = append(rows, deadRow{
			Seq: n[0], Number: n[1], Checkpoint: n[2], Record: hex.EncodeToString(d.Record),
			Field: clean(d.Field), Code: clean(d.Code), Reason: clean(d.Reason),
		})
		size += len(d.Record) + 64
		letters = letters[1:]
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return stmt{}, nil, err
	}
	return sql(`insert into `+l.dead+` (sink, lane, seq, number, checkpoint, record, field, code, reason, at)
	select $1, $2, seq, number, checkpoint, decode(record, 'hex'), field, code, reason, now()
	from json_to_recordset($3::json) as r(seq bigint, number bigint, checkpoint bigint, record text, field text, code text, reason text)
	on conflict (sink, lane, seq, number) do update set checkpoint = excluded.checkpoint, record = excluded.record,
	field = excluded.field, code = excluded.code, reason = excluded.reason, at = excluded.at`,
		step.ID.Sink, step.ID.Lane, string(text)), letters, nil
}

// clean makes text that every server encoding with ASCII in it can hold.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// bigints converts numbers to the server's signed ones.
func bigints(what string, numbers ...uint64) ([]int64, error) {
	out := make([]int64, len(numbers))
	for i, n := range numbers {
		if n > math.MaxInt64 {
			return nil, fmt.Errorf("%w: %s holds %d, the ledger's limit is %d", errRefused, what, n, int64(math.MaxInt64))
		}
		out[i] = int64(n)
	}
	return out, nil
}

// ensureLedger checks the ledger's version, and makes the ledger if there is none.
func (s *Sink) ensureLedger(ctx context.Context, pg *pgconn.PgConn) error {
	results, err := exchange(ctx, pg, nil, sql(`select to_regclass($1) is not null`, s.ledger.version))
	if err != nil {
		return err
	}
	if string(results[0].Rows[0][0]) != "t" {
		if s.opts.NoCreateLedger {
			return fmt.Errorf("%w: no ledger in schema %q; walsink run makes it at its start, also if it then refuses to go on, unless create-ledger=no: then a person has to make it", errRefused, s.ledger.schema)
		}
		if err := s.create(ctx, pg, s.ledger.ddl()...); err != nil {
			return fmt.Errorf("create ledger in schema %q, or let another role make it, that may: %w", s.ledger.schema, err)
		}
	}
	results, err = exchange(ctx, pg, nil, sql(`select coalesce(max(version), 0) from `+s.ledger.version))
	if err != nil {
		return err
	}
	if v := string(results[0].Rows[0][0]); v != strconv.Itoa(ledgerVersion) {
		return fmt.Errorf("%w: ledger in schema %q has version %s, this build knows version %d: use the build that made it", errRefused, s.ledger.schema, v, ledgerVersion)
	}
	return nil
}

// create makes relations; the lock keeps those who do the same apart, since "if
// not exists" does not.
func (s *Sink) create(ctx context.Context, pg *pgconn.PgConn, ddl ...string) error {
	stmts := []stmt{sql("begin"), sql(`select pg_advisory_xact_lock(hashtext($1))`, "walsink ledger "+s.ledger.schema)}
	for _, text := range ddl {
		stmts = append(stmts, sql(text))
	}
	_, err := exchange(ctx, pg, nil, append(stmts, sql("commit"))...)
	return err
}
