package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walsink/walsink/sinks"
)

func server(code, severity string) error {
	return &pgconn.PgError{Code: code, Severity: severity, SeverityUnlocalized: severity, Message: "secret-value"}
}

// P24: every error that the sink meets, in each phase.
func TestP24Classification(t *testing.T) {
	const (
		transient, ambiguous, permanent, poison = sinks.Transient, sinks.Ambiguous, sinks.Permanent, sinks.Poison
	)
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, c := range []struct {
		name                           string
		err                            error
		preparing, writing, committing sinks.Kind
	}{
		{"connection reset", reset, transient, transient, ambiguous},
		{"unexpected EOF", io.ErrUnexpectedEOF, transient, transient, ambiguous},
		{"connection refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, transient, transient, ambiguous},
		{"conn busy", errors.New("conn busy"), transient, transient, ambiguous},
		{"conn closed", errors.New("conn closed"), transient, transient, ambiguous},
		{"rolled back", errRolledBack, transient, transient, ambiguous},
		{"refused by us", fmt.Errorf("%w: why", errRefused), permanent, permanent, permanent},
		{"moved", &sinks.Error{Kind: sinks.Moved}, sinks.Moved, sinks.Moved, sinks.Moved},
		{"cancelled", context.Canceled, sinks.Cancelled, sinks.Cancelled, sinks.Cancelled},
		{"unique", server("23505", "ERROR"), permanent, poison, poison},
		{"not null", server("23502", "ERROR"), permanent, poison, poison},
		{"deferred foreign key", server("23503", "ERROR"), permanent, poison, poison},
		{"bad number", server("22P02", "ERROR"), permanent, poison, poison},
		{"overflow", server("22003", "ERROR"), permanent, poison, poison},
		{"raised", server("P0001", "ERROR"), permanent, poison, poison},
		{"row too big", server("54000", "ERROR"), permanent, poison, poison},
		{"too complex", server("54001", "ERROR"), permanent, permanent, permanent},
		{"deadlock", server("40P01", "ERROR"), transient, transient, transient},
		{"serialization", server("40001", "ERROR"), transient, transient, transient},
		{"completion unknown", server("40003", "ERROR"), transient, transient, ambiguous},
		{"resolution unknown", server("08007", "ERROR"), transient, transient, ambiguous},
		{"lock timeout", server("55P03", "ERROR"), transient, transient, transient},
		{"cancelled by somebody", server("57014", "ERROR"), transient, transient, transient},
		{"terminated", server("57P01", "FATAL"), transient, transient, ambiguous},
		{"crash shutdown", server("57P02", "FATAL"), transient, transient, ambiguous},
		{"starting up", server("57P03", "FATAL"), transient, transient, ambiguous},
		{"database dropped", server("57P04", "FATAL"), permanent, permanent, ambiguous},
		{"panic", server("XX000", "PANIC"), transient, transient, ambiguous},
		{"too many connections", server("53300", "FATAL"), transient, transient, ambiguous},
		{"disk full", server("53100", "ERROR"), transient, transient, transient},
		{"out of memory", server("53200", "ERROR"), transient, transient, transient},
		{"I/O error", server("58030", "ERROR"), transient, transient, transient},
		{"read only", server("25006", "ERROR"), transient, transient, transient},
		{"failed transaction", server("25P02", "ERROR"), transient, transient, transient},
		{"idle in transaction", server("25P03", "FATAL"), transient, transient, ambiguous},
		{"no statement", server("26000", "ERROR"), transient, transient, transient},
		{"no privilege", server("42501", "ERROR"), permanent, permanent, permanent},
		{"no table", server("42P01", "ERROR"), permanent, permanent, permanent},
		{"no column", server("42703", "ERROR"), permanent, permanent, permanent},
		{"no schema", server("3F000", "ERROR"), permanent, permanent, permanent},
		{"wrong password", server("28P01", "FATAL"), permanent, permanent, ambiguous},
		{"no database", server("3D000", "FATAL"), permanent, permanent, ambiguous},
		{"not supported", server("0A000", "ERROR"), permanent, permanent, permanent},
		{"data corrupted", server("XX001", "ERROR"), permanent, permanent, permanent},
		{"internal", server("XX000", "ERROR"), transient, transient, transient},
		{"unheard of", server("ZZ999", "ERROR"), permanent, permanent, permanent},
		{"no code", server("", "ERROR"), permanent, permanent, permanent},
	} {
		for at, want := range []sinks.Kind{c.preparing, c.writing, c.committing} {
			if got := classify(t.Context(), phase(at), c.err); got != want {
				t.Errorf("%s in phase %d: %v, want %v", c.name, at, got, want)
			}
		}
	}
}

func TestClassificationOfAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		err  error
		want sinks.Kind
	}{
		{errors.New("i/o timeout"), sinks.Cancelled},
		{server("57014", "ERROR"), sinks.Cancelled},
		{server("23505", "ERROR"), sinks.Poison}, // a definite answer wins
		{server("42P01", "ERROR"), sinks.Permanent},
	} {
		if got := classify(ctx, writing, c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestErrorsOfRecordsAreScrubbed(t *testing.T) {
	s := testSink(t, Options{}, textColumn)
	for _, code := range []string{"22P02", "22003", "23505", "23502", "44000", "P0001", "54000", "21000"} {
		e := s.fail(t.Context(), "flush", sinks.LaneID{}, writing, fmt.Errorf("copy: %w", server(code, "ERROR")))
		if strings.Contains(fmt.Sprintf("%v %+v %#v", e, e, e.Err), "secret-value") {
			t.Errorf("%s: %#v", code, e)
		}
	}
	if e := s.fail(t.Context(), "flush", sinks.LaneID{}, preparing, server("42P01", "ERROR")); !errors.Is(e, ErrTableMissing) || !strings.Contains(e.Error(), "backup") {
		t.Errorf("no advice in %v", e)
	}
}

func TestWhere(t *testing.T) {
	columns := []string{"a", "a b", "a: b", "line 3"}
	for _, c := range []struct {
		context, relation string
		line              uint64
		column            string
	}{
		{"COPY t, line 12, column a: \"x\"", "t", 12, "a"},
		{"COPY t, line 12, column a b: \"x\"", "t", 12, "a b"},
		{"COPY t, line 12, column a: b: \"x\"", "t", 12, "a: b"},
		{"COPY t, line 12, column line 3: \"x\"", "t", 12, "line 3"},
		{"COPY t, line 12, column a: null input", "t", 12, "a"},
		{"COPY t, line 12: \"1\tx\"", "t", 12, ""},
		{"COPY t, line 12", "t", 12, ""},
		{"COPY t7, line 12", "t7", 12, ""},
		{"COPY t, line 9, line 12", "t, line 9", 12, ""},
		{"COPY t, Zeile 12, Spalte a: »x«", "t", 12, "a"},
		{"PL/pgSQL function f() line 3\nCOPY t, line 12", "t", 12, ""},
		{"COPY other, line 12", "t", 0, ""},
		{"COPY t", "t", 0, ""},
		{"", "t", 0, ""},
	} {
		line, column := where(c.context, c.relation, columns)
		if line != c.line || column != c.column {
			t.Errorf("%q: line %d column %q", c.context, line, column)
		}
	}
}

func FuzzWhere(f *testing.F) {
	f.Add("COPY t, line 12, column a: \"x\"", "t", "a")
	f.Fuzz(func(t *testing.T, context, relation, column string) {
		line, got := where(context, relation, []string{column})
		if got != "" && got != column || got != "" && line == 0 && !strings.Contains(context, "0") {
			t.Errorf("line %d column %q", line, got)
		}
	})
}
