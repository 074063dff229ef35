package postgres

import (
	"bytes"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// FuzzParseInt compares with exact arithmetic.
func FuzzParseInt(f *testing.F) {
	for _, s := range []string{"0", "-0", "1e3", "1.50", "9223372036854775807", "-9223372036854775808", "0.1e1", "1e-1", "100e-2", "00012", "1e19",
		"1" + strings.Repeat("0", 80) + "e-80", "1." + strings.Repeat("0", 80) + "1", "+5", ".5", "5.", "1e", "e1", "--1", "1.2.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, reason := parseInt([]byte(text))
		d, ok := parseDecimal([]byte(text))
		if !ok || len(text) > 200 || d.point > 1000 || d.point < -1000 || strings.ContainsAny(text, "eE") && len(text) > 60 {
			if !ok && reason == "" {
				t.Errorf("%q is %d and no decimal", text, n)
			}
			return
		}
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("%q was taken as %+v", text, d)
		}
		if fits := want.IsInt() && want.Num().IsInt64(); fits != (reason == "") || fits && want.Num().Int64() != n {
			t.Errorf("%q: %d, %q; exactly it is %v", text, n, reason, want)
		}
	})
}

func FuzzCheckFloat(f *testing.F) {
	for _, s := range []string{"1e400", "5e-324", "1e-400", "0e-999", "NaN", "Infinity", "1.5", "-.5", "3.4e38", "3.5e38"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if isSpecialFloat(text) || len(text) > 300 {
			return
		}
		for _, bits := range []int{32, 64} {
			_, err := strconv.ParseFloat(text, bits)
			if reason := checkFloat([]byte(text), bits); reason == "" && err != nil {
				t.Errorf("%q is taken for %d bits: %v", text, bits, err)
			}
		}
	})
}

// FuzzDateTime checks that what is taken is a time, and the one that was meant.
func FuzzDateTime(f *testing.F) {
	for _, s := range []string{"2024-02-29T23:59:59.9999999Z", "2024-12-31 00:00:00-08:00", "2024-12-31", "23:59:60", "24:00:00", "10000-01-01T00:00:00Z", "0000-01-01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, reason := appendDateTime(nil, []byte(text), kindTimestamptz)
		if reason != "" || strings.Contains(text, "infinity") {
			return
		}
		want, err := time.Parse("2006-01-02T15:04:05.999999999Z07:00", strings.Replace(strings.ToUpper(text), " ", "T", 1))
		if err != nil {
			return // a leap second, a year of five digits, 24:00, an offset without minutes
		}
		back, err := time.Parse("2006-01-02 15:04:05.999999Z07:00", string(got))
		if err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		if diff := want.Sub(back); diff < 0 || diff >= time.Microsecond {
			t.Errorf("%q became %q", text, got)
		}
	})
}

