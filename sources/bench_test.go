package sources

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// BenchmarkRead is reading a file of 100-byte lines, with a plain reader of lines
// beside it.
func BenchmarkRead(b *testing.B) {
	line := `{"id":123456,"name":"` + strings.Repeat("x", 76) + `"}`
	data := strings.Repeat(line+"\n", 200000)
	path := write(b, "in.ndjson", data)
	b.Run("ndjson", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if n := countRecords(b, NDJSON(path, Options{})); n != 200000 {
				b.Fatal(n)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			f, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			n := 0
			w := bufio.NewWriterSize(io.Discard, 256<<10)
			for s := bufio.NewScanner(f); s.Scan(); n++ {
				_, _ = w.Write(s.Bytes())
			}
			if err := f.Close(); err != nil || n != 200000 {
				b.Fatal(n, err)
			}
		}
	})
	table := "id,name\n" + strings.Repeat("123456,"+strings.Repeat("x", 92)+"\n", 200000)
	tablePath := write(b, "in.csv", table)
	b.Run("csv", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(table)))
		for b.Loop() {
			if n := countRecords(b, CSV(tablePath, Options{})); n != 200000 {
				b.Fatal(n)
			}
		}
	})
}

func countRecords(b *testing.B, s Source) int {
	b.Helper()
	if err := s.Open(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	defer closeSource(b, s)
	n := 0
	for {
		recs, err := s.Read(b.Context(), 1024)
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
		n += len(recs)
	}
}
