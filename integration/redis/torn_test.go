package redis_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// TestTornFile cuts a server's append-only file in the middle of a flush, as a
// crash while it writes does, and crashes the server once more when the batch was
// flushed again. Redis 7.0 and others cut off only the command that is torn, not
// the transaction it is part of, and apply that half when the file is loaded the next
// time. Then records are in twice, and the lane has to say so.
func TestTornFile(t *testing.T) {
	n := startNode(t, "--appendonly", "yes", "--appendfsync", "always")
	c := connectWith(t, quick(n.addr()))
	s := open(t, c, redis.Options{})
	in := countInput(t, "0", 2000, 1000)
	lane, mark := acquire(t, s, in.id)
	mark = in.upTo(1).finish(t, lane, mark)
	file, before := n.appendOnly(t)
	in.finish(t, lane, mark)
	n.kill()
	_, after := n.appendOnly(t)
	if err := os.Truncate(file, before+(after-before)/2+1); err != nil {
		t.Fatal(err)
	}
	n.start()
	lane, mark = acquire(t, s, in.id)
	in.finish(t, lane, mark)
	checkCounters(t, connect(t, n.addr()), 2000)

	n.kill()
	n.start()
	wrong := counted(t.Context(), connect(t, n.addr()), 2000)
	_, err := lane.Mark(t.Context())
	_, _, aerr := s.Acquire(t.Context(), in.id)
	if wrong == nil {
		if sinks.KindOf(err) == sinks.Permanent || aerr != nil {
			t.Errorf("the server keeps transactions whole: mark %v, acquire %v", err, aerr)
		}
		return
	}
	t.Log("the server brought half of a flush back:", wrong)
	for op, err := range map[string]error{"mark": err, "acquire": aerr} {
		if sinks.KindOf(err) != sinks.Permanent || !strings.Contains(err.Error(), "in twice") {
			t.Errorf("%s: %v, want it refused", op, err)
		}
	}
}

// appendOnly returns the part of the append-only file that grows, and its size.
func (n *node) appendOnly(t testing.TB) (path string, size int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		t.Fatalf("append-only files %v, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return files[0], info.Size()
}
