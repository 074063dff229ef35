package sources

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// csvOracle reads a table with encoding/csv, as records of ours.
func csvOracle(t testing.TB, data []byte, comma rune) []string {
	t.Helper()
	r := csv.NewReader(bytes.NewReader(data))
	r.Comma = comma
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var recs []string
	for _, row := range rows[1:] {
		recs = append(recs, objectOf(t, rows[0], row))
	}
	return recs
}

func objectOf(t testing.TB, names, values []string) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i := range names {
		b.WriteByte("{,"[min(i, 1)])
		for j, s := range []string{names[i], values[i]} {
			if err := e.Encode(s); err != nil {
				t.Fatal(err)
			}
			b.Truncate(b.Len() - 1)
			if j == 0 {
				b.WriteByte(':')
			}
		}
	}
	return b.String() + "}"
}

func TestCSVFiles(t *testing.T) {
	for name, rows := range map[string]int{"birdstrikes.csv": 10000, "airports.csv": 3376} {
		t.Run(name, func(t *testing.T) {
			path := "../examples/data/" + name
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(t, CSV(path, Options{}), nil, 500)
			if err != nil || len(got) != rows {
				t.Fatalf("%d rows, %v; want %d", len(got), err, rows)
			}
			if want := csvOracle(t, data, ','); !slices.Equal(got, want) {
				for i := range want {
					if got[i] != want[i] {
						t.Fatalf("row %d:\n got %s\nwant %s", i, got[i], want[i])
					}
				}
			}
		})
	}
}

func TestCSVRows(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"plain":               {"a,b\n1,2\n3,4\n", []string{`{"a":"1","b":"2"}`, `{"a":"3","b":"4"}`}},
		"no last newline":     {"a,b\n1,2", []string{`{"a":"1","b":"2"}`}},
		"CRLF":                {"a,b\r\n1,2\r\n", []string{`{"a":"1","b":"2"}`}},
		"byte order mark":     {"\xef\xbb\xbfa,b\n1,2\n", []string{`{"a":"1","b":"2"}`}},
		"empty fields":        {"a,b,c\n,,\n,x,\n", []string{`{"a":"","b":"","c":""}`, `{"a":"","b":"x","c":""}`}},
		"empty last field":    {"a,b\n1,", []string{`{"a":"1","b":""}`}},
		"quoted comma":        {"a,b\n\"1,5\",2\n", []string{`{"a":"1,5","b":"2"}`}},
		"quoted quote":        {"a\n\"say \"\"hi\"\"\"\n", []string{`{"a":"say \"hi\""}`}},
		"quoted empty":        {"a,b\n\"\",\"\"\n", []string{`{"a":"","b":""}`}},
		"line break":          {"a,b\n\"x\ny\",\"p\r\nq\"\n", []string{`{"a":"x\ny","b":"p\r\nq"}`}},
		"quoted at the end":   {"a\n\"x\"", []string{`{"a":"x"}`}},
		"blank lines":         {"a,b\n\n1,2\n\r\n3,4\n\n", []string{`{"a":"1","b":"2"}`, `{"a":"3","b":"4"}`}},
		"quoted header":       {"\"a,x\",\"b\ny\"\n1,2\n", []string{`{"a,x":"1","b\ny":"2"}`}},
		"controls":            {"a\n\x01\t\\\x7f\n", []string{`{"a":"\u0001\t\\` + "\x7f" + `"}`}},
		"html and separators": {"a\n<&>\u2028\n", []string{"{\"a\":\"<&>\u2028\"}"}},
		"header only":         {"a,b\n", nil},
		"empty":               {"", nil},
		"spaces are kept":     {"a , b\n 1,2 \n", []string{`{"a ":" 1"," b":"2 "}`}},
		"lone CR":             {"a\nx\ry\n", []string{`{"a":"x\ry"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "in.csv", c.in)
			resumeEverywhere(t, func() Source { return CSV(path, Options{}) }, c.want)
			for _, rec := range c.want {
				if !json.Valid([]byte(rec)) {
					t.Errorf("%s is not JSON", rec)
				}
			}
		})
	}
}

func TestTSV(t *testing.T) {
	path := write(t, "in.tsv", "a\tb\n1,5\t\"x\ty\"\n")
	resumeEverywhere(t, func() Source { return TSV(path, Options{}) }, []string{`{"a":"1,5","b":"x\ty"}`})
}

func TestCSVErrors(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"duplicate name":  {"a,b,a\n1,2,3\n", `:1: offset 0: header: columns 1 and 3 are both called "a"`},
		"empty name":      {"a,,c\n1,2,3\n", `:1: offset 0: header: column 2 has no name`},
		"blank header":    {"\na,b\n1,2\n", `:1: offset 0: header: column 1 has no name`},
		"too few":         {"a,b\n1,2\n3\n", `:3: offset 8: 1 fields, the header has 2`},
		"too many":        {"a,b\n1,2,3\n", `:2: offset 4: more than the 2 fields of the header`},
		"bare quote":      {"a,b\nx\"y,2\n", `:2: offset 4: column 2: quote inside a field that does not begin with one`},
		"after the quote": {"a,b\n\"x\"y,2\n", `:2: offset 4: column 4: text after the closing quote of a field`},
		"not closed":      {"a,b\n\"x,2\n3,4\n", `:2: offset 4: quoted field is not closed at the end of the file`},
		"not UTF-8":       {"a\n\xff\n", `:2: offset 2: field is not UTF-8`},
		"after blank":     {"a\n\n\n\xff\n", `:4: offset 4: field is not UTF-8`},
		"after a break":   {"a\n\"1\n2\"\n\xff\n", `:4: offset 8: field is not UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "in.csv", c.in)
			_, err := readAll(t, CSV(path, Options{}), nil, 1)
			if err == nil || err.Error() != path+c.want {
				t.Errorf("error %v\nwant  %s", err, path+c.want)
			}
		})
	}
}

