package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/postgres"
)

// allTypes has one column of every kind, with values that COPY by a driver is
// known to have trouble with.
var allTypes = []struct {
	sqlType string
	json    []string // values in a JSON record
	text    string   // how the server shows the last one
}{
	{"mood", []string{`"ok"`, `"sad"`}, "sad"},
	{"mood[]", []string{`["ok","sad"]`, `"{ok}"`, `["sad",null]`}, "{sad,NULL}"},
	{"shorttext", []string{`"abc"`}, "abc"},
	{"shorttext[]", []string{`["a","b c"]`}, `{a,"b c"}`},
	{"pair", []string{`"(1,x)"`, `"(2,\"y z\")"`}, `(2,"y z")`},
	{"pair[]", []string{`["(1,x)","(2,\"y z\")"]`}, `{"(1,x)","(2,\"y z\")"}`},
	{"jsonb[]", []string{`[{"a":1},[2],"s",null]`}, `{"{\"a\": 1}",[2],"\"s\"",NULL}`},
	{"json", []string{`{"a" : 1}`}, `{"a" : 1}`},
	{"jsonb", []string{`"x"`, `1`, `true`, `{"b":2,"a":12345678901234567890.25}`}, `{"a": 12345678901234567890.25, "b": 2}`},
	{"numeric", []string{`"NaN"`, `0.1`, `123456789012345678901234567890.5`}, "123456789012345678901234567890.5"},
	{"numeric(6,2)", []string{`1`, `1234.567`}, "1234.57"},
	{"numeric[]", []string{`["1.10", 2.20]`}, "{1.10,2.20}"},
	{"smallint", []string{`-32768`, `32767`}, "32767"},
	{"int", []string{`"7"`, `1e3`}, "1000"},
	{"bigint", []string{`9223372036854775807`}, "9223372036854775807"},
	{"real", []string{`"Infinity"`, `1e-45`}, "1e-45"},
	{"double precision", []string{`"NaN"`, `"-Infinity"`, `-0.0`, `5e-324`}, "5e-324"},
	{"boolean", []string{`true`, `false`}, "false"},
	{"text", []string{`"a\tb\n\\.\r"`, `12.50`, `""`}, ""},
	{"varchar(3)", []string{`"äöü"`, `"abc   "`}, "abc"},
	{"char(3)", []string{`"ab"`}, "ab"},
	{"name", []string{`"n"`}, "n"},
	{"\"char\"", []string{`"c"`}, "c"},
	{"bytea", []string{`"AAH/"`, `"\\x0001ff"`}, "\\x0001ff"},
	{"bytea[]", []string{`["AAH/"]`}, `{"\\x0001ff"}`},
	{"uuid", []string{`"67e55044-10b1-426f-9247-bb680e5fe0c8"`}, "67e55044-10b1-426f-9247-bb680e5fe0c8"},
	{"date", []string{`"infinity"`, `"2024-02-29"`}, "2024-02-29"},
	{"time", []string{`"23:59:59.9999999"`}, "23:59:59.999999"},
	{"timetz", []string{`"23:59:59+02"`}, "23:59:59+02"},
	{"timestamp", []string{`"2024-12-31T23:59:59.9999999Z"`}, "2024-12-31 23:59:59.999999"},
	{"timestamptz", []string{`"2024-12-31T23:59:59.9999999Z"`}, "2024-12-31 23:59:59.999999+00"},
	{"timestamptz[]", []string{`["2024-12-31T23:59:59+01:00"]`}, `{"2024-12-31 22:59:59+00"}`},
	{"interval", []string{`"1 day 02:03:04"`}, "1 day 02:03:04"},
	{"inet", []string{`"10.0.0.1/8"`, `"::1"`}, "::1/128"},
	{"cidr", []string{`"10.0.0.0/8"`}, "10.0.0.0/8"},
	{"macaddr", []string{`"08:00:2b:01:02:03"`}, "08:00:2b:01:02:03"},
	{"int4range", []string{`"[1,5)"`, `"empty"`}, "empty"},
	{"tstzrange", []string{`"[2024-01-01 00:00:00+00,)"`}, `["2024-01-01 00:00:00+00",)`},
	{"int4multirange", []string{`"{[1,3),[5,7)}"`}, "{[1,3),[5,7)}"},
	{"tsvector", []string{`"'a' 'b':2"`}, "'a' 'b':2"},
	{"xml", []string{`"<a>b</a>"`}, "<a>b</a>"},
	{"money", []string{`"12.50"`}, "$12.50"},
	{"bit(3)", []string{`"101"`}, "101"},
	{"varbit", []string{`"10101"`}, "10101"},
	{"point", []string{`"(1,2)"`}, "(1,2)"},
	{"box[]", []string{`["(1,2),(0,0)","(3,4),(2,2)"]`}, "{(1,2),(0,0);(3,4),(2,2)}"},
	{"int[]", []string{`[[1,2],[3,4]]`, `[]`}, "{}"},
	{"oid", []string{`42`}, "42"},
	{"citext", []string{`"MiXed"`}, "MiXed"},
}

