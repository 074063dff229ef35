package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlushWritesInOrder(t *testing.T) {
	dir := t.TempDir()
	o := acquire(t, dir, Options{})
	var want strings.Builder
	for cp := range uint64(20) {
		var recs []string
		for i := range cp {
			recs = append(recs, fmt.Sprintf(`{"cp":%d,"i":%d}`, cp, i))
			want.WriteString(recs[i] + "\n")
		}
		o.flush(lines(cp+1, recs...))
	}
	wantConcat(t, dir, want.String())
	if o.mark.Seq != 20 || o.mark.Records != 190 {
		t.Errorf("mark %+v", o.mark)
	}
	if _, err := os.Stat(filepath.Join(dir, "orders+main+00000000000000000020+00000.ndjson")); err != nil {
		t.Error(err)
	}
}
