package pipeline

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// count is a running count per key: it emits the key with its count so far.
func count(key, _, state []byte, emit Emit) ([]byte, error) {
	n, _ := binary.Uvarint(state)
	n++
	if err := emit(fmt.Appendf(nil, `{"key":%q,"count":%d}`, key, n)); err != nil {
		return nil, err
	}
	return binary.AppendUvarint(state[:0], n), nil
}

// checkCounts compares running counts with those of one uninterrupted run: of each
// key every count from 1 to the number of its records, once, and rising.
func checkCounts(t *testing.T, got []string, inputs ...[]string) {
	t.Helper()
	want := map[string]int{}
	for _, recs := range inputs {
		for _, r := range recs {
			want[string(field([]byte(r), "key"))]++
		}
	}
	last := map[string]int{}
	for _, r := range got {
		var key string
		var n int
		if _, err := fmt.Sscanf(strings.NewReplacer(`"`, " ", ",", " ", "}", " ").Replace(r), "{ key : %s count :%d", &key, &n); err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		if n != last[key]+1 {
			t.Fatalf("key %s: count %d after %d", key, n, last[key])
		}
		last[key] = n
	}
	for key, n := range want {
		if last[key] != n {
			t.Errorf("key %s: counted %d of %d", key, last[key], n)
		}
	}
}