const typesDDL = `create type mood as enum ('ok', 'sad');
	create domain shorttext as text check (length(value) < 5);
	create type pair as (n int, t text);
	create domain citext as text`

// TestP06P09P10P12P31EveryType puts every value through JSON, log form, COPY and
// the search for bad records, and reads it back.
func TestP06P09P10P12P31EveryType(t *testing.T) {
	d := newDB(t, typesDDL)
	for i, c := range allTypes {
		t.Run(c.sqlType, func(t *testing.T) {
			table := fmt.Sprintf("t%d", i)
			d.exec(fmt.Sprintf("create table %s (n serial, v %s)", table, c.sqlType))
			s := d.open(postgres.Options{Table: table})
			lane := newTape(table, "0")
			var recs [][]byte
			for _, v := range c.json {
				rec, err := s.AppendJSON(nil, []byte(`{"v":`+v+`}`))
				if err != nil {
					t.Fatalf("%s: %v", v, err)
				}
				recs = append(recs, rec)
			}
			lane.seal(recs...)
			lane.seal(append(recs, []byte("\\x9-no-value-of-most-types\n"))...)
			l, m := acquire(t, s, lane.id)
			m = flush(t, l, lane.step(m, 1))
			got := one[string](d, fmt.Sprintf("select v::text from %s order by n desc limit 1", table))
			if got != c.text {
				t.Errorf("server shows %q, want %q", got, c.text)
			}
			step := lane.step(m, 2)
			if _, err := l.Flush(testContext(t), step); err != nil {
				e, ok := errors.AsType[*sinks.Error](err)
				if !ok || e.Kind != sinks.Poison || fmt.Sprint(badNumbers(e)) != fmt.Sprintf("[%d]", len(recs)) {
					t.Errorf("bad record: %v", err)
				}
			}
		})
	}
}

// TestP07TypeIsNewerThanTheConnection makes the type and the table after the pool
// was used.
func TestP07TypeIsNewerThanTheConnection(t *testing.T) {
	d := newDB(t, plainTable)
	pool := d.pool(d.dsn)
	if err := pool.Ping(testContext(t)); err != nil {
		t.Fatal(err)
	}
	d.exec("create type fresh as enum ('a', 'b'); create table f (v fresh, w fresh[])")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s, err := postgres.Open(ctx, pool, postgres.Options{Table: "f"})
	if err != nil {
		t.Fatal(err)
	}
	d.exec("alter type fresh add value 'c'")
	type mood string
	lane := newTape("types", "0")
	for _, row := range [][]any{{"a", []string{"b"}}, {mood("c"), []mood{"a", "c"}}, {new(mood("b")), nil}} {
		rec, err := s.AppendRow(nil, row)
		if err != nil {
			t.Fatal(err)
		}
		lane.seal(rec)
	}
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 3))
	if got := column[string](d, "select coalesce(v::text, '') || coalesce(w::text, '') from f order by 1"); fmt.Sprint(got) != "[a{b} b c{a,c}]" {
		t.Errorf("rows %v", got)
	}
}

