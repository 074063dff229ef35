package httpsink

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// TestEngine writes 500 numbers through the engine in five lives, in each of which
// the endpoint fails in another way, and the state directory is lost once.
func TestEngine(t *testing.T) {
	e := newEndpoint(t)
	state := t.TempDir()
	for life := range 5 {
		if life == 3 {
			state = t.TempDir()
		}
		heal := e.fail([]fault{none, refusing, mute, mute, none}[life])
		out, err := walsink.Open(t.Context(), e.open(t), walsink.Options{
			Dir: state, ID: "numbers", Log: wal.Options{GenerationBytes: 8 << 20},
		})
		if err != nil {
			t.Fatal(err)
		}
		from, _ := strconv.Atoi(string(out.Position()))
		for n := from; n < 100*(life+1); n++ {
			if err := out.Append(t.Context(), strconv.AppendInt(nil, int64(n), 10)); err != nil {
				t.Fatal(err)
			}
			if n%10 == 9 {
				if _, err := out.Checkpoint(t.Context(), fmt.Append(nil, n+1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		heal()
		if life%2 == 0 {
			if err := out.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var got []int
	for _, r := range e.of("/records", sinks.LaneID{Sink: "numbers", Lane: walsink.DefaultLane}) {
		n, err := strconv.Atoi(r.body)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	if len(got) != 500 || !slices.IsSorted(got) || got[499] != 499 || len(slices.Compact(got)) != 500 {
		t.Errorf("the endpoint took %d records: %v", len(got), got)
	}
}
