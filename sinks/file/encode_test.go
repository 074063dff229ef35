package file

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks"
)

// hostile are the bucket names of F17 and F18, and more of their kind.
var hostile = []string{
	"../../x", "/etc/x", "a/../../b", "..", ".", "", "\x00", "a\x00b", "a\r\nb", "a\n", strings.Repeat("x", 300),
	strings.Repeat("x", maxBucket+1), "CON", "con", "nul.txt", "Com7", "LPT0.a", ".hidden", hidden, "dot.", "a b",
	"a\\b", "C:", "ü", "a/b", "~", "$HOME", "*", "a%2f..", "\xff",
}

var harmless = []string{"a", "dt=2024-05-01", "A.b_c-d", "COM", "COM10", "CONS", "aux1", "-", "=", strings.Repeat("x", maxBucket)}

func TestF17F18BucketNamesAreRefusedWhenEncoded(t *testing.T) {
	named := InBucket(func(name string) string { return name }, lineOf)
	enc := mustEncoder(t, Options{BucketField: "b"})
	for _, name := range hostile {
		t.Run(fmt.Sprintf("%.20q", name), func(t *testing.T) {
			dst := []byte("before")
			if out, err := named(dst, name); err == nil || string(out) != "before" {
				t.Errorf("InBucket: %q, %v", out, err)
			}
			doc, err := json.Marshal(map[string]string{"b": name})
			if err != nil {
				t.Fatal(err)
			}
			if out, err := enc.Append(dst, doc); err == nil || string(out) != "before" {
				t.Errorf("Encoder: %q, %v", out, err)
			}
		})
	}
	for _, name := range harmless {
		if _, err := named(nil, name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// lineOf is Line for strings.
func lineOf(dst []byte, s string) ([]byte, error) { return Line(dst, []byte(s)) }

// What reaches the log by another way than the encoders is refused at the flush, by
// number, and nothing is written.
func TestF17BucketNamesAreRefusedWhenFlushed(t *testing.T) {
	for _, name := range hostile {
		if len(name) > 255 {
			continue // has no wire form
		}
		dir := t.TempDir()
		o := acquire(t, dir, Options{Buckets: true})
		bad := string([]byte{byte(len(name))}) + name + "x\n"
		err := o.try(batch{1, []string{inBucket("ok", "x"), bad, inBucket("ok", "y"), ""}})
		wantKind(t, err, sinks.Poison)
		if got := badNumbers(err); !slices.Equal(got, []uint64{1, 3}) {
			t.Errorf("%q: records %v are bad, want 1 and 3: %v", name, got, err)
		}
		if len(visible(t, dir)) != 0 || len(staging(t, dir)) != 0 {
			t.Errorf("%q: parts %v, staging %v", name, visible(t, dir), staging(t, dir))
		}
	}
}

func badNumbers(err error) (numbers []uint64) {
	for _, r := range err.(*sinks.Error).Bad {
		numbers = append(numbers, r.Number)
	}
	return numbers
}

func TestF17PlantedSymlinkIsNotFollowed(t *testing.T) {
	for _, target := range []string{"outside", "inside"} {
		dir, outside := t.TempDir(), t.TempDir()
		if target == "inside" {
			outside = filepath.Join(dir, "real")
			if err := os.Mkdir(outside, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(outside, filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
		o := acquire(t, dir, Options{Buckets: true})
		err := o.try(batch{1, []string{inBucket("b", "x")}})
		wantKind(t, err, sinks.Permanent)
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
			t.Errorf("%s: %v, %v", target, entries, err)
		}
		if m, err := o.lane.Mark(t.Context()); err != nil || m.Seq != 0 {
			t.Errorf("%s: mark %+v, %v", target, m, err)
		}
	}
	t.Run("hidden directory", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Symlink(t.TempDir(), filepath.Join(dir, hidden)); err != nil {
			t.Fatal(err)
		}
		_, _, err := open(t, dir, Options{}).Acquire(t.Context(), orders)
		wantKind(t, err, sinks.Permanent)
	})
}

func TestLinesWithoutEndArePoison(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	err := o.try(batch{1, []string{"a\n"}}, batch{2, []string{"b\n", "c", "", "d\n"}})
	wantKind(t, err, sinks.Poison)
	if bad := err.(*sinks.Error).Bad; len(bad) != 2 || bad[0].Batch != 1 || bad[0].Number != 1 || bad[1].Number != 2 {
		t.Errorf("bad %+v", bad)
	}
	wantConcat(t, dir, "")
	t.Run("raw has no lines", func(t *testing.T) {
		dir := t.TempDir()
		acquire(t, dir, Options{Format: "raw"}).flush(batch{1, []string{"a", "", "b"}})
		wantConcat(t, dir, "ab")
	})
}

func mustEncoder(t testing.TB, opts Options) *Encoder {
	t.Helper()
	e, err := NewEncoder(opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEncoderKeepsTheBytes(t *testing.T) {
	e := mustEncoder(t, Options{})
	for _, line := range []string{`{"a": 1.0}`, ` [1, 2]  `, `"x"`, `null`, "{}\r", `{"a":"é\u00e9"}`} {
		out, err := e.Append([]byte(">"), []byte(line))
		if err != nil || string(out) != ">"+line+"\n" {
			t.Errorf("%q: %q, %v", line, out, err)
		}
	}
	for _, line := range []string{``, ` `, `{`, `{} {}`, `{"a":}`, "{\n}", `nul`, `{"a":1}x`} {
		if out, err := e.Append([]byte(">"), []byte(line)); err == nil || string(out) != ">" {
			t.Errorf("%q: %q, %v", line, out, err)
		}
	}
}

func TestEncoderTakesTheBucketFromTheField(t *testing.T) {
	e := mustEncoder(t, Options{BucketField: "day"})
	for line, want := range map[string]string{
		`{"day":"2024-05-01"}`:                             "2024-05-01",
		`{"x":{"day":"no"}, "day" : "b" , "z":[1,"}"] }`:   "b",
		`{"day":"a","day":"b"}`:                            "b",
		`{"d\u0061y":"\u0061b"}`:                           "ab",
		`{"day":17}`:                                       "17",
		`{"day":true}`:                                     "true",
		`{"a\"day\":":"x","day":"y"}`:                      "y",
		`{"a":[[{"day":1}],{"day":[]}],"day":-1.5,"q":""}`: "-1.5",
	} {
		out, err := e.Append(nil, []byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if name, rec, err := splitBucket(out); err != nil || string(name) != want || string(rec) != line+"\n" {
			t.Errorf("%s: bucket %q, record %q, %v", line, name, rec, err)
		}
	}
	for _, line := range []string{`{}`, `[]`, `1`, `{"Day":"x"}`, `{"day":null}`, `{"day":{}}`, `{"day":["x"]}`, `{"day":1e+9}`} {
		if out, err := e.Append(nil, []byte(line)); err == nil || !strings.Contains(err.Error(), `"day"`) {
			t.Errorf("%s: %q, %v", line, out, err)
		}
	}
}

func TestEncodersTakeNoMemory(t *testing.T) {
	e := mustEncoder(t, Options{BucketField: "day"})
	line, fields := []byte(`{"id":17,"day":"dt=2024-05-01","text":"some text"}`), []string{"a", `b "c"`, "d"}
	dst := make([]byte, 0, 1024)
	for name, f := range map[string]func(){
		"Encoder": func() { _, _ = e.Append(dst, line) },
		"Line":    func() { _, _ = Line(dst, line) },
		"Raw":     func() { _, _ = Raw(dst, line) },
		"CSV":     func() { _, _ = CSV(dst, fields) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s takes memory %v times", name, n)
		}
	}
}

func TestJSONIsOneLine(t *testing.T) {
	out, err := JSON([]byte(">"), map[string]string{"a": "<b>\n"})
	if err != nil || string(out) != ">{\"a\":\"<b>\\n\"}\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := JSON([]byte(">"), func() {}); err == nil || string(out) != ">" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := Line([]byte(">"), []byte("a\nb")); err == nil || string(out) != ">" {
		t.Errorf("%q, %v", out, err)
	}
	bucket := InBucket(func(int) string { return "b" }, func(dst []byte, _ int) ([]byte, error) { return dst, os.ErrInvalid })
	if out, err := bucket([]byte(">"), 1); err == nil || string(out) != ">" {
		t.Errorf("%q, %v", out, err)
	}
}

func FuzzEncoder(f *testing.F) {
	for _, s := range []string{`{"day":"x"}`, `{"a":{"day":1},"day":"y"}`, `[]`, `{"day":"\u0000"}`, `{"day":"a","day":1}`, " {\"day\" :\t2 }"} {
		f.Add([]byte(s))
	}
	plain, buckets := mustEncoder(f, Options{}), mustEncoder(f, Options{BucketField: "day"})
	f.Fuzz(func(t *testing.T, line []byte) {
		text := bytes.TrimSuffix(line, []byte("\n"))
		out, err := plain.Append(nil, line)
		if ok := json.Valid(text) && !bytes.Contains(text, []byte("\n")); ok != (err == nil) {
			t.Fatalf("%q: %v", line, err)
		}
		if err == nil && !bytes.Equal(out, append(slices.Clip(text), '\n')) {
			t.Fatalf("%q became %q", line, out)
		}
		out, err = buckets.Append(nil, line)
		if err != nil {
			return
		}
		var doc map[string]json.RawMessage
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		want := string(doc["day"])
		if want[0] == '"' {
			if err := json.Unmarshal(doc["day"], &want); err != nil {
				t.Fatal(err)
			}
		}
		name, rec, err := splitBucket(out)
		if err != nil || string(name) != want || checkBucket(want) != nil || !bytes.Equal(rec, append(slices.Clip(text), '\n')) {
			t.Fatalf("%q: bucket %q, want %q; record %q, %v", line, name, want, rec, err)
		}
	})
}

func FuzzCSV(f *testing.F) {
	f.Add("a", "b,c", "d\"e\nf")
	f.Add("", "", "")
	f.Add(" x", "\r", "\\.")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		fields := []string{a, b, c}
		line, err := CSV(nil, fields)
		if err != nil {
			t.Fatal(err)
		}
		got, err := csv.NewReader(bytes.NewReader(line)).ReadAll()
		if err != nil || len(got) != 1 {
			t.Fatalf("%q: %q, %v", line, got, err)
		}
		for i, field := range got[0] { // the reader makes line feeds of CR LF
			if field != strings.ReplaceAll(fields[i], "\r\n", "\n") {
				t.Fatalf("field %d of %q is %q, want %q", i, line, field, fields[i])
			}
		}
	})
}

func TestCSVPartsHaveAHeader(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{Format: "csv", Header: []string{"id", "full name"}, MaxPartBytes: 8, Compress: "gzip"})
	var recs []string
	for _, row := range [][]string{{"1", "a"}, {"2", "b,c"}, {"3", "\"d\""}} {
		line, err := CSV(nil, row)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, string(line))
	}
	o.flush(batch{7, recs})
	want := map[string]string{
		"orders+main+00000000000000000007+00000.csv.gz": "id,full name\n1,a\n",
		"orders+main+00000000000000000007+00001.csv.gz": "id,full name\n2,\"b,c\"\n",
		"orders+main+00000000000000000007+00002.csv.gz": "id,full name\n3,\"\"\"d\"\"\"\n",
	}
	got := visible(t, dir)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s holds %q, want %q", name, got[name], text)
		}
	}
	if line, err := CSV(nil, []string{""}); err != nil || string(line) != "\"\"\n" {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := CSV(nil, nil); err == nil {
		t.Error("a record without fields was taken")
	}
}

func FuzzBucket(f *testing.F) {
	for _, name := range append(hostile, harmless...) {
		f.Add([]byte(string(rune(len(name)%128)) + name))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		name, rec, err := splitBucket(wire)
		if err != nil || checkBucket(name) != nil {
			return
		}
		if !filepath.IsLocal(string(name)) || filepath.Base(string(name)) != string(name) || name[0] == '.' {
			t.Fatalf("bucket %q is no plain name", name)
		}
		out, err := appendBucket(nil, string(name))
		if err != nil || !bytes.Equal(append(out, rec...), wire) {
			t.Fatalf("%q does not come back: %q, %v", wire, out, err)
		}
	})
}
