package redis_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
)

// quiet drops the client library's own log: its dial errors are what many tests
// are about.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	goredis.SetLogger(quiet{})
	if args := os.Getenv(jobVar); args != "" {
		if err := runJob(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	defer removeBinaries()
	servers.Main(m)
}
