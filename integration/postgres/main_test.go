package postgres_test

import (
	"testing"

	"github.com/walsink/walsink/integration/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
