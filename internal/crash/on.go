//go:build crashpoints

package crash

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	target Name
	left   atomic.Int64
)

func init() { // this build is a test instrument; there is no main to do it
	name, n, _ := strings.Cut(os.Getenv("WALSINK_CRASH"), ":")
	count, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		count = 1
	}
	target = Name(name)
	left.Store(count)
}

// Point kills the process if this is the hit of the point that was asked for.
func Point(p Name) {
	if p == target && left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
