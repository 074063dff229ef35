package postgres

import (
	"bytes"
	"fmt"
	"io"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// tupleSink makes a sink whose records are tuples.
func tupleSink(t testing.TB, opts Options, columns ...column) *Sink {
	t.Helper()
	s := testSink(t, opts, columns...)
	s.form = form{mode: opts.Mode, columns: "0123", letters: lettersOf(columns)}
	if !s.tuples() {
		t.Fatal("a type is not written in binary")
	}
	return s
}

// asLine turns a record into a line, as a flush would.
func (s *Sink) asLine(rec []byte) (string, string) {
	l := liner{letters: []string{s.form.letters}, upsert: s.opts.Mode == Upsert, limit: s.opts.MaxRecord}
	line, why := l.line(0, rec)
	return string(line), why
}

// TestTuplesAreTheLines puts every value through both forms: as far as the server is
// concerned the tuple holds what the line holds.
func TestTuplesAreTheLines(t *testing.T) {
	same := strings.NewReplacer( // other spellings of the same value
		"1e131071", "1"+strings.Repeat("0", 131071), "2024-12-31 23:59:59+05:30", "2024-12-31 18:29:59.000000Z",
		"2024-12-31 23:59:59.5Z", "2024-12-31 23:59:59.500000", "5e-324", "5e-324", "-0.0", "-0")
	for _, c := range jsonCases {
		column := col("a", c.oid)
		if letters[column.typ.kind] == 0 {
			continue
		}
		in := []byte(`{"a":` + c.in + `}`)
		s := tupleSink(t, Options{}, column)
		rec, err := s.AppendJSON([]byte("before"), in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || string(rec) != "before" {
				t.Errorf("%d %s: %q, %v, want error %q", c.oid, c.in, rec, err, c.err)
			}
			continue
		}
		line, why := s.asLine(bytes.TrimPrefix(rec, []byte("before")))
		if err != nil || why != "" {
			t.Errorf("%d %s: %v, %s", c.oid, c.in, err, why)
			continue
		}
		want := c.want
		switch c.oid {
		case pgtype.TimestampOID, pgtype.TimestamptzOID, pgtype.NumericOID, pgtype.Float8OID:
			want = same.Replace(want)
		case pgtype.BoolOID:
			want = map[byte]string{'t': "true", 'f': "false"}[want[0]]
		}
		if c.oid == pgtype.TimestampOID && len(want) == 10 {
			want += " 00:00:00.000000"
		}
		if got := *fields(t, []byte(line))[0]; got != want {
			t.Errorf("%d %s: %q, want %q", c.oid, c.in, got, want)
		}
	}
}

func TestTupleRecords(t *testing.T) {
	upsert := Options{Mode: Upsert, Key: []string{"a"}, Tombstone: "gone"}
	for _, c := range []struct{ in, want string }{
		{`{"a":"k","n":7}`, "U\tk\t7\n"}, {`{"a":"k\ty"}`, "U\tk\\ty\t\\N\n"}, {`{"a":"k","n":7,"gone":true}`, "D\tk\t\\N\n"},
	} {
		s := tupleSink(t, upsert, textColumn, col("n", pgtype.Int4OID))
		rec, err := s.AppendJSON(nil, []byte(c.in))
		if line, why := s.asLine(rec); err != nil || why != "" || line != c.want {
			t.Errorf("%s: %q, %v, %s", c.in, line, err, why)
		}
	}
	s := tupleSink(t, upsert, textColumn, col("n", pgtype.Int4OID))
	rec, err := s.AppendDelete(nil, "k")
	if line, _ := s.asLine(rec); err != nil || line != "D\tk\t\\N\n" {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := s.AppendRow(nil, []any{nil, 1}); err == nil {
		t.Error("null key")
	}
}

// TestFormsOnlyTheServerReads makes lines among tuples.
// TestTupleOfVersion1 reads a tuple that is kept as a file: logs hold them.
func TestTupleOfVersion1(t *testing.T) {
	var columns []column
	for name, oid := range []uint32{
		pgtype.TextOID, pgtype.BoolOID, pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID,
		pgtype.ByteaOID, pgtype.DateOID, pgtype.TimeOID, pgtype.TimestampOID, pgtype.TimestamptzOID, pgtype.UUIDOID, pgtype.JSONOID, pgtype.JSONBOID,
	} {
		columns = append(columns, col(string(rune('a'+name)), oid))
	}
	columns = append(columns, column{name: "enum", typ: typ{enum: true}}, col("null", pgtype.TextOID))
	s := tupleSink(t, Options{}, columns...)
	if s.form.letters != "tbsilfdnxDTpzujJet" {
		t.Errorf("letters %q", s.form.letters)
	}
	text := `{"a":"ä","b":true,"c":-2,"d":70000,"e":-5000000000,"f":1.5,"g":-0.1,"h":-12345.0678,"i":"\\x00ff","j":"1999-12-31","k":"23:59:59.5",` +
		`"l":"2024-02-29T12:00:00","m":"1969-12-31T23:00:00.000001-01:00","n":"67e55044-10b1-426f-9247-bb680e5fe0c8","o":{"a":1},"p":[2],"enum":"ok"}`
	rec, err := s.AppendJSON(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("testdata/tuple-1.hex")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x\n", rec); got != string(kept) {
		t.Errorf("written now:\n%skept:\n%s", got, kept)
	}
	want := "ä\ttrue\t-2\t70000\t-5000000000\t1.5\t-0.1\t-12345.0678\t\\\\x00ff\t1999-12-31\t23:59:59.500000\t2024-02-29 12:00:00.000000\t" +
		"1970-01-01 00:00:00.000001Z\t67e55044-10b1-426f-9247-bb680e5fe0c8\t{\"a\":1}\t[2]\tok\t\\N\n"
	if line, why := s.asLine(rec); why != "" || line != want {
		t.Errorf("%q, %s", line, why)
	}
}

func TestFormsOnlyTheServerReads(t *testing.T) {
	for oid, v := range map[uint32]any{
		pgtype.TimestamptzOID: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC),
		pgtype.NumericOID:     strings.Repeat("123456789", 2000),
		pgtype.TimestampOID:   "999999-01-01 00:00:00",
	} {
		s := tupleSink(t, Options{}, col("a", oid), textColumn)
		rec, err := s.AppendRow(nil, []any{v, "x"})
		if err != nil || isTuple(rec) || !bytes.HasSuffix(rec, []byte("\tx\n")) {
			t.Errorf("%v: %.100q, %v", v, rec, err)
		}
	}
}

func TestTimesAsTuples(t *testing.T) {
	at := time.Date(1969, 12, 31, 23, 30, 59, 999_999_999, time.FixedZone("x", 3600))
	for oid, want := range map[uint32]string{
		pgtype.TimestamptzOID: "1969-12-31 22:30:59.999999Z", pgtype.TimestampOID: "1969-12-31 23:30:59.999999",
		pgtype.TimeOID: "23:30:59.999999", pgtype.DateOID: "1969-12-31",
	} {
		s := tupleSink(t, Options{}, col("a", oid))
		rec, err := s.AppendRow(nil, []any{at})
		if line, why := s.asLine(rec); err != nil || line != want+"\n" {
			t.Errorf("%q, %s, %v, want %q", line, why, err, want)
		}
	}
}

func TestForms(t *testing.T) {
	s := tupleSink(t, Options{}, textColumn, col("n", pgtype.Int8OID))
	if got := s.form.String(); got != "postgres copy binary 1 insert 0123 tl" {
		t.Errorf("form %q", got)
	}
	for text, want := range map[string]bool{
		s.form.String(): true, "postgres copy text 1 insert 0123": true, "postgres copy binary 1 insert 0123 iz": true,
		"postgres copy binary 1 insert 0123 t": false, "postgres copy binary 1 insert 0123 t?": false,
		"postgres copy binary 2 insert 0123 tl": false, "postgres copy text 1 upsert 0123": false,
		"postgres copy text 1 insert 0124": false, "": false, "bytes": false,
	} {
		if s.Takes(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	if lettersOf(make([]column, maxTuple+1)) != "" || lettersOf([]column{col("a", pgtype.InetOID)}) != "" {
		t.Error("tuples where there should be lines")
	}
}

func TestSourceOfTuples(t *testing.T) {
	s := tupleSink(t, Options{}, textColumn)
	tuple, err := s.AppendRow(nil, []any{"a\tb"})
	if err != nil {
		t.Fatal(err)
	}
	l := liner{letters: []string{"t"}, limit: 100}
	read := func(tuple bool, recs ...[]byte) (string, error) {
		src := newSource(runs(sinks.Run{Block: record.BlockOf(recs...)}, sinks.Run{First: 9, Block: record.BlockOf(recs[0])}), l, tuple)
		data, err := io.ReadAll(src)
		_ = src.close()
		return string(data), err
	}
	if got, err := read(true, tuple, tuple); err != nil || got != copyHead+strings.Repeat(string(tuple), 3)+copyTail {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := read(false, []byte("x\n"), tuple, tuple); err != nil || got != "x\na\\tb\na\\tb\nx\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := read(true, tuple, []byte("x\n")); err != errLine {
		t.Errorf("a line among tuples: %v", err)
	}
	for _, bad := range [][]byte{nil, {0}, {0, 2}, append(tuple, 0), tuple[:len(tuple)-1], {0, 1, 0, 0, 0}, {0, 1, 0x7f, 0xff, 0xff, 0xff}} {
		for _, form := range []bool{true, false} {
			if _, err := read(form, bad); sinks.KindOf(err) != sinks.Poison {
				t.Errorf("%x: %v", bad, err)
			}
		}
	}
}

func TestTuplesAllocateNothing(t *testing.T) {
	limit := 0.0
	if raceEnabled {
		limit = 4 // the race detector makes sync.Pool forget now and then
	}
	s := tupleSink(t, Options{}, textColumn, col("n", pgtype.Int8OID), col("f", pgtype.Float8OID), col("at", pgtype.TimestamptzOID),
		col("j", pgtype.JSONBOID), col("d", pgtype.NumericOID), col("u", pgtype.UUIDOID))
	line := []byte(`{"a":"some text\nmore","n":12345,"f":1.25,"at":"2024-01-02T03:04:05Z","j":{"k":[1,2,"x"]},"d":99.95,"u":"67e55044-10b1-426f-9247-bb680e5fe0c8"}`)
	row := []any{"some text", 5, 1.5, time.Now(), "{}", "99.95", "67e55044-10b1-426f-9247-bb680e5fe0c8"}
	dst := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := s.AppendJSON(dst, line); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AppendRow(dst, row); err != nil {
			t.Fatal(err)
		}
	}); n > limit {
		t.Errorf("%v allocations per record", n)
	}
}

// FuzzNumeric reads back what was written, and compares with exact arithmetic.
func FuzzNumeric(f *testing.F) {
	for _, s := range []string{"0", "-0.00", "1", "9999", "10000", "12345678.9", "0.0001", "0.00010", "1e10", "1.5e-7", "-120e3", "000123.4500", ".5", "5."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if checkNumeric([]byte(text)) != "" || isSpecialFloat(text) || len(text) > 200 {
			return
		}
		if d, _ := parseDecimal([]byte(text)); d.point > 1000 || d.point < -1000 {
			return
		}
		v, ok := appendNumeric(nil, []byte(text))
		got, rendered := renderNumeric(nil, v)
		if !ok || !rendered {
			t.Fatalf("%q: %v %v", text, ok, rendered)
		}
		want, _ := new(big.Rat).SetString(text)
		if have, ok := new(big.Rat).SetString(string(got)); !ok || want == nil || have.Cmp(want) != 0 {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// FuzzTuple feeds bytes that no encoder has made.
func FuzzTuple(f *testing.F) {
	s := tupleSink(f, Options{}, textColumn, col("n", pgtype.NumericOID), col("at", pgtype.TimestamptzOID), col("j", pgtype.JSONBOID), col("d", pgtype.DateOID))
	rec, err := s.AppendRow(nil, []any{"a", "1.5", "2024-01-01T00:00:00Z", "{}", nil})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(rec)
	f.Fuzz(func(t *testing.T, rec []byte) {
		if line, why := s.asLine(rec); why == "" && isTuple(rec) && badLine([]byte(line), 1<<30) != "" {
			t.Errorf("%x became %q", rec, line)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	columns := []column{col("id", pgtype.Int8OID), col("at", pgtype.TimestamptzOID), textColumn}
	row := []any{int64(12345), time.Now(), strings.Repeat("x", 80)}
	line := fmt.Appendf(nil, `{"id":12345,"at":"2024-01-02T03:04:05Z","a":"%080d"}`, 7)
	for name, s := range map[string]*Sink{"text": testSink(b, Options{}, columns...), "binary": tupleSink(b, Options{}, columns...)} {
		dst := make([]byte, 0, 1024)
		b.Run("row/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.AppendRow(dst, row); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("json/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.AppendJSON(dst, line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
