package httpsink

import (
	"os"
	"strings"
	"testing"
)

// TestDocs makes sure that the code in docs/writing-a-sink.md is the code that is
// compiled and tested here.
func TestDocs(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	code := read("httpsink.go") + read("httpsink_test.go")
	blocks := strings.Split(read("../../docs/writing-a-sink.md"), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Error("the page has no code")
	}
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		if !strings.Contains(code, b) {
			t.Errorf("this is not what the example does:\n%s", b)
		}
	}
	if n := strings.Count(read("httpsink.go"), "\n"); n >= 100 {
		t.Errorf("the example has %d lines, the page says less than 100", n)
	}
}
