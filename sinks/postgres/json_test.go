package postgres

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

// jsonCase is a value for one column: what comes out, or a part of the error.
type jsonCase struct {
	oid       uint32
	in        string
	want, err string
}

var jsonCases = []jsonCase{
	{pgtype.TextOID, `"a\tb\nc\\d\r\"\u00e4"`, "a\tb\nc\\d\r\"ä", ""},
	{pgtype.TextOID, `12.50`, "12.50", ""},
	{pgtype.TextOID, `true`, "true", ""},
	{pgtype.TextOID, `{}`, "", "array or object"},
	{pgtype.TextOID, `"a\u0000b"`, "", "NUL character at byte 1"},
	{pgtype.TextOID, `"\ud800"`, "", "half a surrogate pair"},
	{pgtype.TextOID, `"\ud83c\udf89"`, "🎉", ""},
	{pgtype.TextOID, `"\\u0000"`, `\u0000`, ""},
	{pgtype.TextOID, `"\\."`, `\.`, ""},
	{pgtype.TextOID, `"\\N"`, `\N`, ""},
	{pgtype.TextOID, `""`, "", ""},
	{pgtype.BoolOID, `true`, "true", ""},
	{pgtype.BoolOID, `"f"`, "f", ""},
	{pgtype.BoolOID, `1`, "", "where text is wanted"},
	{pgtype.BoolOID, `"maybe"`, "", "not true or false"},
	{pgtype.Int2OID, `32767`, "32767", ""},
	{pgtype.Int2OID, `-32768`, "-32768", ""},
	{pgtype.Int2OID, `32768`, "", "out of range of 16 bits"},
	{pgtype.Int2OID, `1099511627776`, "", "out of range"},
	{pgtype.Int4OID, `1.0`, "1", ""},
	{pgtype.Int4OID, `12e2`, "1200", ""},
	{pgtype.Int4OID, `1200e-2`, "12", ""},
	{pgtype.Int4OID, `1.5`, "", "not a whole number"},
	{pgtype.Int4OID, `"17"`, "17", ""},
	{pgtype.Int4OID, `"NaN"`, "", "not a number"},
	{pgtype.Int4OID, `"1_000"`, "", "not a number"},
	{pgtype.Int4OID, `true`, "", "true or false"},
	{pgtype.Int8OID, `9223372036854775807`, "9223372036854775807", ""},
	{pgtype.Int8OID, `-9223372036854775808`, "-9223372036854775808", ""},
	{pgtype.Int8OID, `9223372036854775808`, "", "out of range"},
	{pgtype.Int8OID, `1e300`, "", "out of range"},
	{pgtype.Int8OID, `1e-300`, "", "not a whole number"},
	{pgtype.Int8OID, `0e99999999`, "0", ""},
	{pgtype.Int8OID, `-0`, "0", ""},
	{pgtype.Int8OID, `1e99999999999999999999`, "", "not a number"},
	{pgtype.Float4OID, `3.5e38`, "", "out of range"},
	{pgtype.Float4OID, `1e-60`, "", "too small"},
	{pgtype.Float4OID, `1.5`, "1.5", ""},
	{pgtype.Float8OID, `0.1`, "0.1", ""},
	{pgtype.Float8OID, `-0.0`, "-0.0", ""},
	{pgtype.Float8OID, `5e-324`, "5e-324", ""},
	{pgtype.Float8OID, `1e-400`, "", "too small"},
	{pgtype.Float8OID, `1e400`, "", "out of range"},
	{pgtype.Float8OID, `"NaN"`, "NaN", ""},
	{pgtype.Float8OID, `"-Infinity"`, "-Infinity", ""},
	{pgtype.Float8OID, `"0x10"`, "", "not a number"},
	{pgtype.NumericOID, `123456789012345678901234567890.123456789`, "123456789012345678901234567890.123456789", ""},
	{pgtype.NumericOID, `1e131071`, "1e131071", ""},
	{pgtype.NumericOID, `1e131072`, "", "out of range"},
	{pgtype.NumericOID, `1e-20000`, "", "too many digits"},
	{pgtype.NumericOID, `"12,5"`, "", "not a number"},
	{pgtype.ByteaOID, `"aGk="`, `\x6869`, ""},
	{pgtype.ByteaOID, `"\\x6869"`, `\x6869`, ""},
	{pgtype.ByteaOID, `"\\x686"`, "", "not hexadecimal"},
	{pgtype.ByteaOID, `"!"`, "", "neither base64"},
	{pgtype.DateOID, `"2024-02-29"`, "2024-02-29", ""},
	{pgtype.DateOID, `"2023-02-29"`, "", "not a date"},
	{pgtype.DateOID, `"now"`, "", "not a date"},
	{pgtype.DateOID, `"infinity"`, "infinity", ""},
	{pgtype.DateOID, `20240229`, "", "where text is wanted"},
	{pgtype.TimeOID, `"23:59:59.9999999"`, "23:59:59.999999", ""},
	{pgtype.TimeOID, `"24:00:01"`, "", "not a time"},
	{pgtype.TimestamptzOID, `"2024-12-31T23:59:59.9999999Z"`, "2024-12-31 23:59:59.999999Z", ""},
	{pgtype.TimestamptzOID, `"2024-12-31 23:59:59+05:30"`, "2024-12-31 23:59:59+05:30", ""},
	{pgtype.TimestamptzOID, `"2024-12-31T23:59:59"`, "", "no time zone"},
	{pgtype.TimestamptzOID, `"2024-12-31T23:59:59.Z"`, "", "not a time"},
	{pgtype.TimestampOID, `"2024-12-31T23:59:59.5Z"`, "2024-12-31 23:59:59.5Z", ""},
	{pgtype.TimestampOID, `"2024-12-31"`, "2024-12-31", ""},
	{pgtype.TimestampOID, `"2024-12-31T23:59:59+01:00"`, "", "time zone other than Z"},
	{pgtype.TimestampOID, `"31/12/2024"`, "", "not a time"},
	{pgtype.UUIDOID, `"67e55044-10b1-426f-9247-bb680e5fe0c8"`, "67e55044-10b1-426f-9247-bb680e5fe0c8", ""},
	{pgtype.UUIDOID, `"67e55044-10b1-426f-9247-bb680e5fe0c"`, "", "not a UUID"},
	{pgtype.JSONOID, `{"a":"\u0000"}`, `{"a":"\u0000"}`, ""},
	{pgtype.JSONBOID, `{"a":"\u0000"}`, "", "NUL character"},
	{pgtype.JSONBOID, `{"a":"\ud800"}`, "", "half a surrogate pair"},
	{pgtype.JSONBOID, `{"a":"\\u0000"}`, `{"a":"\\u0000"}`, ""},
	{pgtype.JSONBOID, `"x"`, `"x"`, ""},
	{pgtype.JSONBOID, `12345678901234567890.5`, `12345678901234567890.5`, ""},
	{pgtype.InetOID, `"10.0.0.1/8"`, "10.0.0.1/8", ""},
	{pgtype.Int4rangeOID, `"[1,5)"`, "[1,5)", ""},
	{pgtype.InetOID, `{"a":1}`, "", "array or object"},
}

