package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/walsink/walsink/internal/campaign"
	"github.com/walsink/walsink/sinks/postgres"
)

// tupleTable has a column of every type that records hold in binary.
const tupleTable = `create type mood as enum ('ok', 'sad');
	create domain amount as numeric(20,4) check (value is distinct from 13);
	create table t (b boolean, s smallint, i int, l bigint, f real, d double precision, n numeric, a amount, x text,
	v varchar(30), c char(12), y bytea, dt date, tm time, ts timestamp(3), tz timestamptz, u uuid, j json, jb jsonb, e mood)`

// randomRow makes a JSON record for tupleTable in forms that the server reads too.
func randomRow(rnd *rand.Rand) string {
	number := func(bits int) string { return fmt.Sprint(int64(rnd.Uint64()) >> (64 - bits + rnd.IntN(bits))) }
	decimal := func() string {
		digits := fmt.Sprintf("%030d", rnd.Uint64())[rnd.IntN(29):]
		point := rnd.IntN(len(digits) + 1)
		text := strings.TrimLeft(digits[:point], "0")
		if text == "" {
			text = "0"
		}
		if point < len(digits) {
			text += "." + digits[point:]
		}
		if rnd.IntN(3) == 0 {
			text = "-" + text
		}
		return text
	}
	date := func() string {
		year := 1 + rnd.IntN(9999)
		if rnd.IntN(2) == 0 {
			year = 1990 + rnd.IntN(50)
		}
		return fmt.Sprintf("%04d-%02d-%02d", year, 1+rnd.IntN(12), 1+rnd.IntN(28))
	}
	clock := func() string {
		return fmt.Sprintf("%02d:%02d:%02d", rnd.IntN(24), rnd.IntN(60), rnd.IntN(61)) + []string{"", ".5", ".000001", ".123456"}[rnd.IntN(4)]
	}
	zone := []string{"Z", "+01:00", "-08:00", "+05:30", "-00:30"}[rnd.IntN(5)]
	text := []string{"", "plain", "a\\tb\\n", "\\\\N", "ä🎉", "it's", "\\u0001"}[rnd.IntN(7)]
	fields := map[string]string{
		"b": fmt.Sprint(rnd.IntN(2) == 0), "s": number(16), "i": number(32), "l": number(64),
		"f": fmt.Sprint(rnd.NormFloat64()), "d": fmt.Sprint(rnd.NormFloat64() * 1e100),
		"n": decimal() + []string{"", "e3", "E-7", "e+12"}[rnd.IntN(4)], "a": fmt.Sprintf("%d.123%02d", rnd.IntN(1e6)-5e5, rnd.IntN(100)),
		"x": `"` + text + `"`, "v": `"` + text + `"`, "c": `"` + text + `"`, "y": fmt.Sprintf(`"\\x%08x"`, rnd.Uint32()),
		"dt": `"` + date() + `"`, "tm": `"` + clock() + `"`, "ts": `"` + date() + " " + clock() + `"`,
		"tz": `"` + date() + "T" + clock() + zone + `"`, "u": fmt.Sprintf(`"%08x-0000-4000-8000-%012x"`, rnd.Uint32(), rnd.Uint32()),
		"j": `{"k" : [1, "` + text + `"]}`, "jb": `{"k" : [1.50, "` + text + `"]}`, "e": `"sad"`,
	}
	special := map[string]string{
		"f": `"NaN"`, "d": `"-Infinity"`, "n": `"NaN"`, "dt": `"infinity"`, "ts": `"-infinity"`, "tz": `"infinity"`, "tm": `"24:00:00"`,
	}
	var out []string
	for name, v := range fields {
		switch rnd.IntN(12) {
		case 0:
			v = "null"
		case 1:
			if s := special[name]; s != "" {
				v = s
			}
		}
		out = append(out, fmt.Sprintf("%q:%s", name, v))
	}
	return "{" + strings.Join(out, ",") + "}"
}