func TestP12TimesAreCutNotRounded(t *testing.T) {
	at := time.Date(2024, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	for oid, want := range map[uint32]string{
		pgtype.TimestamptzOID: "2024-12-31 23:59:59.999999Z", pgtype.TimestampOID: "2024-12-31 23:59:59.999999",
		pgtype.TimeOID: "23:59:59.999999", pgtype.DateOID: "2024-12-31",
	} {
		s := testSink(t, Options{}, col("a", oid))
		rec, err := s.AppendRow(nil, []any{at})
		if err != nil || string(rec) != want+"\n" {
			t.Errorf("%q, %v, want %q", rec, err, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add([]byte("a\\b\tc\nd\re\\."), []byte(`{"x,y\`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		line := append(appendEscaped(nil, a), '\t')
		line = append(appendNull(line, false), '\t')
		line = append(appendEscaped(line, b), '\n')
		got := fields(t, line)
		if len(got) != 3 || *got[0] != string(a) || got[1] != nil || *got[2] != string(b) {
			t.Errorf("%q became %q", []any{a, b}, line)
		}
		if why := badLine(line, 1<<20); why != "" {
			t.Errorf("%q: %s", line, why)
		}
	})
}

func FuzzElement(f *testing.F) {
	f.Add([]byte(`a"b\c,{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		quoted := appendElement(nil, text)
		if quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
			t.Fatalf("%q", quoted)
		}
		var got []byte
		for i := 1; i < len(quoted)-1; i++ {
			if quoted[i] == '"' {
				t.Fatalf("%q ends early", quoted)
			}
			if quoted[i] == '\\' {
				i++
			}
			got = append(got, quoted[i])
		}
		if !bytes.Equal(got, text) {
			t.Errorf("%q became %q", text, quoted)
		}
	})
}

func FuzzQuoting(f *testing.F) {
	f.Add(`a"b`, `it's \ here`)
	f.Fuzz(func(t *testing.T, name, text string) {
		if checkName(name) == nil {
			q := quote(name)
			if inner := q[1 : len(q)-1]; strings.Count(inner, `"`)%2 != 0 || strings.ReplaceAll(inner, `""`, `"`) != name {
				t.Errorf("name %q became %s", name, q)
			}
		}
		l := strings.TrimPrefix(strings.TrimPrefix(literal(text), " "), "E")
		inner := strings.ReplaceAll(l[1:len(l)-1], "''", "")
		if strings.Contains(strings.ReplaceAll(inner, `\\`, ""), `'`) || strings.Contains(strings.ReplaceAll(inner, `\\`, ""), `\`) {
			t.Errorf("text %q became %s", text, literal(text))
		}
	})
}

func TestE22RowsByType(t *testing.T) {
	type text string
	type number int
	null := (*int)(nil)
	for _, c := range []struct {
		oid  uint32
		v    any
		want string // ~ is null, ! is refused
	}{
		{pgtype.Int2OID, 1 << 40, "!"}, {pgtype.Int2OID, int16(7), "7"}, {pgtype.Int8OID, number(5), "5"}, {pgtype.Int4OID, null, "~"},
		{pgtype.Int4OID, new(int(3)), "3"}, {pgtype.Int4OID, 2.0, "2"}, {pgtype.Int4OID, 2.5, "!"}, {pgtype.Int4OID, true, "!"},
		{pgtype.Int8OID, uint64(1 << 63), "!"}, {pgtype.Float4OID, 1e300, "!"}, {pgtype.Float8OID, float32(0.5), "0.5"},
		{pgtype.TextOID, text("x"), "x"}, {pgtype.TextOID, 12, "12"}, {pgtype.TextOID, []byte("b"), "b"}, {pgtype.TextOID, struct{}{}, "!"},
		{pgtype.TextOID, "a\x00", "!"}, {pgtype.TextOID, []byte(nil), "~"}, {pgtype.BoolOID, true, "true"}, {pgtype.BoolOID, 1, "!"},
		{pgtype.ByteaOID, []byte{0, 255}, `\x00ff`}, {pgtype.ByteaOID, "AP8=", `\x00ff`}, {pgtype.NumericOID, pgtype.Numeric{Int: big.NewInt(125), Exp: -2, Valid: true}, "1.25"},
		{pgtype.UUIDOID, pgtype.UUID{Valid: true}, "00000000-0000-0000-0000-000000000000"}, {pgtype.UUIDOID, "x", "!"},
		{pgtype.TimestamptzOID, "2024-01-01", "!"}, {pgtype.TimestamptzOID, time.Time{}, "0001-01-01 00:00:00Z"}, {pgtype.TimestamptzOID, 5, "!"},
		{pgtype.JSONBOID, map[string]int{"a": 1}, `{"a":1}`}, {pgtype.JSONBOID, []int{1}, "[1]"}, {pgtype.JSONBOID, make(chan int), "!"},
		{pgtype.JSONBOID, "not json", "!"}, {pgtype.JSONBOID, 7, "7"}, {pgtype.JSONBOID, nil, "~"}, {pgtype.InetOID, "::1", "::1"},
		{pgtype.InetOID, 3 + 2i, "!"}, {pgtype.JSONOID, time.Unix(0, 0).UTC(), `"1970-01-01T00:00:00Z"`},
	} {
		s := testSink(t, Options{}, col("a", c.oid))
		rec, err := s.AppendRow(nil, []any{c.v})
		switch {
		case c.want == "!":
			if !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), `"a"`) {
				t.Errorf("%T %v for %d: %q, %v", c.v, c.v, c.oid, rec, err)
			}
		case err != nil:
			t.Errorf("%T %v for %d: %v", c.v, c.v, c.oid, err)
		default:
			if got := fields(t, rec)[0]; got == nil && c.want != "~" || got != nil && *got != c.want {
				t.Errorf("%T %v for %d: %q, want %q", c.v, c.v, c.oid, rec, c.want)
			}
		}
	}
}

func TestRowsOfArrays(t *testing.T) {
	type mood string
	for _, c := range []struct {
		v    any
		want string
	}{
		{[]string{"a", `b"c`}, `{"a","b\"c"}`}, {[]mood{"x"}, `{"x"}`}, {[][]string{{"a"}, {"b"}}, `{{"a"},{"b"}}`},
		{[]any{"a", nil}, `{"a",NULL}`}, {[]*string{nil}, `{NULL}`}, {[2]string{"a", "b"}, `{"a","b"}`}, {[]string{}, `{}`}, {`{x,y}`, `{x,y}`},
	} {
		s := testSink(t, Options{}, arrayOf("a", pgtype.TextArrayOID, pgtype.TextOID))
		rec, err := s.AppendRow(nil, []any{c.v})
		if err != nil {
			t.Errorf("%v: %v", c.v, err)
		} else if got := *fields(t, rec)[0]; got != c.want {
			t.Errorf("%v: %s, want %s", c.v, got, c.want)
		}
	}
	s := testSink(t, Options{}, arrayOf("a", pgtype.Int4ArrayOID, pgtype.Int4OID))
	if _, err := s.AppendRow(nil, []any{[]int{1, 1 << 40}}); !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), "element 1") {
		t.Errorf("overflow in an array: %v", err)
	}
}

func TestAppendDelete(t *testing.T) {
	b := col("b", pgtype.Int4OID)
	b.notNull = true
	s := testSink(t, Options{Mode: Upsert, Key: []string{"b", "a"}}, textColumn, b, col("c", pgtype.TextOID))
	rec, err := s.AppendDelete([]byte("x"), 7, "k")
	if err != nil || string(rec) != "xD\tk\t7\t\\N\n" {
		t.Errorf("%q, %v", rec, err)
	}
	for _, key := range [][]any{{7}, {nil, "k"}, {"x", "k"}} {
		if rec, err := s.AppendDelete([]byte("x"), key...); !errors.Is(err, ErrValue) || string(rec) != "x" {
			t.Errorf("key %v: %q, %v", key, rec, err)
		}
	}
	if rec, err := s.AppendRow(nil, []any{"k", 7, nil}); err != nil || string(rec) != "U\tk\t7\t\\N\n" {
		t.Errorf("%q, %v", rec, err)
	}
}
