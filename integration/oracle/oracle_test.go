package oracle

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// lane takes the text before the first '-' as lane, in each directory.
func lane(part string) (string, error) {
	lane, _, _ := strings.Cut(part, "-")
	return lane, nil
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOracleJudges(t *testing.T) {
	want := []string{"1\n", "2\n", "3\n", "4\n"}
	tests := []struct {
		name  string
		files map[string]string
		err   string // of Exact; empty: exact
	}{
		{"exact", map[string]string{"a-1": "1\n3\n", "b-1": "2\n", "b-2": "4\n"}, ""},
		{"buckets", map[string]string{"x/a-1": "1\n", "y/a-2": "3\n4\n", "x/b-1": "2\n"}, ""},
		{"order per bucket", map[string]string{"x/a-1": "2\n", "y/a-1": "1\n", "y/a-2": "3\n4\n"}, ""},
		{"hidden", map[string]string{"a-1": "1\n2\n3\n4\n", ".walsink/a-2": "1\n", ".a-3": "9"}, ""},
		{"missing", map[string]string{"a-1": "1\n2\n4\n"}, `missing first: "3\n"`},
		{"nothing", nil, "0 of 4 records"},
		{"twice in a part", map[string]string{"a-1": "1\n1\n"}, "line 1 is there twice"},
		{"twice in two lanes", map[string]string{"a-1": "1\n2\n", "b-1": "2\n3\n4\n"}, "line 2 is there twice"},
		{"order", map[string]string{"a-1": "1\n3\n", "a-2": "2\n4\n"}, "line 2 comes after line 3"},
		{"foreign", map[string]string{"a-1": "1\n5\n"}, "not in the input"},
		{"torn", map[string]string{"a-1": "1\n2"}, "middle of a line"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tt.files)
			lanes, err := Read(dir, lane)
			if err == nil {
				err = lanes.Exact(want)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Fatalf("got %v, want %q", err, tt.err)
			}
		})
	}
}

func TestOracleReadsCompressed(t *testing.T) {
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	g.Write([]byte("1\n"))
	g.Close()
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	z.Write([]byte("2\n"))
	z.Close()
	dir := t.TempDir()
	write(t, dir, map[string]string{"a-1.ndjson.gz": gz.String(), "a-2.ndjson.zst": zs.String()})
	lanes, err := Read(dir, lane)
	if err != nil {
		t.Fatal(err)
	}
	if err := lanes.Exact([]string{"1\n", "2\n"}); err != nil {
		t.Fatal(err)
	}
}

func TestOracleOfNoDirectory(t *testing.T) {
	lanes, err := Read(filepath.Join(t.TempDir(), "none"), lane)
	if err != nil || lanes.Len() != 0 {
		t.Fatalf("got %v, %v", lanes, err)
	}
}