func TestE22ValuesThatCannotBeEncoded(t *testing.T) {
	d := newDB(t, "create table t (s smallint, i int, x text, n numeric(4,2), v varchar(3))")
	s := d.open(postgres.Options{Table: "t"})
	for i, row := range [][]any{
		{1 << 40, nil, nil, nil, nil}, {nil, math.NaN(), nil, nil, nil}, {nil, nil, struct{ A int }{1}, nil, nil},
		{nil, 1.5, nil, nil, nil}, {nil, "x", nil, nil, nil}, {nil, true, nil, nil, nil}, {nil, nil, nil, nil, "abcd"},
		{nil, uint64(math.MaxUint64), nil, nil, nil}, {nil, nil, make(chan int), nil, nil}, {nil, nil, nil, "1e", nil}, {nil},
	} {
		if _, err := s.AppendRow(nil, row); !errors.Is(err, postgres.ErrValue) {
			t.Errorf("row %d: %v", i, err)
		}
	}
	rec, err := s.AppendRow(nil, []any{int8(1), uint16(2), "x", 99.99, "äöü"})
	if err != nil {
		t.Fatal(err)
	}
	bad, err := s.AppendRow(nil, []any{nil, nil, nil, 100, nil}) // the server knows that this is over numeric(4,2)
	if err != nil {
		t.Fatal(err)
	}
	lane := newTape("types", "0")
	lane.seal(rec, bad)
	l, m := acquire(t, s, lane.id)
	if e := refuse(t, l, lane.step(m, 1), sinks.Poison); len(e.Bad) != 1 || e.Bad[0].Number != 1 || e.Bad[0].Code != "22003" {
		t.Errorf("bad records %+v", e.Bad)
	}
}

// TestP01P03P04Text puts random byte strings through a text and a jsonb column:
// what is taken is what is read back, and what is not is refused at once.
func TestP01P03P04Text(t *testing.T) {
	d := newDB(t, "create table t (id int, x text, v varchar, b bytea, j jsonb)")
	s := d.open(postgres.Options{Table: "t"})
	rnd := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"\x00", "\\", "\t", "\n", "\r", "\b", "ä", "🎉", "\xff", "\xed\xa0\x80", "a", "\"", "'", "\\.", "\\N", ","}
	want := make(map[int]string)
	lane := newTape("types", "0")
	var recs [][]byte
	for id := range 2000 {
		var b strings.Builder
		for range rnd.IntN(8) {
			b.WriteString(alphabet[rnd.IntN(len(alphabet))])
		}
		text := b.String()
		rec, err := s.AppendRow(nil, []any{id, text, text, []byte(text), map[string]string{"k": strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")}})
		if bad := strings.Contains(text, "\x00") || !utf8.ValidString(text); bad != (err != nil) {
			t.Fatalf("%q: %v", text, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), `column "x"`) {
				t.Fatalf("%q: %v", text, err)
			}
			continue
		}
		want[id] = text
		recs = append(recs, rec)
	}
	lane.seal(recs...)
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 1))
	rows, err := d.own.Query(t.Context(), "select id, x, v, b, j->>'k' from t")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id int
		var x, v, k string
		var b []byte
		if err := rows.Scan(&id, &x, &v, &b, &k); err != nil {
			t.Fatal(err)
		}
		if w := want[id]; x != w || v != w || string(b) != w || k != w {
			t.Errorf("row %d: %q %q %q %q, want %q", id, x, v, b, k, w)
		}
		n++
	}
	if n != len(want) || n == 0 {
		t.Errorf("%d rows, want %d", n, len(want))
	}
}

func TestP31JSONFromGo(t *testing.T) {
	d := newDB(t, "create table t (n serial, a json, b jsonb)")
	s := d.open(postgres.Options{Table: "t"})
	lane := newTape("types", "0")
	var recs [][]byte
	for _, v := range []any{`"x"`, `1`, `true`, `null`, []byte(`{"a":1}`), json.RawMessage(`[1]`), map[string]any{"m": 2}, 1.5, 7, true, []string{"l"}} {
		rec, err := s.AppendRow(nil, []any{v, v})
		if err != nil {
			t.Fatalf("%v: %v", v, err)
		}
		recs = append(recs, rec)
	}
	if _, err := s.AppendRow(nil, []any{`{`, nil}); !errors.Is(err, postgres.ErrValue) {
		t.Errorf("half an object: %v", err)
	}
	lane.seal(recs...)
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 1))
	got := column[string](d, "select b::text from t order by n")
	if want := `["x" 1 true null {"a": 1} [1] {"m": 2} 1.5 7 true ["l"]]`; fmt.Sprint(got) != want {
		t.Errorf("rows %v, want %s", got, want)
	}
}

