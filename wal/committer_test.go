package wal_test

import (
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/wal"
)

var _ committer.Log = (*wal.Log)(nil)