// TestTuplesHoldWhatTheServerReads puts random rows into a table as tuples, as text
// that was made of the tuples, and by the server's own reading of the same JSON.
func TestTuplesHoldWhatTheServerReads(t *testing.T) {
	d := newDB(t, tupleTable, "create table want (like t)")
	rows := 1000
	if campaign.Long() {
		rows = 200_000
	}
	s := d.open(postgres.Options{Table: "t"})
	if f := s.Info().Format; !strings.Contains(f, "binary") {
		t.Fatalf("format %q", f)
	}
	rnd := rand.New(rand.NewPCG(campaign.Seed(t), 7))
	lines := make([]string, rows)
	recs := make([][]byte, rows)
	var err error
	for i := range lines {
		lines[i] = randomRow(rnd)
		if recs[i], err = s.AppendJSON(nil, []byte(lines[i])); err != nil {
			t.Fatalf("%s: %v", lines[i], err)
		}
	}
	d.exec("insert into want select r.* from unnest($1::text[]) x, json_populate_record(null::want, x::json) r", lines)
	differ := `select x || ' ' || y from (
		(select 'too much' x, t::text y from t except all select 'too much', want::text from want) union all
		(select 'missing', want::text from want except all select 'missing', t::text from t)) z limit 5`

	lane := newTape("tuples", "0")
	lane.seal(recs...)
	nulls := []byte(strings.Repeat("\\N\t", 19) + "\\N\n")
	lane.seal(append(recs[:rows:rows], nulls)...)
	l, m := acquire(t, s, lane.id)
	m = flush(t, l, lane.step(m, 1))
	if bad := column[string](d, differ); len(bad) > 0 {
		t.Errorf("as tuples:\n%s", strings.Join(bad, "\n"))
	}
	d.exec("truncate t")
	flush(t, l, lane.step(m, 2))
	d.exec("insert into want default values")
	if bad := column[string](d, differ); len(bad) > 0 {
		t.Errorf("as text:\n%s", strings.Join(bad, "\n"))
	}
}

// TestLogOfAnEarlierShape opens a sink on what was logged before the table's types
// changed, and by a version that knew only text.
func TestLogOfAnEarlierShape(t *testing.T) {
	d := newDB(t, "create table t (id bigint, at timestamptz)")
	old := d.open(postgres.Options{Table: "t"})
	lane := newTape("orders", "0")
	rec, err := old.AppendRow(nil, []any{1, "2024-01-02T03:04:05Z"})
	if err != nil {
		t.Fatal(err)
	}
	lane.format = old.Info().Format
	lane.seal(rec)
	d.exec("alter table t alter id type double precision, alter at type text using at::text")
	s := d.open(postgres.Options{Table: "t"})
	lane.format = strings.TrimSuffix(strings.Replace(lane.format, "binary", "text", 1), " lz")
	lane.seal([]byte("2\tx\n"))
	for _, b := range lane.batches {
		if b.Format == s.Info().Format || !s.Takes(b.Format) {
			t.Errorf("format %q", b.Format)
		}
	}
	lane.format = s.Info().Format
	if rec, err = s.AppendRow(nil, []any{3.5, "y"}); err != nil {
		t.Fatal(err)
	}
	lane.seal(rec)
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 3))
	if got := column[string](d, "select id || ' ' || at from t order by id"); fmt.Sprint(got) != "[1 2024-01-02 03:04:05.000000Z 2 x 3.5 y]" {
		t.Errorf("rows %q", got)
	}
}

// TestTuplesWhateverTheEncoding has a role that speaks another encoding by default.
func TestTuplesWhateverTheEncoding(t *testing.T) {
	d := newDB(t, "create table t (x text)")
	dsn := d.role("latin", "t")
	d.exec("alter role latin_" + one[string](d, "select current_database()") + " set client_encoding to 'LATIN1'")
	s := d.openAt(dsn, postgres.Options{Table: "t"})
	rec, err := s.AppendRow(nil, []any{"ä€🎉"})
	if err != nil {
		t.Fatal(err)
	}
	lane := newTape("orders", "0")
	lane.seal(rec)
	l, m := acquire(t, s, lane.id)
	flush(t, l, lane.step(m, 1))
	if got := one[string](d, "select x from t"); got != "ä€🎉" {
		t.Errorf("row %q", got)
	}
}
