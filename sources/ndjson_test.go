package sources

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNDJSONByteForByte(t *testing.T) {
	const path = "../examples/data/earthquakes.ndjson"
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(t, NDJSON(path, Options{}), nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1707 || strings.Join(got, "\n")+"\n" != string(want) {
		t.Errorf("%d records, and the bytes are equal: %v", len(got), strings.Join(got, "\n")+"\n" == string(want))
	}
}

func TestNDJSONLineEnds(t *testing.T) {
	want := []string{`{"a":1}`, ` 2`, `"x"`}
	for name, contents := range map[string]string{
		"newline":         "{\"a\":1}\n 2\n\"x\"\n",
		"CRLF":            "{\"a\":1}\r\n 2\r\n\"x\"\r\n",
		"no last newline": "{\"a\":1}\n 2\n\"x\"",
		"byte order mark": "\xef\xbb\xbf{\"a\":1}\n 2\n\"x\"\n",
		"blank lines":     "\n\r\n  \n{\"a\":1}\n\t\n 2\n\"x\"\n\n \n",
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "in.ndjson", contents)
			resumeEverywhere(t, func() Source { return NDJSON(path, Options{}) }, want)
		})
	}
}

func TestNDJSONEmpty(t *testing.T) {
	for _, contents := range []string{"", "\n", "\xef\xbb\xbf", "  ", "\xef"} {
		got, err := readAll(t, NDJSON(write(t, "in", contents), Options{}), nil, 10)
		if wrong := contents == "\xef"; len(got) != 0 || (err != nil) != wrong {
			t.Errorf("%q: %q, %v", contents, got, err)
		}
	}
}

func TestNDJSONBadLineIsLocated(t *testing.T) {
	path := write(t, "in.ndjson", "{\"a\":1}\n\n{\"a\":2}\n{\"a\":}\n{\"a\":4}\n")
	s := NDJSON(path, Options{})
	got, err := readAll(t, s, nil, 100)
	if len(got) != 2 {
		t.Errorf("records before the bad one: %q", got)
	}
	want := path + ":4: offset 17: not JSON: column 6: invalid character '}' looking for beginning of value"
	if err == nil || err.Error() != want {
		t.Errorf("error %q\nwant  %q", err, want)
	}
	position := positionAfter(t, NDJSON(path, Options{}), 2)
	if _, err := readAll(t, NDJSON(path, Options{}), []byte(position), 100); err == nil || err.Error() != want {
		t.Errorf("after a resume: error %q", err)
	}
}

func TestNDJSONRecordLimit(t *testing.T) {
	long := `"` + strings.Repeat("x", 998) + `"`
	for name, contents := range map[string]string{
		"in the middle":    "1\n" + long + " \n2\n",
		"at the end":       "1\n" + long[:999] + "y\"",
		"larger than read": "1\n\"" + strings.Repeat("x", 3*readSize) + "\"\n",
	} {
		path := write(t, "in.ndjson", contents)
		got, err := readAll(t, NDJSON(path, Options{MaxRecord: 1000}), nil, 10)
		if len(got) != 1 || err == nil || !strings.Contains(err.Error(), ":2: offset 2: record over the limit of 1000 bytes") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	path := write(t, "in.ndjson", "1\n"+long+"\r\n"+long)
	if got, err := readAll(t, NDJSON(path, Options{MaxRecord: 1000}), nil, 10); len(got) != 3 || err != nil {
		t.Errorf("at the limit: %d records, %v", len(got), err)
	}
}

// TestNDJSONRandom cuts lines of all sizes at all places of the buffer.
func TestNDJSONRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 60), rapid.IntRange(readSize-300, readSize+300)), 1, 12).Draw(rt, "sizes")
		var want []string
		var b strings.Builder
		for _, n := range sizes {
			rec := `"` + strings.Repeat("a", n) + `"`
			want = append(want, rec)
			b.WriteString(rec + rapid.SampledFrom([]string{"\n", "\r\n", "\n\n"}).Draw(rt, "end"))
		}
		path := write(t, "in", b.String())
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		if got, err := readAll(t, NDJSON(path, Options{}), nil, limit); err != nil || !slices.Equal(got, want) {
			rt.Fatalf("%d records, %v; want %d", len(got), err, len(want))
		}
		n := rapid.IntRange(1, len(want)).Draw(rt, "resume")
		position := positionAfter(t, NDJSON(path, Options{}), n)
		if got, err := readAll(t, NDJSON(path, Options{}), []byte(position), limit); err != nil || !slices.Equal(got, want[n:]) {
			rt.Fatalf("resumed after %d: %d records, %v", n, len(got), err)
		}
	})
}

func FuzzNDJSON(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n2\n"), 1)
	f.Add([]byte("\xef\xbb\xbf1\r\n\r\n[2]"), 3)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		limit = 1 + max(limit, -limit, 0)%5
		var want []string
		bad := false
		for i, line := range bytes.Split(b, []byte("\n")) {
			if i == 0 {
				line = bytes.TrimPrefix(line, bom)
			}
			line = bytes.TrimSuffix(line, []byte("\r"))
			if len(bytes.Trim(line, " \t\r\n\v\f\u0085\u00a0")) == 0 {
				continue
			}
			if !json.Valid(line) {
				bad = true
				break
			}
			want = append(want, string(line))
		}
		got, err := readAll(t, NDJSON(write(t, "in", string(b)), Options{}), nil, limit)
		if !slices.Equal(got, want) || (err != nil) != bad {
			t.Errorf("%q: got %q, %v; want %q", b, got, err, want)
		}
	})
}