func TestP33ManyColumns(t *testing.T) {
	d := newDB(t)
	const n = 1600
	var defs []string
	row := make([]any, n)
	for i := range n {
		defs = append(defs, fmt.Sprintf("c%d int", i))
		row[i] = i % 2
		if i%3 == 0 {
			row[i] = nil
		}
	}
	d.exec("create table t (" + strings.Join(defs, ",") + ")")
	s := d.open(postgres.Options{Table: "t"})
	rec, err := s.AppendRow(nil, row)
	if err != nil {
		t.Fatal(err)
	}
	lane := newTape("types", "0")
	lane.seal(rec, rec)
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 1))
	if got := one[int](d, "select count(*) from t where c1597 = 1"); got != 2 {
		t.Errorf("%d rows", got)
	}
}

func TestP33ManyRowsOfTwelveColumns(t *testing.T) {
	d := newDB(t, "create table t (a int, b int, c int, d int, e int, f int, g int, h int, i int, j int, k int, l int)")
	s := d.open(postgres.Options{Table: "t"})
	rec, err := s.AppendRow(nil, []any{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	if err != nil {
		t.Fatal(err)
	}
	lane := newTape("types", "0")
	l, m := acquire(t, s, lane.id)
	for i, n := range []int{5461, 5462, 100_000} {
		recs := make([][]byte, n)
		for i := range recs {
			recs[i] = rec
		}
		lane.seal(recs...)
		m = flush(t, l, lane.step(m, uint64(i+1)))
	}
	if got := one[int](d, "select count(*) from t"); got != 5461+5462+100_000 {
		t.Errorf("%d rows", got)
	}
}

func TestStructRows(t *testing.T) {
	d := newDB(t, "create table t (id bigint not null, user_name text, at timestamptz, tags text[], score numeric)")
	s := d.open(postgres.Options{Table: "t"})
	type event struct {
		ID       int64
		UserName *string
		At       time.Time
		Labels   []string `db:"tags"`
		Score    json.Number
		secret   int
		Skip     chan int `db:"-"`
	}
	enc, err := postgres.Rows[event](s)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2024, 12, 31, 23, 59, 59, 999_999_999, time.FixedZone("x", 3600))
	rec, err := enc(nil, event{ID: 1, UserName: new("u"), At: at, Labels: []string{"a", "b c"}, Score: "12345678901234567890.25", secret: 1})
	if err != nil {
		t.Fatal(err)
	}
	rec2, err := enc(nil, event{ID: 2, At: at, Score: "0"})
	if err != nil {
		t.Fatal(err)
	}
	lane := newTape("types", "0")
	lane.seal(rec, rec2)
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 1))
	got := column[string](d, "select format('%s %s %s %s %s', id, user_name, at at time zone 'UTC', tags, score) from t order by id")
	want := `[1 u 2024-12-31 22:59:59.999999 {a,"b c"} 12345678901234567890.25 2  2024-12-31 22:59:59.999999  0]`
	if fmt.Sprint(got) != want {
		t.Errorf("rows %v, want %s", got, want)
	}
	type missing struct{ UserName string }
	if _, err := postgres.Rows[missing](s); err == nil || !strings.Contains(err.Error(), `"id"`) {
		t.Errorf("struct without id: %v", err)
	}
	type extra struct{ ID, Nowhere int }
	if _, err := postgres.Rows[extra](s); err == nil || !strings.Contains(err.Error(), "Nowhere") {
		t.Errorf("struct with too much: %v", err)
	}
	if _, err := postgres.Rows[int](s); err == nil {
		t.Error("rows of int")
	}
	rows, err := postgres.Rows[[]any](s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rows(nil, []any{3, nil, nil, nil, nil}); err != nil {
		t.Error(err)
	}
}
