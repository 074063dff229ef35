package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walsink/walsink/sinks"
)

// A phase says how far a call has come, since the same error means different
// things before and after COMMIT was sent.
type phase uint8

const (
	preparing  phase = iota // nothing of the records was sent
	writing                 // records were sent, COMMIT was not
	committing              // COMMIT was sent
)

// classify says what an error of a store call means. It is the only place that
// looks into errors of pgx and of the server.
//
// The order matters. A definite answer of the server comes first: it also wins
// over a context that ended meanwhile. After COMMIT was sent, everything but a
// definite refusal is ambiguous. Before that, a lost connection means that the
// server rolls back.
func classify(ctx context.Context, at phase, err error) sinks.Kind {
	if e, ok := errors.AsType[*sinks.Error](err); ok {
		return e.Kind
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && !(ctx.Err() != nil && e.Code == "57014") {
		return classifyServer(at, e)
	}
	switch {
	case ctx.Err() != nil || errors.Is(err, context.Canceled):
		return sinks.Cancelled
	case errors.Is(err, errRefused):
		return sinks.Permanent
	case at == committing:
		return sinks.Ambiguous
	}
	return sinks.Transient
}

// errRefused marks errors of our own that no retry can help.
var errRefused = errors.New("refused")

func classifyServer(at phase, e *pgconn.PgError) sinks.Kind {
	kind := kindOfCode(e.Code)
	// A FATAL error ends the session, possibly after the commit record was written.
	if at == committing && (e.SeverityUnlocalized != "ERROR" || kind == sinks.Ambiguous) {
		return sinks.Ambiguous
	}
	switch kind {
	case sinks.Ambiguous:
		return sinks.Transient // COMMIT was not sent: nothing can have been written
	case sinks.Poison:
		if at == preparing {
			return sinks.Permanent
		}
	}
	return kind
}

// kindOfCode classifies an SQLSTATE by the longest prefix in codes. A code that
// is not there is permanent: the server has answered, and asking again without a
// change would be a guess.
func kindOfCode(code string) sinks.Kind {
	for n := len(code); n >= 2; n-- {
		if k, ok := codes[code[:n]]; ok {
			return k
		}
	}
	return sinks.Permanent
}

var codes = map[string]sinks.Kind{
	"08":    sinks.Transient, // connection exception
	"08007": sinks.Ambiguous, // transaction resolution unknown
	"22":    sinks.Poison,    // data exception
	"23":    sinks.Poison,    // integrity constraint violation
	"25006": sinks.Transient, // read-only: a standby, until the pool finds the primary
	"25P02": sinks.Transient, // in failed transaction
	"25P03": sinks.Transient, // idle-in-transaction timeout
	"25P04": sinks.Transient, // transaction timeout
	"26":    sinks.Transient, // prepared statement is gone
	"40":    sinks.Transient, // rolled back: deadlock, serialization
	"40003": sinks.Ambiguous, // statement completion unknown
	"44":    sinks.Poison,    // WITH CHECK OPTION violation
	"53":    sinks.Transient, // disk full, out of memory, too many connections
	"54000": sinks.Poison,    // a row or an index entry that is too big
	"55006": sinks.Transient, // object in use
	"55P03": sinks.Transient, // lock not available
	"57":    sinks.Transient, // shutdown, cancel by an administrator, starting up
	"57P04": sinks.Permanent, // database dropped
	"58":    sinks.Transient, // system error
	"58P01": sinks.Permanent, // undefined file
	"P0":    sinks.Poison,    // raised by a trigger
	"XX000": sinks.Transient, // internal error
}

// reasons are texts for what may be wrong with a record. The server's own text
// is not used since it quotes the value.
var reasons = map[string]string{
	"21000": "several rows where one is allowed",
	"22000": "bad value",
	"22001": "text too long",
	"22003": "number out of range",
	"22004": "null not allowed",
	"22007": "not a date or time",
	"22008": "date or time out of range",
	"22021": "invalid byte sequence",
	"22023": "invalid parameter value",
	"22026": "wrong length",
	"22032": "not JSON",
	"22P02": "not a value of the type",
	"22P03": "not a binary value of the type",
	"22P04": "wrong number of columns",
	"22P05": "character without equivalent in the server's encoding",
	"2200M": "not an XML document",
	"2200N": "not XML content",
	"22030": "duplicate JSON key",
	"23000": "constraint violated",
	"23001": "restricted by a reference",
	"23502": "null in a column that is not null",
	"23503": "foreign key violated",
	"23505": "duplicate key",
	"23514": "check violated",
	"23P01": "exclusion constraint violated",
	"44000": "view's check option violated",
	"54000": "row too big for the table or an index",
	"P0001": "refused by a trigger or function; the server's log has its text",
}

// reason describes a record error without the record's contents.
func reason(code, constraint string) string {
	text, ok := reasons[code]
	if !ok {
		text = "refused by the server"
	}
	if constraint != "" {
		text += fmt.Sprintf(" (constraint %q)", constraint)
	}
	return text
}

// A recordError stands for a server error whose text may quote a record. It does
// not unwrap to it, so that no log can show it.
type recordError struct{ code, text string }

func (e recordError) Error() string { return fmt.Sprintf("%s (SQLSTATE %s)", e.text, e.code) }

// scrub returns err as it may be shown: without the contents of records.
func scrub(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	if kindOfCode(e.Code) == sinks.Poison || strings.HasPrefix(e.Code, "21") {
		return recordError{e.Code, reason(e.Code, e.ConstraintName)}
	}
	return err
}

// advice says what to do about an error that stops the lane.
func advice(code string) string {
	switch code {
	case "42501":
		return "; grant what Script (walsink ledger --script) lists, and insert on the table"
	case "42P01", "3F000":
		return "; put the relation back from a backup that has the ledger too, or delete the lane's entry in the ledger and open accepting duplicates, which sends again what the log still has"
	case "42703":
		return "; put the column back, or name other columns"
	case "42804":
		return "; the column's type was changed; change it back, or open the sink anew"
	case "28P01", "28000":
		return "; check the role and its password"
	case "3D000", "57P04":
		return "; the database does not exist"
	}
	return ""
}