func TestAppendJSONByType(t *testing.T) {
	for _, c := range jsonCases {
		t.Run(fmt.Sprintf("%d %s", c.oid, c.in), func(t *testing.T) {
			s := testSink(t, Options{}, col("a", c.oid))
			dst := []byte("before")
			rec, err := s.AppendJSON(dst, []byte(`{"a": `+c.in+`}`))
			if c.err != "" {
				if !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), `column "a"`) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				if string(rec) != "before" {
					t.Errorf("dst is %q after an error", rec)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := fields(t, bytes.TrimPrefix(rec, []byte("before"))); len(got) != 1 || *got[0] != c.want {
				t.Errorf("record %q, want %q", rec, c.want)
			}
		})
	}
}

func TestAppendJSONArrays(t *testing.T) {
	for _, c := range []struct {
		column    column
		in        string
		want, err string
	}{
		{arrayOf("a", pgtype.Int4ArrayOID, pgtype.Int4OID), `[1, null, 3]`, `{"1",NULL,"3"}`, ""},
		{arrayOf("a", pgtype.Int4ArrayOID, pgtype.Int4OID), `[[1,2],[3,4]]`, `{{"1","2"},{"3","4"}}`, ""},
		{arrayOf("a", pgtype.Int4ArrayOID, pgtype.Int4OID), `[]`, `{}`, ""},
		{arrayOf("a", pgtype.Int4ArrayOID, pgtype.Int4OID), `"{1,2}"`, `{1,2}`, ""},
		{arrayOf("a", pgtype.Int4ArrayOID, pgtype.Int4OID), `[1, "x"]`, "", "not a number"},
		{arrayOf("a", pgtype.Int4ArrayOID, pgtype.Int4OID), `5`, "", "where text is wanted"},
		{arrayOf("a", pgtype.TextArrayOID, pgtype.TextOID), `["a\"b", "c\\d", "NULL", ""]`, `{"a\"b","c\\d","NULL",""}`, ""},
		{arrayOf("a", pgtype.TextArrayOID, pgtype.TextOID), `["\u0000"]`, "", "NUL"},
		{arrayOf("a", pgtype.JSONBArrayOID, pgtype.JSONBOID), `[{"k":[1]}, [2]]`, `{"{\"k\":[1]}","[2]"}`, ""},
		{arrayOf("a", pgtype.TextArrayOID, pgtype.TextOID), `[[[[[[[1]]]]]]]`, "", "6 dimensions"},
	} {
		s := testSink(t, Options{}, c.column)
		rec, err := s.AppendJSON(nil, []byte(`{"a":`+c.in+`}`))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
		} else if got := fields(t, rec); *got[0] != c.want {
			t.Errorf("%s: %q, want %q", c.in, *got[0], c.want)
		}
	}
}

