package redis

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	for _, tt := range []struct{ cmd, keys string }{
		{"SET k v", "k"},
		{"MSET a 1 b 2", "a b"},
		{"JSON.MSET a $ 1 b $ 2", "a b"},
		{"DEL a b c", "a b c"},
		{"RENAME a b", "a b"},
		{"BITOP AND d a b", "d a b"},
		{"XGROUP CREATE s g $", "s"},
		{"ZUNIONSTORE d 2 a b WEIGHTS 1 2", "d a b"},
		{"LMPOP 2 a b LEFT", "a b"},
		{"SORT a BY x STORE d", "a d"},
		{"SORT a ALPHA DESC", "a"},
		{"HSET h f v", "h"},
		{"BF.ADD f x", "f"},
	} {
		args := strings.Fields(tt.cmd)
		var v view
		if err := v.parse(string(mustRecord(t, args))); err != nil {
			t.Errorf("%s: %v", tt.cmd, err)
			continue
		}
		for spec, args := range v.commands() {
			if got := strings.Join(slices.Collect(spec.keys(args)), " "); got != tt.keys {
				t.Errorf("keys of %s: %s, want %s", tt.cmd, got, tt.keys)
			}
		}
	}
}

func TestRefusedCommands(t *testing.T) {
	for _, cmd := range []string{
		"GET k", "FLUSHALL", "FLUSHDB", "SELECT 1", "SWAPDB 0 1", "EVAL return 0", "EVALSHA x 0", "FCALL f 0", "SCRIPT FLUSH",
		"MULTI", "EXEC", "WATCH k", "BLPOP k 0", "BRPOPLPUSH a b 0", "XREADGROUP GROUP g c STREAMS s >", "SUBSCRIBE c", "PUBLISH c m",
		"CONFIG SET maxmemory 1", "SHUTDOWN", "DEBUG SLEEP 1", "REPLICAOF a 1", "CLUSTER RESET", "ACL SETUSER x", "CLIENT KILL x",
		"AUTH x", "HELLO 3", "MIGRATE h 1 k 0 1", "KEYS *", "FT.CREATE i", "NOSUCH k", "MOVE k 1", ".x k", "MONITOR", "WAIT 1 1",
		"MSET a", "LMPOP x a LEFT", "LMPOP 0 a LEFT", "LMPOP 9 a LEFT", "ZUNIONSTORE d 3 a b", "ZUNIONSTORE d -1 a", "DEL",
	} {
		if _, err := AppendCommand(nil, strings.Fields(cmd)...); !errors.Is(err, ErrCommand) {
			t.Errorf("%s: %v, want it refused", cmd, err)
		}
	}
}

func TestSlotOf(t *testing.T) {
	for key, want := range map[string]uint16{
		"123456789": 12739, "foo": 12182, "{foo}bar": 12182, "a{foo}bar": 12182, "foo{}{bar}": slotOf("foo{}{bar}"), "": 0,
		"{user1000}.following": slotOf("user1000"), "foo{{bar}}zap": slotOf("{bar"), "foo{bar}{zap}": slotOf("bar"),
	} {
		if got := slotOf(key); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}

// TestTags keeps the tags for ever: slot marks are found by them.
func TestTags(t *testing.T) {
	all := tags()
	for slot, tag := range all {
		if tag == "" || int(slotOf(tag)) != slot {
			t.Fatalf("tag of slot %d is %q", slot, tag)
		}
	}
	if all[0] != goldenTag0 || all[16383] != goldenTagLast {
		t.Errorf("tags have changed: %q, %q", all[0], all[16383])
	}
}

const (
	goldenTag0    = "1bz"
	goldenTagLast = "hia"
)