// TestCSVRandom writes tables with encoding/csv and reads them back, resuming in
// the middle.
func TestCSVRandom(t *testing.T) {
	field := rapid.StringMatching(`[a",\n\té ]{0,9}`)
	rapid.Check(t, func(rt *rapid.T) {
		width := rapid.IntRange(2, 5).Draw(rt, "width")
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-f",\n]{1,4}`), width, width, rapid.ID[string]).Draw(rt, "names")
		rows := rapid.SliceOfN(rapid.SliceOfN(field, width, width), 1, 20).Draw(rt, "rows")
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		w.UseCRLF = false
		if err := w.WriteAll(append([][]string{names}, rows...)); err != nil {
			rt.Fatal(err)
		}
		var want []string
		for _, row := range rows {
			want = append(want, objectOf(t, names, row))
		}
		path := write(t, "in.csv", b.String())
		if got, err := readAll(t, CSV(path, Options{}), nil, 3); err != nil || !slices.Equal(got, want) {
			rt.Fatalf("%q: got %q, %v; want %q", b.String(), got, err, want)
		}
		n := rapid.IntRange(1, len(rows)).Draw(rt, "resume")
		position := positionAfter(t, CSV(path, Options{}), n)
		if got, err := readAll(t, CSV(path, Options{}), []byte(position), 3); err != nil || !slices.Equal(got, want[n:]) {
			rt.Fatalf("resumed after %d: %q, %v", n, got, err)
		}
	})
}

// FuzzCSV compares with encoding/csv where both accept the input, and checks that
// the way the bytes arrive makes no difference.
func FuzzCSV(f *testing.F) {
	f.Add([]byte("a,b\n1,\"2\n\"\"3\"\n"))
	f.Add([]byte("a\r\n\"x\"\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readAll(t, CSV(write(t, "in.csv", string(b)), Options{}), nil, 4)
		for _, rec := range got {
			if !json.Valid([]byte(rec)) {
				t.Fatalf("%q gives %q", b, rec)
			}
		}
		r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(b, bom)))
		rows, oracle := r.ReadAll()
		if err != nil || oracle != nil || len(rows) == 0 || bytes.Contains(b, []byte("\r")) || bytes.HasPrefix(b, []byte("\n")) {
			return
		}
		var want []string
		for _, row := range rows[1:] {
			want = append(want, objectOf(t, rows[0], row))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", b, got, want)
		}
	})
}

// TestCSVPieces feeds a decoder one byte more at a time: it must ask for more
// until the row is whole, and then give the same.
func TestCSVPieces(t *testing.T) {
	row := "\"x\"\"\n\",y,\"\"\r\n"
	for n := range len(row) {
		d := newTable(',')
		if _, size, _, err := d.next([]byte("a,b,c\n"), false); err != nil || size != 6 {
			t.Fatal(size, err)
		}
		if rec, size, _, err := d.next([]byte(row[:n]), false); rec != nil || size != 0 || err != nil {
			t.Errorf("%q: %q, %d, %v", row[:n], rec, size, err)
		}
		rec, size, lines, err := d.next([]byte(row+"more"), false)
		if string(rec) != `{"a":"x\"\n","b":"y","c":""}` || size != len(row) || lines != 2 || err != nil {
			t.Errorf("%q, %d, %d, %v", rec, size, lines, err)
		}
	}
}
