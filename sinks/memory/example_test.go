package memory_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/memory"
)

// A test of a program that writes to an output: nothing is in the store before the
// checkpoint, and all of it after the drain.
func Example() {
	dir, err := os.MkdirTemp("", "walsink")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, store := context.Background(), memory.NewStore()
	out, err := walsink.Open(ctx, memory.Open(store, memory.Options{}), walsink.Options{Dir: dir, ID: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer out.Close()

	lane := sinks.LaneID{Sink: "orders", Lane: walsink.DefaultLane}
	for _, rec := range []string{"one", "two"} {
		if err := out.Append(ctx, []byte(rec)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("before: %q\n", store.Records(lane))
	if _, err := out.Checkpoint(ctx, []byte("position 2")); err != nil {
		log.Fatal(err)
	}
	if err := out.Drain(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("after: %q\n", store.Records(lane))
	// Output:
	// before: []
	// after: ["one" "two"]
}