func TestAppendJSONObjects(t *testing.T) {
	required := col("b", pgtype.TextOID)
	required.notNull = true
	rest := col("rest", pgtype.JSONBOID)
	for _, c := range []struct {
		opts    Options
		columns []column
		in      string
		want    string // fields joined by '|', ~ for null
		err     string
	}{
		{Options{}, []column{textColumn, col("b", pgtype.Int4OID)}, ` { "b" : 1 , "a" : "x" } `, "x|1", ""},
		{Options{}, []column{textColumn, col("b", pgtype.Int4OID)}, `{}`, "~|~", ""},
		{Options{}, []column{textColumn, col("b", pgtype.Int4OID)}, `{"a":null}`, "~|~", ""},
		{Options{}, []column{textColumn, required}, `{"a":"x"}`, "", "takes no null"},
		{Options{}, []column{textColumn, required}, `{"b":null}`, "", "takes no null"},
		{Options{}, []column{textColumn}, `{"a":1,"a":2}`, "", "given twice"},
		{Options{}, []column{textColumn}, `{"c":1}`, "", `public.t has no such column`},
		{Options{}, []column{textColumn}, `{"id":1}`, "", "is an identity column"},
		{Options{}, []column{textColumn}, `{"\u0061":1}`, "1", ""},
		{Options{}, []column{textColumn}, `[1]`, "", "not a JSON object"},
		{Options{}, []column{textColumn}, `{"a":1} x`, "", "more after"},
		{Options{}, []column{textColumn}, `{"a":1,}`, "", "not JSON"},
		{Options{}, []column{textColumn}, `{"a":01}`, "", "not JSON"},
		{Options{}, []column{textColumn}, `{"a":"\x"}`, "", "not JSON"},
		{Options{}, []column{textColumn}, "{\"a\":\"\xff\"}", "", "invalid UTF-8"},
		{Options{}, []column{textColumn}, "{\"\xff\":1}", "", "not UTF-8"},
		{Options{Rest: "rest"}, []column{textColumn, rest}, `{"x":[1,2],"a":"v","y":"z"}`, `v|{"x":[1,2],"y":"z"}`, ""},
		{Options{Rest: "rest"}, []column{textColumn, rest}, `{"a":"v"}`, `v|~`, ""},
		{Options{Rest: "rest"}, []column{textColumn, rest}, `{"a":"v","rest":{},"x":1}`, ``, "given, but"},
		{Options{Rest: "rest"}, []column{textColumn, rest}, `{"x":"\u0000"}`, ``, "NUL"},
		{Options{Mode: Upsert, Key: []string{"a"}, Tombstone: "_gone"}, []column{textColumn, required}, `{"a":"k","b":"v"}`, "U|k|v", ""},
		{Options{Mode: Upsert, Key: []string{"a"}, Tombstone: "_gone"}, []column{textColumn, required}, `{"a":"k","b":"v","_gone":true}`, "D|k|~", ""},
		{Options{Mode: Upsert, Key: []string{"a"}, Tombstone: "_gone"}, []column{textColumn, required}, `{"a":"k","b":"v","_gone":false}`, "U|k|v", ""},
		{Options{Mode: Upsert, Key: []string{"a"}, Tombstone: "_gone"}, []column{textColumn, required}, `{"_gone":true}`, "", "takes no null"},
	} {
		rec, err := testSink(t, c.opts, c.columns...).AppendJSON(nil, []byte(c.in))
		if c.err != "" {
			if !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		var got []string
		for _, f := range fields(t, rec) {
			if f == nil {
				got = append(got, "~")
			} else {
				got = append(got, *f)
			}
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s: %v, want %s", c.in, got, c.want)
		}
	}
}

func TestP04EveryByteAsText(t *testing.T) {
	s := testSink(t, Options{}, textColumn)
	for b := range 256 {
		text := string([]byte{byte(b)})
		rec, err := s.AppendRow(nil, []any{text})
		if bad := b == 0 || !utf8.ValidString(text); bad {
			if !errors.Is(err, ErrValue) {
				t.Errorf("byte %#x: %v", b, err)
			}
		} else if err != nil || *fields(t, rec)[0] != text {
			t.Errorf("byte %#x: %q, %v", b, rec, err)
		}
	}
}

func TestP39RecordCap(t *testing.T) {
	s := testSink(t, Options{MaxRecord: 1000}, textColumn)
	for n, ok := range map[int]bool{998: true, 999: true, 1000: false} { // and the end of the line
		for _, f := range []func() ([]byte, error){
			func() ([]byte, error) { return s.AppendRow([]byte("x"), []any{strings.Repeat("a", n)}) },
			func() ([]byte, error) {
				return s.AppendJSON([]byte("x"), fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("a", n)))
			},
		} {
			if _, err := f(); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "the limit is 1000") {
				t.Errorf("%d bytes: %v", n+1, err)
			}
		}
	}
	if got := badLine(append(bytes.Repeat([]byte("a"), 1000), '\n'), 1000); got == "" {
		t.Error("a longer line passes")
	}
}

