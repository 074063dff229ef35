package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// col makes a column of a built-in type.
func col(name string, oid uint32) column {
	return column{name: name, typ: typ{kind: kinds[oid], oid: oid, name: "its type", delim: ','}}
}

// arrayOf makes an array column.
func arrayOf(name string, oid, element uint32) column {
	e := typ{kind: kinds[element], oid: element, name: "element"}
	return column{name: name, typ: typ{kind: kindArray, oid: oid, name: "array", element: &e, delim: ','}}
}

// testSink makes a sink that has its columns from us, not from a server.
func testSink(t testing.TB, opts Options, columns ...column) *Sink {
	t.Helper()
	if opts.Table == "" {
		opts.Table = "t"
	}
	opts, err := opts.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := &Sink{opts: opts, ledger: newLedger(opts.Ledger)}
	s.table = table{name: `"public"."t"`, plain: "public.t", relname: "t", columns: columns,
		index: make(map[string]int), skipped: map[string]string{"id": "is an identity column"}}
	for i, c := range columns {
		s.table.index[c.name] = i
	}
	return s
}

// fields undoes COPY's text format: the fields of one line, nil for null.
func fields(t testing.TB, line []byte) []*string {
	t.Helper()
	if len(line) == 0 || line[len(line)-1] != '\n' {
		t.Fatalf("record %q has no end", line)
	}
	var out []*string
	var text []byte
	null := false
	emit := func() {
		if null {
			out = append(out, nil)
		} else {
			s := string(text)
			out = append(out, &s)
		}
		text, null = nil, false
	}
	for i := 0; i < len(line)-1; i++ {
		switch c := line[i]; {
		case c == '\n':
			t.Fatalf("record %q is two lines", line)
		case c == '\t':
			emit()
		case c == '\\':
			i++
			switch line[i] {
			case 'N':
				null = true
			case 't':
				text = append(text, '\t')
			case 'n':
				text = append(text, '\n')
			case 'r':
				text = append(text, '\r')
			case '\\':
				text = append(text, '\\')
			default:
				t.Fatalf("record %q has the escape %q", line, line[i])
			}
		default:
			text = append(text, c)
		}
	}
	emit()
	return out
}

var textColumn = col("a", pgtype.TextOID)
