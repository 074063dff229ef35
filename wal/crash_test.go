//go:build crashpoints

package wal

import (
	"fmt"
	"testing"
	"time"

	"github.com/walsink/walsink/internal/crash"
)

// TestCrashPoints kills a process at each crash point of this package, and once
// more at the same point in the recovery.
func TestCrashPoints(t *testing.T) {
	for _, p := range []struct {
		name crash.Name
		hit  int
	}{
		{crash.AppendBefore, 1}, {crash.AppendBefore, 3000}, {crash.AppendBlock, 1}, {crash.AppendBlock, 30},
		{crash.AppendAfter, 2000}, {crash.SealFooter, 1}, {crash.SealFooter, 11}, {crash.SealSynced, 1},
		{crash.SealSynced, 7}, {crash.AbortHalf, 1}, {crash.DropHalf, 1}, {crash.DropHalf, 2},
		{crash.DropDone, 1}, {crash.Rotated, 1}, {crash.Rotated, 4}, {crash.OpenPending, 1}, {crash.CloseInside, 1},
	} {
		t.Run(fmt.Sprintf("%s:%d", p.name, p.hit), func(t *testing.T) {
			dir, k := t.TempDir(), newTold()
			env := fmt.Sprintf("WALSINK_CRASH=%s:%d", p.name, p.hit)
			for range 2 {
				if p.name == crash.AbortHalf { // needs something to abort
					k.runChild(t, dir, time.Minute, "WALSINK_CRASH=seal-synced:3")
				}
				if !killed(k.runChild(t, dir, time.Minute, env)) {
					t.Fatalf("%s was not reached", env)
				}
			}
			k.check(t, dir)
		})
	}
}