func TestAppendJSONAllocatesNothing(t *testing.T) {
	limit := 0.0
	if raceEnabled {
		limit = 4 // the race detector makes sync.Pool forget now and then
	}
	s := testSink(t, Options{}, textColumn, col("n", pgtype.Int8OID), col("f", pgtype.Float8OID), col("at", pgtype.TimestamptzOID),
		col("j", pgtype.JSONBOID), col("d", pgtype.NumericOID))
	line := []byte(`{"a":"some text\nmore","n":12345,"f":1.25,"at":"2024-01-02T03:04:05Z","j":{"k":[1,2,"x"]},"d":99.95}`)
	dst := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := s.AppendJSON(dst, line); err != nil {
			t.Fatal(err)
		}
	}); n > limit {
		t.Errorf("%v allocations per record", n)
	}
}

// FuzzScanner compares our reader of JSON with that of the standard library.
func FuzzScanner(f *testing.F) {
	for _, c := range jsonCases {
		f.Add([]byte(c.in))
	}
	f.Add([]byte(`{"a":[1,{"b":null}],"c":"\u12"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Count(text, []byte{'['})+bytes.Count(text, []byte{'{'}) > maxDepth {
			return // nested deeper than we read
		}
		if got, want := isJSON(text), json.Valid(text); got != want {
			t.Errorf("isJSON(%q) = %v, want %v", text, got, want)
		}
	})
}

// FuzzAppendJSON reads back what the encoder made of a line.
func FuzzAppendJSON(f *testing.F) {
	f.Add([]byte(`{"a":"x\ty","n":12,"j":{"k":"\\u0000"},"v":["q\"",null],"z":1}`))
	f.Add([]byte(`{"a":null,"rest":{}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s := testSink(t, Options{Rest: "rest"}, textColumn, col("n", pgtype.Int8OID), col("j", pgtype.JSONBOID),
			arrayOf("v", pgtype.TextArrayOID, pgtype.TextOID), col("rest", pgtype.JSONBOID))
		rec, err := s.AppendJSON(nil, line)
		if err != nil {
			if !errors.Is(err, ErrValue) || len(rec) != 0 {
				t.Errorf("%q: %v, %q", line, err, rec)
			}
			return
		}
		if why := badLine(rec, 1<<20); why != "" {
			t.Fatalf("%q: %s", rec, why)
		}
		got := fields(t, rec)
		var want struct {
			A json.RawMessage
			J json.RawMessage
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatalf("%q was taken: %v", line, err)
		}
		var a string
		if json.Unmarshal(want.A, &a) == nil && want.A != nil && string(want.A) != "null" && bytes.Count(line, []byte(`"a"`)) == 1 &&
			!bytes.Contains(line, []byte(`"A"`)) && !bytes.Contains(line, []byte(`u00`)) && got[0] != nil && *got[0] != a {
			t.Errorf("%q: text %q, want %q", line, *got[0], a)
		}
		for _, i := range []int{2, 4} {
			if got[i] != nil && !json.Valid([]byte(*got[i])) {
				t.Errorf("%q: %q is not JSON", line, *got[i])
			}
		}
	})
}

func TestAppendJSONEveryPrefix(t *testing.T) {
	s := testSink(t, Options{}, textColumn, arrayOf("v", pgtype.TextArrayOID, pgtype.TextOID))
	line := []byte(`{"a":"xä\ud83c\udf89\n","v":["q",null,[true]]}`)
	for i := range line {
		if rec, err := s.AppendJSON(nil, line[:i]); !errors.Is(err, ErrValue) {
			t.Errorf("%q: %q, %v", line[:i], rec, err)
		}
	}
}
