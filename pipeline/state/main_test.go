package state_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("WALSINK_TEST_COUNT"); dir != "" {
		lanes, _ := strconv.Atoi(os.Getenv("WALSINK_TEST_LANES"))
		if _, err := runCounts(context.Background(), dir, lanes, os.Getenv("WALSINK_TEST_QUICK") == "true"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("25"); err != nil { // each check opens Badger several times
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
