package jsontext

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

var validSeeds = []string{
	`{}`, `[]`, `{"a":[1,2,{"b":null}],"c":"é\u00e9\n"}`, `-0.5e+10`, `01`, `1.`, `.5`, `-`, `1e`, `"\x"`, `"\u12"`, `tru`, `true `,
	"\"\x01\"", `{"a":1,}`, `[1,]`, `{,}`, `{"a"}`, `{"a":}`, `{1:2}`, ``, ` `, `nul`, `falsee`, `[[[[]]]]`, `{"a":1}{`, "\"\xff\"", `"`, `[`, `{"`,
}

func TestValidAgrees(t *testing.T) {
	deep := []string{
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
		strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth),
		strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1),
		strings.Repeat("[", 1<<20),
	}
	for _, s := range slices.Concat(validSeeds, deep) {
		if got, want := Valid([]byte(s)), json.Valid([]byte(s)); got != want {
			t.Errorf("Valid(%.40q) = %v, json.Valid says %v", s, got, want)
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, s := range validSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := Valid(b), json.Valid(b); got != want {
			t.Errorf("Valid(%q) = %v, json.Valid says %v", b, got, want)
		}
	})
}

func BenchmarkValid(b *testing.B) {
	data, err := os.ReadFile("../../examples/data/earthquakes.ndjson")
	if err != nil {
		b.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	for name, f := range map[string]func([]byte) bool{"own": Valid, "json": json.Valid} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				for _, l := range lines {
					if !f(l) {
						b.Fatal("not valid")
					}
				}
			}
		})
	}
}
